"""Delete for good, and read the record of deletions."""

from __future__ import annotations

from collections.abc import Callable

import click
import msgspec

from minitoolstream.cli.options import SequenceType, confirm_by_name, open_client
from minitoolstream.cli.output import Exit, emit, json_option, note
from minitoolstream.cli.progress import human_size
from minitoolstream.cli.shapes import shape_of, table, when_text
from minitoolstream.client import Client, Deletion, DeletionRecord


@click.command()
@click.argument("sequence", type=SequenceType(1))
@click.option("--reason", default="", help="Why; goes on the record.")
@click.option("--yes", metavar="SEQUENCE", help="The sequence again, instead of being asked for it.")
@json_option
def delete(sequence: int, reason: str, yes: str | None, as_json: bool) -> None:
    """Delete message SEQUENCE for good: its payload leaves the bucket at once.

    Dead letters that share the payload, or the message they came from, go with it. A pack is written anew without
    it. An entry stays in the record, see `mts deletions`.
    """
    with open_client() as client:
        message = client.get(sequence)
        confirm_by_name(str(sequence), yes, f"message {sequence} of {message.subject}")
        done = _until_done(lambda: client.delete_message(sequence, reason))
    emit(as_json, shape_of(done), lambda: deleted_text(done))


def _until_done(call: Callable[[], Deletion]) -> Deletion:
    """Large ones take several calls."""
    while True:
        done = call()
        if done.done:
            return done
        note(f"{done.messages} messages are gone, their payloads follow")


def deleted_text(done: Deletion) -> str:
    what = f"{done.messages} messages of {done.subject}"
    if done.kind == "message":
        others = done.messages - 1
        what = f"message {done.sequence}" + (f" and {others} that shared its payload" if others else "")
    return f"deleted: {what}, {human_size(done.bytes)}; record {done.id}"


def purge(client: Client, subject: str, reason: str) -> Deletion:
    return _until_done(lambda: client.subjects.purge(subject, reason))


@click.command()
@click.option("--after", default="", help="Entries behind this id.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 1000), help="How many.")
@json_option
def deletions(after: str, limit: int, as_json: bool) -> None:
    """Show the record of deletions, oldest first. Exit code 3 when there are none."""
    with open_client() as client:
        found = client.deletions(after=after, limit=limit)
    if as_json or found:
        emit(as_json, {"deletions": [msgspec.to_builtins(one) for one in found]}, lambda: _records_text(found))
    if not found:
        if not as_json:
            note("nothing was deleted for good")
        click.get_current_context().exit(Exit.NOT_FOUND)


def _records_text(found: list[DeletionRecord]) -> str:
    rows = [(one.id, when_text(one.when), one.who, one.subject, _what(one), one.reason) for one in found]
    return table(("ID", "TIME", "WHO", "SUBJECT", "WHAT", "REASON"), rows)


def _what(one: DeletionRecord) -> str:
    if one.kind == "subject":
        return f"all up to {one.upto}"
    return ", ".join(map(str, one.sequences))


COMMANDS: list[click.Command] = [delete, deletions]
