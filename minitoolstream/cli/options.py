"""What several commands take: the client, headers, places to start at, names said again before something goes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from math import ceil
from typing import Any

import click

from minitoolstream.cli.output import note
from minitoolstream.client import Client, MtsError
from minitoolstream.config import load_settings
from minitoolstream.domain.limits import MAX_SEQUENCE
from minitoolstream.setting_values import duration, region, size

_RETRY_SECONDS = 5.0
"""A person waits, and can run the command again."""
_MOST_DIGITS = 20
START_HELP = "A sequence, first, last, new, or a time such as 2026-01-31T12:00 (local unless it has an offset)."


def _parsed(parse: Callable[[Any], float]) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    def callback(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
        if value is None:
            return None
        try:
            return ceil(parse(value))
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


parse_duration = _parsed(duration)
parse_size = _parsed(size)
"""Written as in `mts.yaml`."""


class SequenceType(click.IntRange):
    """A number, which what is wrong with it calls a sequence."""

    name = "sequence"


@contextmanager
def open_client(where: str | None = None) -> Iterator[Client]:
    settings = load_settings()
    if where is not None:
        settings = settings.with_values(client__region=where)
    for warning in settings.warnings:
        note(f"warning: {warning}")
    with Client.from_settings(settings, retry_for=_RETRY_SECONDS) as client:
        yield client


def _region(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    try:
        return value if value is None else region(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


region_option = click.option(
    "--region", callback=_region, help="Where you are: URLs lead to the nearest copy (setting client.region)."
)


def has_subject(client: Client, subject: str) -> bool:
    try:
        client.subjects.get(subject)
    except MtsError as error:
        if error.code != "unknown_subject":
            raise
        return False
    return True


def parse_headers(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not of the form name=value")
        if name.lower() in {known.lower() for known in headers}:
            raise click.BadParameter(f"{name!r} is given twice; a header has one value")
        headers[name] = text
    return headers


def parse_start(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | str | datetime | None:
    if value is None or value in ("first", "last", "new"):
        return value
    if value.isascii() and value.isdigit():
        if len(value) > _MOST_DIGITS or int(value) > MAX_SEQUENCE:
            raise click.BadParameter("the sequence is too large: the largest number is 2^63-1")
        return int(value)
    try:
        return datetime.fromisoformat(value).astimezone()
    except ValueError:
        message = f"{value!r} is neither a sequence, nor first, last or new, nor a time such as 2026-01-31T12:00"
        raise click.BadParameter(message) from None


def confirm_by_name(name: str, given: str | None, what: str) -> None:
    """Something goes for good: its name must be said again, on the command line or when asked."""
    if given is None:
        if not sys.stdin.isatty():
            raise MtsError("bad_request", f"this deletes {what}: say --yes {name} as well")
        given = click.prompt(f"This deletes {what}. Type the name {name} to go on", err=True, default="")
    if given != name:
        raise MtsError("bad_request", f"{given!r} is not {name!r}: nothing was deleted")
