"""Backups of the metadata store: a snapshot, and the journal up to the moment after it. Payloads are not copied: they
lie in the bucket, and stay there at least one backup interval longer than their rows (rule 25)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from minitoolstream.domain.backup import MANIFEST, VERSION, Manifest, Piece, ids_of, made_at_ms, piece_of, read_manifest
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.limits import MIB
from minitoolstream.domain.subject import new_id
from minitoolstream.services.backup_places import BackupPlace, BucketPlace
from minitoolstream.services.core import Core
from minitoolstream.services.progress import Progress, silent
from minitoolstream.services.write_journal import finish_journal

PIECE_BYTES = 32 * MIB
READ_BYTES = 4 * MIB
_ABANDONED_MS = 86_400_000


@dataclass(slots=True)
class Made:
    """What a run of the schedule did."""

    made: int = 0
    pruned: int = 0

    def counts(self) -> dict[str, int]:
        return {"made": self.made, "pruned": self.pruned}


async def make_backup(core: Core, place: BackupPlace, progress: Progress = silent) -> Manifest:
    """The manifest of a new backup; it is written last, so one without it is none."""
    at = await core.clock.now_ms()
    backup = new_id(at)
    progress("making a snapshot")
    snapshot, size = await core.restores.begin_backup()
    try:
        pieces = await _copy(core, place, backup, (snapshot, size), progress)
    finally:
        await core.restores.end_backup()
    progress("writing the journal")
    await finish_journal(core)
    lag = await core.journal.journal_lag()
    manifest = Manifest(VERSION, backup, at, snapshot, size, lag.number, lag.upto, pieces)
    await place.put(f"{backup}/{MANIFEST}", msgspec.json.format(msgspec.json.encode(manifest)))
    return manifest


async def _copy(
    core: Core, place: BackupPlace, backup: str, snapshot: tuple[str, int], progress: Progress
) -> list[Piece]:
    name, size = snapshot
    pieces: list[Piece] = []
    done = 0
    while done < size:
        content = bytearray()
        while done < size and len(content) < PIECE_BYTES:
            read = await core.restores.read_backup(name, done, min(READ_BYTES, size - done))
            if not read:
                raise unavailable("the snapshot ended early; make the backup again")
            content += read
            done += len(read)
        piece = piece_of(name, len(pieces), bytes(content))
        await place.put(f"{backup}/{piece.name}", bytes(content))
        pieces.append(piece)
        progress(f"copying: {done * 100 // size} %")
    return pieces


async def list_backups(place: BackupPlace) -> list[Manifest]:
    """Oldest first. One whose manifest cannot be read is left out: nothing can be restored from it."""
    found = []
    for backup in ids_of(await place.names())[0]:
        try:
            found.append(read_manifest(backup, await place.get(f"{backup}/{MANIFEST}")))
        except MtsError as error:
            if error.retryable:
                raise
    return found


async def backup_if_due(core: Core) -> Made:
    """What the schedule does: a backup when the newest is old enough, and away with those beyond the number to keep."""
    made, place = Made(), BucketPlace(core.payloads)
    if not core.settings["backup.interval"]:
        return made
    now = await core.clock.now_ms()
    # One that seems to come yet is of a clock that stood ahead: how old it is, nobody knows.
    made_at = [at for at in map(made_at_ms, ids_of(await place.names())[0]) if at <= now]
    if not made_at or now - made_at[-1] >= core.settings["backup.interval"] * 1000:
        await make_backup(core, place)
        made.made = 1
        made.pruned = await prune_backups(core, place)
    return made


async def prune_backups(core: Core, place: BackupPlace) -> int:
    """Delete all but the newest, and what was begun long ago and never finished. Returns how many went."""
    names = await place.names()
    whole, begun = ids_of(names)
    now = await core.clock.now_ms()
    doomed = whole[: -core.settings["backup.keep"]]
    doomed += [backup for backup in begun if now - made_at_ms(backup) > _ABANDONED_MS]
    for backup in doomed:
        files = [name for name in names if name.startswith(f"{backup}/")]
        # The manifest first: from then on it is no backup any more, whatever is left of it.
        await place.delete(sorted(files, key=lambda name: not name.endswith(MANIFEST)))
    return len(doomed)
