"""Commands for operators: `backup`, `restore`, `rebuild`. They work on Tarantool and the bucket, without a host."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from minitoolstream.cli.output import emit, json_option
from minitoolstream.config import Settings, load_settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.stack.console import Console, Step

if TYPE_CHECKING:
    from minitoolstream.domain.backup import Manifest
    from minitoolstream.services.adopt_orphans import Decided
    from minitoolstream.services.backup_places import BackupPlace
    from minitoolstream.services.core import Core
    from minitoolstream.services.restore_backup import Restored

T = TypeVar("T")
_FOLDER = click.Path(path_type=Path, file_okay=False)
_SHOWN = 5
_replace = click.option("--replace", is_flag=True, help="Move data that Tarantool has now aside, and go on.")
_skip = click.option("--skip-damaged", is_flag=True, help="Go on without journal segments that cannot be read.")
_replay = click.option(
    "--replay", is_flag=True, help="Tarantool is started already, on an address of your own: only do the rest."
)


def _with_core(settings: Settings, work: Callable[[Core], Awaitable[T]]) -> T:
    from minitoolstream.bootstrap import open_core

    async def run() -> T:
        core = await open_core(settings)
        try:
            return await work(core)
        finally:
            await core.close()

    return asyncio.run(run())


def _place(core: Core, folder: Path | None) -> BackupPlace:
    from minitoolstream.services.backup_places import BucketPlace, FolderPlace

    return FolderPlace(folder) if folder else BucketPlace(core.payloads)


def _when(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


@click.group(invoke_without_command=True)
@click.option("--to", "folder", type=_FOLDER, help="Put it into this folder instead of the bucket.")
@json_option
@click.pass_context
def backup(ctx: click.Context, folder: Path | None, as_json: bool) -> None:
    """Make a backup of the metadata: a snapshot, and the journal up to now.

    It lies in the bucket beside the payloads, which are not copied. The host makes one a day by itself.
    """
    if ctx.invoked_subcommand is not None:
        return
    from minitoolstream.services.make_backup import make_backup

    with Console().step("backup") as step:
        manifest = _with_core(load_settings(), lambda core: make_backup(core, _place(core, folder), step.update))
        step.done(f"{manifest.size} bytes, up to sequence {manifest.upto}")
    emit(as_json, msgspec.to_builtins(manifest), manifest.id)


@backup.command("ls")
@click.option("--from", "folder", type=_FOLDER, help="Backups in this folder instead of those in the bucket.")
@json_option
def backup_ls(folder: Path | None, as_json: bool) -> None:
    """List backups, the newest last."""
    from minitoolstream.services.make_backup import list_backups

    found = _with_core(load_settings(), lambda core: list_backups(_place(core, folder)))
    emit(as_json, msgspec.to_builtins(found), lambda: "\n".join(map(_line, found)) or "there is no backup")


def _line(manifest: Manifest) -> str:
    return f"{manifest.id}  {_when(manifest.at)}  up to sequence {manifest.upto:<12} {manifest.size} bytes"


@click.command()
@click.argument("backup_id", required=False)
@click.option("--from", "folder", type=_FOLDER, help="A backup in this folder instead of one in the bucket.")
@_replace
@_skip
@click.option("--files", type=_FOLDER, help="Only put the snapshot's file into this folder.")
@_replay
@click.option("--adopt", is_flag=True, help="After a restore: make messages of payloads that no message knows.")
@click.option("--discard", is_flag=True, help="After a restore: delete payloads that no message knows.")
@json_option
def restore(  # noqa: PLR0917 - one for each option
    backup_id: str | None,
    folder: Path | None,
    replace: bool,
    skip_damaged: bool,
    files: Path | None,
    replay: bool,
    adopt: bool,
    discard: bool,
    as_json: bool,
) -> None:
    """Bring lost metadata back: the newest backup (or BACKUP_ID), then the journal to its end.

    \b
    mts restore             stops host and Tarantool, restores; `mts up` starts them again
    mts restore --adopt     then: payloads that came after the journal's end become messages
    mts restore --discard   or: they are deleted

    No sequence that was ever given is given again. Until you adopt or discard, no payload is deleted that the restored
    metadata does not know.
    """
    if sum((files is not None, replay, adopt, discard)) > 1:
        raise click.UsageError("--files, --replay, --adopt and --discard are one each.")
    if adopt or discard:
        _decide(adopt, as_json)
    elif files is not None:
        _get_files(backup_id, folder, files, as_json)
    elif replay:
        _show(_replay_running(rebuild=False, skip_damaged=skip_damaged), as_json)
    else:
        _show(_restore_stack(backup_id, folder, replace=replace, skip_damaged=skip_damaged), as_json)


@click.command()
@_replace
@_skip
@_replay
@json_option
def rebuild(replace: bool, skip_damaged: bool, replay: bool, as_json: bool) -> None:
    """Make the metadata anew from the bucket alone: its journal and its objects, without a backup.

    Stops host and Tarantool; `mts up` starts them again. Payloads that the journal does not know are kept until
    `mts restore --adopt` or `--discard`.
    """
    if replay:
        restored = _replay_running(rebuild=True, skip_damaged=skip_damaged)
    else:
        restored = _rebuild_stack(replace=replace, skip_damaged=skip_damaged)
    _show(restored, as_json)


def _restore_stack(backup_id: str | None, folder: Path | None, *, replace: bool, skip_damaged: bool) -> Restored:
    from minitoolstream.services.restore_backup import find_backup
    from minitoolstream.stack.restore import bare_stack

    console = Console()

    def find() -> Manifest:
        return _with_core(load_settings(), lambda core: find_backup(_place(core, folder), backup_id))

    with bare_stack(load_settings, console, replace=replace, look_first=find) as stack:
        with console.step("snapshot") as step:
            manifest = _fetch(load_settings(), backup_id, folder, stack.folder, step)
        with console.step("journal") as step, stack.tarantool() as settings:
            return _replayed(settings, step, rebuild=False, skip_damaged=skip_damaged, backup=manifest.id)


def _rebuild_stack(*, replace: bool, skip_damaged: bool) -> Restored:
    from minitoolstream.stack.restore import bare_stack

    console = Console()
    with (
        bare_stack(load_settings, console, replace=replace) as stack,
        console.step("journal") as step,
        stack.tarantool() as settings,
    ):
        return _replayed(settings, step, rebuild=True, skip_damaged=skip_damaged)


def _replay_running(*, rebuild: bool, skip_damaged: bool) -> Restored:
    with Console().step("journal") as step:
        return _replayed(load_settings(), step, rebuild=rebuild, skip_damaged=skip_damaged)


def _replayed(
    settings: Settings, step: Step, *, rebuild: bool, skip_damaged: bool, backup: str | None = None
) -> Restored:
    from minitoolstream.services.restore_backup import replay_journal

    restored = _with_core(
        settings,
        lambda core: replay_journal(core, rebuild=rebuild, skip_damaged=skip_damaged, progress=step.update),
    )
    step.done(f"{restored.segments} segments" + (f" behind backup {backup}" if backup else ""))
    return restored


def _fetch(settings: Settings, backup_id: str | None, folder: Path | None, target: Path, step: Step) -> Manifest:
    from minitoolstream.services.restore_backup import fetch_snapshot, find_backup

    async def fetch(core: Core) -> Manifest:
        place = _place(core, folder)
        manifest = await find_backup(place, backup_id)
        await fetch_snapshot(place, manifest, target, step.update)
        return manifest

    manifest = _with_core(settings, fetch)
    step.done(f"{manifest.size} bytes of {_when(manifest.at)}")
    return manifest


def _get_files(backup_id: str | None, folder: Path | None, target: Path, as_json: bool) -> None:
    if target.is_dir() and any(target.iterdir()):
        raise MtsError("recovery_conflict", f"{target} is not empty: give an empty folder, or one to be made")
    with Console().step("snapshot") as step:
        manifest = _fetch(load_settings(), backup_id, folder, target, step)
    path = str(target / manifest.snapshot)
    emit(as_json, {"backup": manifest.id, "snapshot": path}, path)


def _decide(adopt: bool, as_json: bool) -> None:
    from minitoolstream.services.adopt_orphans import adopt_orphans, discard_orphans

    with Console().step("orphans") as step:
        decided: Decided = _with_core(
            load_settings(), lambda core: (adopt_orphans if adopt else discard_orphans)(core, step.update)
        )
        step.done("decided")
    if adopt:
        text = f"{decided.messages} messages of {decided.objects} objects are visible again, under new sequences"
        if decided.left:
            why = "they are older than the journal's end, or do not tell what they are"
            text += f"\n{len(decided.left)} objects stay as they are: {why}{_some(decided.left)}"
    else:
        text = f"{decided.objects} objects are in the trash, {decided.uploads_ended} open uploads were ended"
    emit(as_json, asdict(decided), text)


def _show(restored: Restored, as_json: bool) -> None:
    emit(as_json, asdict(restored), lambda: "\n".join(_told(restored)))


def _told(restored: Restored) -> list[str]:
    """What came back, then what did not."""
    until = f", written {_when(restored.journal_until)}" if restored.journal_until else ""
    lines = [
        f"restored: {restored.extents} extents, up to sequence {restored.last_sequence}{until}",
        f"new messages follow sequence {restored.continues_behind}: none that was ever given is given again",
    ]
    if restored.orphans:
        lines.append(
            f"not restored: {len(restored.orphans)} payloads that came after the journal's end{_some(restored.orphans)}"
        )
        lines.append("`mts restore --adopt` makes messages of them, `mts restore --discard` deletes them")
    else:
        lines.append("every payload in the bucket has its message; `mts restore --discard` ends the restore")
    for found, what in ((restored.dropped, "were left out"), (restored.missing, "are there")):
        if found:
            names = [f"{sequence} {name}" for sequence, name in found]
            lines.append(f"not restorable: {len(found)} extents whose payload is gone {what}{_some(names)}")
    if restored.damaged:
        ranges = [f"{first} to {last}" for first, last in restored.damaged_ranges]
        lines.append(f"not restorable: sequences of damaged segments{_some(ranges)}")
    if restored.uploads_held:
        lines.append(f"{restored.uploads_held} uploads were open or waiting when the backup was made; they wait too")
    return lines


def _some(items: list[str]) -> str:
    shown = "".join(f"\n  {item}" for item in items[:_SHOWN])
    more = len(items) - _SHOWN
    return f":{shown}" + (f"\n  and {more} more (--json lists all)" if more > 0 else "")


COMMANDS: list[click.Command] = [backup, restore, rebuild]
