"""`mts tail`: messages as they come."""

from __future__ import annotations

import base64
from typing import Any

import click

from minitoolstream.cli.options import START_HELP, open_client, parse_start
from minitoolstream.cli.output import Exit, json_option, note, to_json
from minitoolstream.cli.shapes import message_line, shape_of
from minitoolstream.client import Delivery
from minitoolstream.domain.limits import KIB

_SHOWN = 256 * KIB
"""Larger payloads are left in the store."""
_TOGETHER = 0.05


@click.command()
@click.argument("subject")
@click.option("-f", "--follow", is_flag=True, help="Wait for more, until Ctrl-C.")
@click.option("--start", callback=parse_start, help=f"Where to begin; `last` unless given. {START_HELP}")
@click.option("--durable", help="Read as this durable, from its position on, and ack what was shown.")
@click.option("--filter", "conditions", multiple=True, metavar="NAME=VALUE", help="Header; NAME^=PREFIX. Repeatable.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition.")
@json_option
def tail(
    *,
    subject: str,
    follow: bool,
    start: Any,
    durable: str | None,
    conditions: tuple[str, ...],
    partition: int | None,
    as_json: bool,
) -> None:
    """Show messages of SUBJECT as they come.

    Each has a line, with the beginning of its payload. Exit code 3 when there are none. A durable that does not exist
    is made; `--start` is its position then, `first` unless given. With `--json`, a message a line, as the API answers
    it.

    \b
    mts tail orders -f
    mts tail orders --start first --filter kind=order --filter region^=eu-
    mts tail orders -f --durable billing
    """
    shown = 0
    with (
        open_client() as client,
        client.subscribe(
            subject,
            start=start if start is not None else "first" if durable else "last",
            durable=durable,
            filter=conditions,
            partition=partition,
            idle=None if follow else 0,
        ) as subscription,
    ):
        try:
            for batch in subscription.batches(max_messages=100, max_wait=_TOGETHER):
                for delivery in batch:
                    click.echo(_json(delivery) if as_json else _line(delivery))
                    shown += 1
        except KeyboardInterrupt:
            if not follow:
                raise
            click.get_current_context().exit(Exit.INTERRUPTED)  # the way to end it, not an error
    if not shown:
        if not as_json:
            note(f"no messages in {subject} to show")
        click.get_current_context().exit(Exit.NOT_FOUND)


def _data(delivery: Delivery) -> bytes | None:
    return delivery.data() if delivery.message.size <= _SHOWN and not delivery.message.unverified else None


def _line(delivery: Delivery) -> str:
    return message_line(delivery.message, _data(delivery))


def _json(delivery: Delivery) -> str:
    shape = shape_of(delivery.message)
    data = _data(delivery)
    if data is not None:
        shape |= {"data": base64.b64encode(data).decode(), "encoding": "base64"}
    return to_json(shape)
