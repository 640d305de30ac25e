"""Killed at every step of a message's way: the others go on, nothing is lost, doubled or left over, and a check of
everything is clean (rules 1, 2, 23)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from minitoolstream.domain.consistency import Report
from minitoolstream.services.check_consistency import Options, check_consistency
from minitoolstream.services.core import Core
from minitoolstream.services.fsck_book import Book
from minitoolstream.services.manage_retention import apply_settings
from minitoolstream.services.reconcile_uploads import reconcile
from minitoolstream.services.run_ticks import run_ticks
from minitoolstream.services.sweep_expired import sweep
from minitoolstream.services.write_journal import write_journal
from tests.clocked_core import Clocked, core_on
from tests.clocked_tarantool import ClockedMetadata
from tests.faults.operations import OPERATIONS, PART, Operation, stored
from tests.fuse import Fuse

LIVES = {
    "MTS_TRASH_GRACE": "0s",
    "MTS_TTL_DEFAULT": "10y",
    "MTS_UPLOADS_PART_SIZE": str(PART),
    "MTS_UPLOADS_TICKET_LIFE": "60s",
    "MTS_UPLOADS_PRODUCER_TICKET_LIFE": "60s",
    "MTS_UPLOADS_PUT_GRACE": "10s",
    "MTS_PACKS_GRACE": "60s",
}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Clocked]:
    made = Clocked(tmp_path, LIVES)
    yield made
    made.server.stop()


async def check(core: Core, folder: Path) -> Report:
    book = Book(folder / "book.sqlite")
    try:
        return await check_consistency(core, book, Options(deep=True), lambda _what, _done, _total: None)
    finally:
        book.delete()


async def recover(scene: Clocked) -> None:
    """What the schedule does, and time."""
    for _ in range(3):
        await run_ticks(scene.core)
        await sweep(scene.core)
        await write_journal(scene.core)
        await reconcile(scene.core)
        await scene.pass_time(200)


async def run_fused(scene: Clocked, operation: Operation, fuse: Fuse) -> bool:
    """In a process of its own; whether it came to its end."""
    metadata = ClockedMetadata(scene.settings)
    core = core_on(scene.settings, metadata, scene.payloads, fuse)
    try:
        return await fuse.survives(operation.run(core))
    finally:
        await metadata.close()


async def kill_at(scene: Clocked, operation: Operation, fuse: Fuse, folder: Path) -> bool:
    await operation.prepare(scene)
    survived = await run_fused(scene, operation, fuse)
    where = "" if survived else fuse.place
    if not survived:
        await operation.again(scene.core)
    await recover(scene)
    assert await stored(scene, operation.subject) in operation.left(), where
    status = await scene.metadata.status()
    assert (status["uploads"], status["trash"]) == (0, 0), where
    assert scene.payloads.multiparts == {}, where
    report = await check(scene.core, folder)
    assert (report.verdict, report.objects.waiting.count, report.deletions) == ("clean", 0, 0), (where, report.faults)
    return survived


@pytest.mark.parametrize("kind", OPERATIONS, ids=lambda kind: kind.__name__)
def test_killed_at_any_step_nothing_is_lost_or_left(scene: Clocked, kind: type[Operation], tmp_path: Path) -> None:
    async def every_step() -> None:
        await apply_settings(scene.core)
        unharmed = Fuse()
        assert await kill_at(scene, kind("unharmed"), unharmed, tmp_path)
        assert set(unharmed.steps) == kind.steps, "these are its steps: killed at each of them, what must be left?"
        for after in (False, True):
            step, survived = 0, False
            while not survived:
                step += 1
                survived = await kill_at(scene, kind(f"{after}-{step}"), Fuse(step, after=after), tmp_path)
            assert step > len(unharmed.steps), "each was met"
        await scene.close()

    asyncio.run(every_step())
