"""The content catalog: pins, their copies, batches, figures; and the tables it is kept in."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from minitoolstream.cli.options import open_client
from minitoolstream.cli.output import Exit, emit, json_option, note
from minitoolstream.cli.progress import human_size
from minitoolstream.cli.shapes import peer_problems, table
from minitoolstream.client import MtsError
from minitoolstream.config import load_settings

_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH = 64


@click.group()
def catalog() -> None:
    """Contents by their ids, and the copies of them in several object stores."""


@catalog.command("pin")
@click.argument("cid", required=False)
@click.option(
    "--sequence", type=click.IntRange(1), help="The payload of this message instead of CID; with the host's token."
)
@click.option("--rf", type=click.IntRange(1, 16), help="How many copies (setting catalog.rf).")
@click.option("--name", help="A name for people.")
@click.option("--tag", "tags", multiple=True, help="Repeatable.")
@click.option("--zone", "zones", multiple=True, help="Only peers of these zones. Repeatable.")
@click.option("--expires-at", metavar="TIME", help="Unix seconds or ISO 8601.")
@json_option
def pin(cid: str | None, as_json: bool, **given: Any) -> None:
    """Keep copies of a content, or of a message's payload."""
    with open_client() as client:
        given["tags"], given["zones"] = given["tags"] or None, given["zones"] or None
        found = client.catalog.pin(cid, **given)
    emit(as_json, msgspec.to_builtins(found), lambda: _pin_text(found))


@catalog.command("get")
@click.argument("cid")
@json_option
def get(cid: str, as_json: bool) -> None:
    """Show a pin and where its copies are."""
    with open_client() as client:
        found = client.catalog.get(cid)
    emit(as_json, msgspec.to_builtins(found), lambda: _pin_text(found))


@catalog.command("list")
@click.option("--status", help="queued, pinning, pinned, failed; some of them, separated by commas.")
@click.option("--name", help="Pins of this name.")
@click.option("--tag", help="Pins with this tag.")
@click.option("--owner", help="Somebody else's; - for what only messages hold.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="How many.")
@click.option("--cursor", help="Where the page before ended.")
@json_option
def list_(as_json: bool, **given: Any) -> None:
    """List pins, the newest first."""
    with open_client() as client:
        found = client.catalog.pins(**given)
    rows = [
        (one.cid, one.status, f"{len(one.placement.actual)}/{one.rf}", one.name or "", one.created_at)
        for one in found.pins
    ]
    emit(as_json, msgspec.to_builtins(found), lambda: table(("CID", "STATUS", "COPIES", "NAME", "CREATED"), rows))
    if found.next and not as_json:
        note(f"more: mts catalog list --cursor {found.next}")


@catalog.command("unpin")
@click.argument("cid")
@click.option("--version", type=click.IntRange(1), help="Only when this is its version.")
@json_option
def unpin(cid: str, version: int | None, as_json: bool) -> None:
    """End a pin; its copies go when nobody else holds it."""
    with open_client() as client:
        client.catalog.unpin(cid, version=version)
    emit(as_json, {"unpinned": cid}, f"{cid} is unpinned")


@catalog.command("batch")
@click.argument("kind", type=click.Choice(["pin", "unpin", "status", "items"]))
@click.argument("what")
@click.option("--rf", type=click.IntRange(1, 16), help="How many copies (setting catalog.rf).")
@json_option
def batch(kind: str, what: str, rf: int | None, as_json: bool) -> None:
    """Pin or unpin the contents listed in the file WHAT (- for stdin), one a line; or the status of the batch WHAT, or
    what became of each of its items, one a line: position, content, result and, where it failed, why."""
    if kind == "items":
        _show_items(what, as_json)
        return
    cids = [] if kind == "status" else (sys.stdin.read() if what == "-" else _read(what)).split()
    if kind != "status" and not cids:
        raise MtsError("bad_request", f"{'stdin' if what == '-' else what} names no content: write one id a line")
    with open_client() as client:
        found = client.catalog.batch(what) if kind == "status" else client.catalog.start_batch(kind, cids, rf=rf)
    text = f"{found.batch_id}: {found.state}, {found.done} of {found.total}, {found.failed} failed"
    emit(as_json, msgspec.to_builtins(found), text)
    if found.failed and not as_json:
        note(f"why: mts catalog batch items {found.batch_id}")


def _show_items(batch_id: str, as_json: bool) -> None:
    after: int | None = None
    with open_client() as client:
        while True:
            page = client.catalog.batch_items(batch_id, after=after, limit=1000)
            for one in page.items:
                line = "\t".join(filter(None, (str(one.position), one.cid, one.result or "waits", one.error)))
                emit(as_json, msgspec.to_builtins(one), line)
            if (after := page.next) is None:
                return


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise MtsError("bad_request", f"{path} cannot be read: {why}") from None


@catalog.command("peers")
@json_option
def peers(as_json: bool) -> None:
    """Show the object stores that hold copies."""
    with open_client() as client:
        found = client.catalog.peers()
    rows = [
        (one.peer_id, one.zone, f"{one.weight:g}", one.state + (", full" if one.full else ""), human_size(one.bytes))
        for one in found
    ]
    shown = msgspec.to_builtins(found)
    lines = [table(("PEER", "ZONE", "WEIGHT", "STATE", "HOLDS"), rows), *peer_problems(shown)]
    emit(as_json, {"peers": shown}, "\n".join(lines))


@catalog.command("stats")
@json_option
def stats(as_json: bool) -> None:
    """Show counters, and how pins are spread over prefixes and peers."""
    with open_client() as client:
        found = client.catalog.stats()
    emit(as_json, msgspec.to_builtins(found), lambda: stats_text(found))


def stats_text(found: Any) -> str:
    made = f"{found.copied} copies made, {found.removed} removed, {human_size(found.copied_bytes)}"
    lines = [f"{found.pins} pins; {made}"]
    lines += [f"prefixes 0000 to ffff; one holds {found.smallest_prefix} to {found.largest_prefix}"]
    lines += [f"  {bars(found.prefixes, _WIDTH)}"]
    most = max(found.peers.values(), default=0)
    for name, held in sorted(found.peers.items()):
        lines.append(f"  {name:<16} {'█' * round(40 * held / most) if most else '':<40} {human_size(held)}")
    return "\n".join(lines)


def bars(counts: Sequence[int], width: int) -> str:
    """A picture of how many there are from left to right; what is there is never shown as nothing."""
    step = max(1, len(counts) // width)
    sums = [sum(counts[at : at + step]) for at in range(0, len(counts), step)]
    most = max(sums, default=0)
    return "".join(_BARS[max(1, round(8 * one / most)) if one else 0] for one in sums)


@catalog.command("reconcile")
@json_option
def reconcile(as_json: bool) -> None:
    """Expire pins, go on with batches, make and remove copies: now instead of by the clock."""
    with open_client() as client:
        done = msgspec.to_builtins(client.catalog.reconcile())
    emit(as_json, done, ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in done.items()))
    if done["failed"] and not as_json:
        note(
            "failed copies are tried again. Which: mts catalog list --status queued,pinning,failed (those of messages: "
            "--owner -); why: mts catalog get CID"
        )


@catalog.command("check")
@click.option("--deep", is_flag=True, help="Look for every copy at its peer, and there for those that no row names.")
@click.option("--mend", is_flag=True, help="Bring rows back into step, and queue what must be copied again.")
@json_option
def check(deep: bool, mend: bool, as_json: bool) -> None:
    """Find rows that do not fit each other, and copies that are missing. Exit code 4 when something was found."""
    with open_client() as client:
        found = client.catalog.check(deep=deep, mend=mend)
    rows = [(one.kind, one.cid, one.about) for one in found.found]
    head = f"{found.pins} pins, {found.copies} copies looked at: {found.findings} found, {found.mended} mended"
    emit(as_json, msgspec.to_builtins(found), "\n".join([head, *([table(("WHAT", "CID", ""), rows)] if rows else [])]))
    if found.findings > found.mended:
        click.get_current_context().exit(Exit.VERIFICATION_FAILED)


@catalog.command("migrate")
@json_option
def migrate(as_json: bool) -> None:
    """Bring the catalog's tables to this version; safe to repeat, and while another does the same."""
    applied = asyncio.run(_on_store("migrate"))
    text = f"applied: {', '.join(applied)}" if applied else "nothing to do"
    emit(as_json, {"applied": applied}, text)


@catalog.command("status")
@json_option
def status(as_json: bool) -> None:
    """Show which versions of the catalog's tables are there. Exit code 3 when some are not."""
    applied, waiting = asyncio.run(_on_store("versions"))
    where = load_settings()["catalog.database"]
    text = f"{where}: {', '.join(applied) or 'no version'}" + (f"; not there: {', '.join(waiting)}" if waiting else "")
    emit(as_json, {"database": where, "applied": applied, "waiting": waiting}, text)
    if waiting:
        click.get_current_context().exit(Exit.NOT_FOUND)


async def _on_store(call: str) -> Any:
    from minitoolstream.bootstrap import open_catalog

    store = open_catalog(load_settings())
    try:
        return await getattr(store, call)()
    finally:
        await store.close()


def _pin_text(found: Any) -> str:
    about = [found.cid, f"status   {found.status}, version {found.version}, owner {found.owner}"]
    there = found.placement.actual
    about += [f"copies   {len(there)} of {found.rf}: {', '.join(there) or 'none yet'}"]
    if len(found.placement.desired) < found.rf:
        about.append(f"peers    {len(found.placement.desired)} of {found.rf} that are needed: see mts catalog peers")
    reasons = {one.peer_id: f", attempt {one.attempts}: {one.reason}" for one in found.failures}
    about += [f"failed   {peer}{reasons.get(peer, '')}" for peer in found.placement.failed]
    about += [f"retried  {peer}{why}" for peer, why in reasons.items() if peer in found.placement.in_progress]
    if found.again_at:
        about.append(f"again    {found.again_at}")
    lines = {
        "name": found.name,
        "size": None if found.size is None else human_size(found.size),
        "tags": ", ".join(found.tags),
        "zones": ", ".join(found.zones),
    }
    about += [f"{name:<8} {shown}" for name, shown in lines.items() if shown]
    if found.expires_at:
        about.append(f"expires  {found.expires_at}")
    return "\n".join(about)


COMMANDS: list[click.Command] = [catalog]
