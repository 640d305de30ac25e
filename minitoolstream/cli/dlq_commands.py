"""Dead letters: look at them, publish them again, delete them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from minitoolstream.cli.options import START_HELP, SequenceType, confirm_by_name, has_subject, open_client, parse_start
from minitoolstream.cli.output import Exit, emit, json_option, note
from minitoolstream.cli.progress import human_size
from minitoolstream.cli.shapes import page_shape, table, when_text
from minitoolstream.client import Message, MtsError
from minitoolstream.domain.limits import MAX_FETCH_LIMIT

_TOLD = "mts-dlq-"


@click.group()
def dlq() -> None:
    """Dead letters: messages that a shared durable gave up on."""


@dlq.command("list")
@click.argument("subject")
@click.option("--start", default="1", callback=parse_start, show_default=True, help=START_HELP)
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, MAX_FETCH_LIMIT), help="How many.")
@json_option
def dlq_list(subject: str, start: Any, limit: int, as_json: bool) -> None:
    """Show the dead letters of SUBJECT, oldest first. Exit code 3 when there are none.

    WAS is the sequence that a message had in SUBJECT.
    """
    with open_client() as client:
        page = client.dead_letters.fetch(subject, start=start, limit=limit)
    if as_json or page.messages:
        emit(as_json, page_shape(page), lambda: _list_text(page.messages))
    if not page.messages:
        if not as_json:
            note(f"{subject} has no dead letters")
        click.get_current_context().exit(Exit.NOT_FOUND)
    if not as_json and page.next_sequence <= page.latest_sequence:
        note(f"more: mts dlq list {subject} --start {page.next_sequence}")


def _list_text(letters: Sequence[Message]) -> str:
    """What a dead letter's headers say of it; its own follow in the last column."""
    rows = []
    for letter in letters:
        told = {name.removeprefix(_TOLD): value for name, value in letter.headers.items() if name.startswith(_TOLD)}
        own = " ".join(f"{name}={value}" for name, value in letter.headers.items() if not name.startswith(_TOLD))
        cells = (told.get(name, "") for name in ("sequence", "durable", "deliveries", "reason"))
        rows.append((str(letter.sequence), when_text(letter.create_at), human_size(letter.size), *cells, own))
    head = ("SEQUENCE", "TIME", "SIZE", "WAS", "DURABLE", "TRIES", "REASON", "HEADERS")
    return table(head, rows, numbers=(0, 2, 3, 5))


@dlq.command("replay")
@click.argument("subject")
@click.argument("sequences", nargs=-1, type=SequenceType(1), metavar="[SEQUENCE]...")
@json_option
def dlq_replay(subject: str, sequences: tuple[int, ...], as_json: bool) -> None:
    """Publish dead letters of SUBJECT to it again.

    All of them, or those with the given sequences (of `mts dlq list`). Exit code 3 when one of these is none.
    """
    with open_client() as client:
        count = client.dead_letters.replay(subject, sequences or None)
        if not count and not has_subject(client, subject):
            raise MtsError("unknown_subject", f"there is no subject {subject}")
    emit(as_json, {"subject": subject, "replayed": count}, f"replayed: {count}")
    if count < len(set(sequences)):
        if not as_json:
            note(f"the others are not dead letters of {subject} (any more): mts dlq list {subject}")
        click.get_current_context().exit(Exit.NOT_FOUND)


@dlq.command("purge")
@click.argument("subject")
@click.option("--yes", metavar="SUBJECT", help="The subject's name again, instead of being asked for it.")
@json_option
def dlq_purge(subject: str, yes: str | None, as_json: bool) -> None:
    """Delete the dead letters of SUBJECT."""
    with open_client() as client:
        confirm_by_name(subject, yes, f"all dead letters of {subject}")
        count = client.dead_letters.purge(subject)
    emit(as_json, {"subject": subject, "purged": count}, f"purged: {count}")


COMMANDS: list[click.Command] = [dlq]
