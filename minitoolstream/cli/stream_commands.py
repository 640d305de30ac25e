"""Commands that talk to a running host: publish, read, look at uploads."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from minitoolstream.cli.filenames import safe_filename, with_filename
from minitoolstream.cli.options import (
    START_HELP,
    SequenceType,
    has_subject,
    open_client,
    parse_headers,
    parse_start,
    region_option,
)
from minitoolstream.cli.output import Exit, emit, json_option, note
from minitoolstream.cli.progress import ProgressBar
from minitoolstream.cli.shapes import page_shape, page_text, receipt_text, shape_of
from minitoolstream.client import Client, Message, MtsError, Receipt
from minitoolstream.domain.limits import MAX_FETCH_LIMIT, MAX_WAIT_SECONDS, MIB
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE, wire_number
from minitoolstream.domain.subject_settings import CODECS
from minitoolstream.domain.upload import State

_IN_MEMORY = 4 * MIB
_GO_ON = "run the same command again to go on where it stopped"


# -- publish


@click.command()
@click.argument("subject")
@click.argument("files", nargs=-1, metavar="[FILE|-]...")
@click.option("--data", help="Publish this text instead of a file.")
@click.option("--header", "headers", multiple=True, callback=parse_headers, metavar="NAME=VALUE", help="Repeatable.")
@click.option("--content-type", help="Guessed from the file's name unless given.")
@click.option("--group", help="Messages of a group share a partition, and so keep their order.")
@click.option("--codec", type=click.Choice(CODECS), help="Compress the payload; readers undo it.")
@click.option("--producer-id", help="Name the producer: each seqno is stored at most once, in order.")
@click.option("--seqno", type=click.IntRange(0), help="The message's number; rises by one with each further file.")
@click.option("--no-resume", is_flag=True, help="Start anew instead of going on with an interrupted upload.")
@json_option
def publish(
    *,
    subject: str,
    files: tuple[str, ...],
    data: str | None,
    headers: Mapping[str, str],
    content_type: str | None,
    group: str | None,
    codec: str | None,
    producer_id: str | None,
    seqno: int | None,
    no_resume: bool,
    as_json: bool,
) -> None:
    """Publish files, a text or stdin (`-`) to SUBJECT.

    Files of any size go straight into the object store. After an interruption, the same command goes on
    where it stopped. A file's name becomes the header `filename` unless `--header filename=...` gives another.
    With `--json`, a receipt is printed for each file, one a line.

    \b
    mts publish orders ./video.mp4
    mts publish orders --data '{"id": 7}' --content-type application/json --header kind=order
    tar c src | mts publish backups -
    """
    if (producer_id is None) != (seqno is None):
        raise click.UsageError("--producer-id and --seqno belong together")
    if data is not None and files:
        raise click.UsageError("give files or --data, not both")
    if data is None and not files:
        raise click.UsageError("give a FILE, `-` for stdin, or --data TEXT")
    if data is not None and not _is_utf8(data):
        raise click.UsageError("--data is not valid UTF-8; give a file, or `-` and the bytes on stdin")
    _check_readable(files)
    facts: dict[str, Any] = {
        "headers": headers,
        "content_type": content_type,
        "group": group,
        "codec": codec,
        "producer_id": producer_id,
    }
    with open_client() as client:
        if data is not None:
            _published(as_json, client.publish(subject, data, seqno=seqno, **facts), "text", seqno)
            return
        for number, name in enumerate(files):
            facts["seqno"] = None if seqno is None else seqno + number
            try:
                receipt = _publish_one(client, subject, name, facts, resume=not no_resume)
            except KeyboardInterrupt:
                raise MtsError(
                    "interrupted", "interrupted", {"hint": _how_to_go_on(files, number, no_resume)}
                ) from None
            shown = "stdin" if name == "-" else click.format_filename(name)
            _published(as_json, receipt, shown, facts["seqno"])


def _is_utf8(text: str) -> bool:
    """Bytes of the command line that are no text come as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_readable(files: tuple[str, ...]) -> None:
    """All of them before the first is published: a wrong name must not leave half of the work done."""
    for name in files:
        if name == "-":
            continue
        try:
            with Path(name).open("rb"):
                pass
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            code = "not_found" if missing else "bad_request"
            shown = click.format_filename(name)
            raise MtsError(code, f"cannot read {shown}: {error.strerror}; nothing was published") from None


def _publish_one(client: Client, subject: str, name: str, facts: dict[str, Any], *, resume: bool) -> Receipt:
    if name == "-":
        return _publish_stdin(client, subject, facts)
    facts = {**facts, "headers": with_filename(facts["headers"], name)}
    with ProgressBar(Path(name).name) as progress:
        return client.publish_file(subject, name, resume=resume, progress=progress, **facts)


def _publish_stdin(client: Client, subject: str, facts: dict[str, Any]) -> Receipt:
    """What fits goes inline; the rest takes the way of a file, because its size must be known."""
    stdin = sys.stdin.buffer
    start = stdin.read(_IN_MEMORY + 1)
    if len(start) <= _IN_MEMORY:
        return client.publish(subject, start, **facts)
    facts = {**facts, "content_type": facts["content_type"] or DEFAULT_CONTENT_TYPE}
    with tempfile.NamedTemporaryFile(prefix="mts-stdin-") as file:
        file.write(start)
        shutil.copyfileobj(stdin, file, MIB)
        file.flush()
        with ProgressBar("stdin") as progress:
            return client.publish_file(subject, file.name, resume=False, progress=progress, **facts)


def _published(as_json: bool, receipt: Receipt, name: str, seqno: int | None) -> None:
    text = receipt_text(receipt)
    if receipt.duplicate and seqno is not None:
        # It may be this payload, stored by an earlier run, or another one: nobody compares them.
        text = f"seqno {seqno} is message {receipt.sequence} already; this time nothing was stored"
    emit(as_json, shape_of(receipt), f"{name}: {text}")


def _how_to_go_on(files: tuple[str, ...], done: int, no_resume: bool) -> str:
    if files[done] == "-" or no_resume:
        return f"{done} of {len(files)} published; this one starts anew next time"
    if done:
        left = " ".join(files[done:])
        return f"{done} of {len(files)} are published; run the command again with the rest to go on: {left}"
    return _GO_ON


# -- read


@click.command()
@click.argument("subject")
@click.option("--start", default="1", callback=parse_start, show_default=True, help=START_HELP)
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, MAX_FETCH_LIMIT), help="How many.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition.")
@click.option("--inline", is_flag=True, help="Bring small payloads along.")
@region_option
@json_option
def fetch(
    *, subject: str, start: Any, limit: int, partition: int | None, inline: bool, region: str | None, as_json: bool
) -> None:
    """Show the messages of SUBJECT, oldest first. Exit code 3 when there are none.

    With `--json`, the page as the API answers it, with a download URL for each message.
    """
    with open_client(region) as client:
        page = client.fetch(subject, start=start, limit=limit, partition=partition, inline=inline)
        known = bool(page.messages) or as_json or has_subject(client, subject)
    if as_json or page.messages:
        emit(as_json, page_shape(page), lambda: page_text(page.messages))
    if not page.messages:
        if not as_json:
            lane = "" if partition is None else f"partition {partition} of "
            latest = page.latest_sequence or "none"
            nothing = f"no messages in {lane}{subject} from {start} on; the latest of {subject} is {latest}"
            note(nothing if known else f"there is no subject {subject}")
        click.get_current_context().exit(Exit.NOT_FOUND)
    if not as_json and page.next_sequence <= page.latest_sequence:
        note(f"more: mts fetch {subject} --start {page.next_sequence}")


@click.command()
@click.argument("sequence", type=SequenceType(0))
@click.option("-o", "--output", metavar="FILE|-", help="Where to save the payload; `-` is stdout.")
@click.option("--force", is_flag=True, help="Without -o: replace the file that has the message's name.")
@region_option
@json_option
def get(sequence: int, output: str | None, force: bool, region: str | None, as_json: bool) -> None:
    """Get the payload of a message.

    Without `-o` it goes to stdout; what a terminal cannot show is saved in this folder, under the name in its
    header `filename`. It is checked against the size and checksum in its metadata. An interrupted download
    goes on where it stopped. With `--json`, the metadata is printed instead of the payload, which `-o FILE`
    still saves.
    """
    with open_client(region) as client:
        message = client.get(sequence)
        shape = {**shape_of(message), **({"cid": message.cid} if message.cid else {})}
        if as_json and output == "-":
            raise click.UsageError("--json and the payload cannot both go to stdout; use -o FILE")
        if output is None and not as_json and _on_terminal() and not _is_text(message):
            output = _own_name(message, force=force)
        if output is not None and output != "-":
            _save(client, message, output)
            emit(as_json, {**shape, "path": output}, f"message {sequence} saved as {output}")
        elif as_json:
            emit(as_json, shape, "")
        else:
            client.download(message, sys.stdout.buffer)
            sys.stdout.buffer.flush()


def _on_terminal() -> bool:
    return sys.stdout.isatty()


def _is_text(message: Message) -> bool:
    kind = message.content_type.partition(";")[0].strip()
    return kind.startswith("text/") or kind in ("application/json", "application/xml", "application/x-ndjson")


def _own_name(message: Message, *, force: bool) -> str:
    """The name a message brings along; an error that says what to do when it brings none, or one that is taken."""
    name = safe_filename(message.headers)
    how = f"mts get {message.sequence} -o FILE"
    if name is None:
        raise MtsError(
            "bad_request",
            f"message {message.sequence} is {message.content_type}, which a terminal cannot show",
            {"hint": f"save it: {how}; or insist: -o -"},
        )
    if not force and os.path.lexists(name):
        raise MtsError(
            "bad_request", f"{name} is here already", {"hint": f"save it elsewhere: {how}; or replace it: --force"}
        )
    return name


def _save(client: Client, message: Message, path: str) -> None:
    try:
        with ProgressBar(Path(path).name) as progress:
            client.download(message, path, progress=progress)
    except KeyboardInterrupt:
        raise MtsError("interrupted", "interrupted", {"hint": _GO_ON}) from None


@click.command()
@click.argument("subject")
@json_option
def latest(subject: str, as_json: bool) -> None:
    """Print the last sequence of SUBJECT, 0 when it is empty."""
    with open_client() as client:
        sequence = client.latest(subject)
    emit(as_json, {"subject": subject, "latest_sequence": wire_number(sequence)}, str(sequence))


# -- uploads


@click.command()
@click.argument("upload_id")
@click.option("--wait", is_flag=True, help=f"Wait up to {MAX_WAIT_SECONDS:g} seconds for the upload to end.")
@json_option
def receipt(upload_id: str, wait: bool, as_json: bool) -> None:
    """Show what became of an upload. Exit code 4 when it failed: it was rejected or aborted, or it expired."""
    with open_client() as client:
        found = client.receipt(upload_id, wait=MAX_WAIT_SECONDS if wait else 0)
    emit(as_json, shape_of(found), lambda: receipt_text(found))
    if found.state.final and found.state is not State.COMMITTED:
        click.get_current_context().exit(Exit.VERIFICATION_FAILED)


@click.command()
@click.argument("upload_id")
@json_option
def abort(upload_id: str, as_json: bool) -> None:
    """Give an upload up, deleting what arrived."""
    with open_client() as client:
        found = client.abort(upload_id)
    emit(as_json, shape_of(found), lambda: receipt_text(found))


@click.command()
@json_option
def reconcile(as_json: bool) -> None:
    """Commit what a lost notification left behind.

    Also ends uploads that never came, and deletes what nothing points at. The host does this by itself every
    few seconds; this runs it now and prints what it did.
    """
    with open_client() as client:
        counts = client.reconcile()
    emit(as_json, counts, lambda: "\n".join(f"{name.replace('_', ' ')}: {count}" for name, count in counts.items()))


COMMANDS: list[click.Command] = [publish, fetch, get, latest, receipt, abort, reconcile]
