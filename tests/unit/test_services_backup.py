"""Backups on fakes: what is written, kept and pruned."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from minitoolstream.domain.backup import Manifest
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.keys import BACKUP_PREFIX
from minitoolstream.services.backup_places import BackupPlace, BucketPlace, FolderPlace
from minitoolstream.services.make_backup import backup_if_due, list_backups, make_backup, prune_backups
from minitoolstream.services.restore_backup import fetch_snapshot, find_backup
from tests.core_kit import CoreKit, core_kit

DAY = 86_400


@pytest.fixture
def kit() -> CoreKit:
    return core_kit()


@pytest.fixture(params=["bucket", "folder"])
def place(request: pytest.FixtureRequest, kit: CoreKit, tmp_path: Path) -> BackupPlace:
    return BucketPlace(kit.payloads) if request.param == "bucket" else FolderPlace(tmp_path / "backups")


async def made(kit: CoreKit, place: BackupPlace) -> Manifest:
    kit.advance(1)
    return await make_backup(kit.core, place)


async def test_a_backup_comes_back_as_it_was(
    kit: CoreKit, place: BackupPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitoolstream.services.make_backup.PIECE_BYTES", 4)
    monkeypatch.setattr("minitoolstream.services.make_backup.READ_BYTES", 3)
    shown: list[str] = []
    await make_backup(kit.core, place, shown.append)

    manifest = await find_backup(place, None)
    path = await fetch_snapshot(place, manifest, tmp_path / "data")

    assert path.read_bytes() == kit.snapshots.content
    assert len(manifest.pieces) > 1
    assert manifest.pieces[0].sha256 == hashlib.sha256(kit.snapshots.content[: manifest.pieces[0].size]).hexdigest()
    assert not kit.snapshots.reading, "the file may be removed by its server again"
    assert shown[-1] == "writing the journal"
    assert list((tmp_path / "data").iterdir()) == [path]


async def test_a_backup_that_failed_is_none(kit: CoreKit, place: BackupPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(name: str, offset: int, size: int) -> bytes:
        raise unavailable("Tarantool does not answer")

    monkeypatch.setattr(kit.snapshots, "read_backup", broken)
    with pytest.raises(MtsError):
        await make_backup(kit.core, place)
    assert not kit.snapshots.reading
    assert await list_backups(place) == []
    with pytest.raises(MtsError, match="there is no backup") as refused:
        await find_backup(place, None)
    assert "mts rebuild" in refused.value.details["hint"]


async def test_a_snapshot_that_ends_early_is_no_backup(kit: CoreKit, monkeypatch: pytest.MonkeyPatch) -> None:
    async def short(name: str, offset: int, size: int) -> bytes:
        return b""

    monkeypatch.setattr(kit.snapshots, "read_backup", short)
    with pytest.raises(MtsError, match="ended early"):
        await make_backup(kit.core, BucketPlace(kit.payloads))


async def test_a_piece_that_was_changed_is_not_taken(kit: CoreKit, tmp_path: Path) -> None:
    place = BucketPlace(kit.payloads)
    manifest = await make_backup(kit.core, place)
    kit.payloads.objects[f"{BACKUP_PREFIX}{manifest.id}/{manifest.pieces[0].name}"].body = b"other text"
    with pytest.raises(MtsError, match="is damaged") as refused:
        await fetch_snapshot(place, manifest, tmp_path)
    assert refused.value.code == "checksum_mismatch"
    assert not (tmp_path / manifest.snapshot).exists()


async def test_the_newest_is_taken_unless_one_is_named(kit: CoreKit, place: BackupPlace) -> None:
    first, second = await made(kit, place), await made(kit, place)
    assert [one.id for one in await list_backups(place)] == [first.id, second.id]
    assert (await find_backup(place, None)).id == second.id
    assert (await find_backup(place, first.id)).id == first.id
    with pytest.raises(MtsError, match="there is no backup nonsense"):
        await find_backup(place, "nonsense")


async def test_the_oldest_go_and_what_was_never_finished(kit: CoreKit, place: BackupPlace) -> None:
    kit.core.settings = kit.core.settings.with_values(backup__keep=2)
    backups = [await made(kit, place) for _ in range(4)]
    unfinished = (await made(kit, place)).id
    await place.delete([name for name in await place.names() if name.startswith(unfinished)])
    await place.put(f"{unfinished}/{7:020}.snap.00000", b"half")

    assert await prune_backups(kit.core, place) == 2
    assert [one.id for one in await list_backups(place)] == [one.id for one in backups[2:]]
    assert any(name.startswith(unfinished) for name in await place.names()), "it may still be being written"
    kit.advance(DAY + 1)
    assert await prune_backups(kit.core, place) == 1


async def test_the_schedule_makes_one_a_day(kit: CoreKit) -> None:
    assert (await backup_if_due(kit.core)).made == 1
    kit.advance(DAY - 10)
    assert (await backup_if_due(kit.core)).made == 0
    kit.advance(20)
    assert (await backup_if_due(kit.core)).made == 1
    kit.core.settings = kit.core.settings.with_values(backup__interval=0.0)
    kit.advance(3 * DAY)
    assert (await backup_if_due(kit.core)).made == 0


async def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(kit: CoreKit, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(MtsError, match="cannot write") as refused:
        await make_backup(kit.core, FolderPlace(tmp_path / "file" / "backups"))
    assert refused.value.code == "cannot_write"


async def test_a_backup_of_a_clock_that_stood_ahead_does_not_keep_others_from_being_made(kit: CoreKit) -> None:
    kit.advance(365 * DAY)
    assert (await backup_if_due(kit.core)).made == 1
    kit.advance(-365 * DAY)

    assert [(await backup_if_due(kit.core)).made for _ in range(2)] == [1, 0]
    kit.advance(DAY + 1)  # the one before is some real milliseconds younger than its clock
    assert (await backup_if_due(kit.core)).made == 1
