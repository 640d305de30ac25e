"""Durables: make them, look at them, change them, move them, delete them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from minitoolstream.cli.options import START_HELP, confirm_by_name, has_subject, open_client, parse_start
from minitoolstream.cli.output import Exit, emit, json_option, note
from minitoolstream.cli.shapes import fields_text, shape_of, table, when_text
from minitoolstream.client import Client, Consumer, MtsError

_F = TypeVar("_F", bound=Callable[..., Any])


@click.group()
def consumer() -> None:
    """Make durables, look at them, move them, delete them."""


@consumer.command("ls")
@click.argument("subject")
@json_option
def consumer_ls(subject: str, as_json: bool) -> None:
    """List the durables of SUBJECT. Exit code 3 when there are none."""
    with open_client() as client:
        found = client.consumers.list(subject)
        known = bool(found) or as_json or has_subject(client, subject)
    if as_json or found:
        emit(as_json, {"consumers": [shape_of(one) for one in found]}, lambda: _list_text(found))
    if not found:
        if not as_json:
            note(f"{subject} has no durables" if known else f"there is no subject {subject}")
        click.get_current_context().exit(Exit.NOT_FOUND)


def _list_text(found: list[Consumer]) -> str:
    rows = [
        (one.durable, one.mode, str(one.last_sequence), str(one.lag), str(one.outstanding), str(one.sessions))
        for one in found
    ]
    return table(("DURABLE", "MODE", "ACKED", "LAG", "LEASED", "SESSIONS"), rows, numbers=(2, 3, 4, 5))


@consumer.command("info")
@click.argument("subject")
@click.argument("durable")
@json_option
def consumer_info(subject: str, durable: str, as_json: bool) -> None:
    """Show position, lag and settings of a durable."""
    with open_client() as client:
        found = client.consumers.get(subject, durable)
    emit(as_json, shape_of(found), lambda: _info_text(found))


def _info_text(found: Consumer) -> str:
    shared = found.mode == "shared"
    conditions = [
        f"{one['header']}={one['equals']}" if "equals" in one else f"{one['header']}^={one['prefix']}"
        for one in found.filter or ()
    ]
    text = fields_text(
        [
            ("durable", found.durable),
            ("subject", found.subject),
            ("mode", found.mode),
            ("acked up to", found.last_sequence),
            ("latest", found.latest_sequence),
            ("lag", found.lag),
            ("leased", found.outstanding if shared else None),
            ("sessions", found.sessions or None),
            ("filter", " ".join(conditions)),
            ("important", "yes" if found.important else None),
            ("ack wait", f"{found.ack_wait} s" if shared else None),
            ("tries at most", (found.max_deliver or "no limit") if shared else None),
            ("dead letters go to", found.dead_letter if shared else None),
            ("created", when_text(found.created_at)),
        ]
    )
    rows = [
        (
            str(one.partition),
            "" if one.position is None else str(one.position),
            "" if one.offset is None else str(one.offset),
            str(one.lag),
            one.session_id or "",
        )
        for one in found.partitions
    ]
    head = ("PARTITION", "ACKED", "OFFSET", "LAG", "SESSION")
    return f"{text}\n\n{table(head, rows, numbers=(0, 1, 2, 3))}" if rows else text


def _settings(command: _F) -> _F:
    options = (
        click.option("--filter", multiple=True, metavar="NAME=VALUE", help="Header; NAME^=PREFIX. Repeatable."),
        click.option("--important/--not-important", default=None, help="Nothing expires before it acked it."),
        click.option("--max-deliver", type=click.IntRange(0), help="Shared: tries before a dead letter; 0: no limit."),
        click.option("--ack-wait", type=click.IntRange(1), help="Shared: seconds until what is not acked comes again."),
        click.option("--dead-letter", metavar="SUBJECT", help="Shared: where dead letters go."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _wanted(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None and value != ()}


@consumer.command("create")
@click.argument("subject")
@click.argument("durable")
@click.option("--mode", type=click.Choice(["ordered", "shared"]), help="`shared` is a work queue.  [default: ordered]")
@click.option("--start", callback=parse_start, help=f"Where it begins; `first` unless given. {START_HELP}")
@_settings
@json_option
def consumer_create(subject: str, durable: str, as_json: bool, **given: Any) -> None:
    """Make a durable; its mode stays. A subject that does not exist is made, too.

    \b
    mts consumer create orders billing
    mts consumer create orders mail --mode shared --max-deliver 3 --ack-wait 60
    """
    with open_client() as client:
        if _exists(client, subject, durable):
            hint = f"change it: mts consumer alter {subject} {durable}; move it: mts consumer seek {subject} {durable}"
            raise MtsError("already_exists", f"{durable} is there already", {"hint": hint})
        known = as_json or has_subject(client, subject)
        found = client.consumers.put(subject, durable, **_wanted(given))
    if not known:
        note(f"there was no subject {subject}: it is made, too")
    emit(as_json, shape_of(found), lambda: _info_text(found))


def _exists(client: Client, subject: str, durable: str) -> bool:
    try:
        client.consumers.get(subject, durable)
    except MtsError as error:
        if error.code != "unknown_durable":
            raise
        return False
    return True


@consumer.command("alter")
@click.argument("subject")
@click.argument("durable")
@_settings
@click.option("--no-filter", is_flag=True, help="Read messages with whatever headers again.")
@json_option
def consumer_alter(subject: str, durable: str, no_filter: bool, as_json: bool, **given: Any) -> None:
    """Change settings of a durable; those that are not given stay."""
    wanted = _wanted(given)
    if no_filter:
        if "filter" in wanted:
            raise click.UsageError("--filter and --no-filter exclude each other")
        wanted["filter"] = ()
    if not wanted:
        raise click.UsageError("give at least one setting to change")
    with open_client() as client:
        client.consumers.get(subject, durable)  # which must be there: this is no way to make one
        found = client.consumers.put(subject, durable, **wanted)
    emit(as_json, shape_of(found), lambda: _info_text(found))


@consumer.command("seek")
@click.argument("subject")
@click.argument("durable")
@click.argument("to", callback=parse_start)
@json_option
def consumer_seek(subject: str, durable: str, to: Any, as_json: bool) -> None:
    """Move a durable: TO is what it reads next.

    Its readers start again there. TO is a sequence, first, last, new (the end), or a time such as 2026-01-31T12:00
    (local unless it has an offset).
    """
    with open_client() as client:
        found = client.consumers.seek(subject, durable, to)
    text = f"{durable} reads on after {found.last_sequence}; its lag is {found.lag}"
    emit(as_json, shape_of(found), text)


@consumer.command("rm")
@click.argument("subject")
@click.argument("durable")
@click.option("--yes", metavar="DURABLE", help="Its name again, instead of being asked for it.")
@json_option
def consumer_rm(subject: str, durable: str, yes: str | None, as_json: bool) -> None:
    """Delete a durable with its position; messages stay."""
    with open_client() as client:
        client.consumers.get(subject, durable)
        confirm_by_name(durable, yes, f"the durable {durable} of {subject} and its position")
        client.consumers.delete(subject, durable)
    emit(as_json, {"subject": subject, "durable": durable, "deleted": True}, f"{durable} is deleted")


COMMANDS: list[click.Command] = [consumer]
