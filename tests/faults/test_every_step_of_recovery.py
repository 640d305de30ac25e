"""Killed at every step of a backup, a restore and what follows it: made again it is whole, no number is given twice,
and a check of everything is clean (rules 28 to 30)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.adapters.memory.payloads import MemoryPayloads
from minitoolstream.adapters.tarantool.store import TarantoolMetadata
from minitoolstream.domain.message import messages_of
from minitoolstream.domain.pack import InlineMessage
from minitoolstream.domain.upload import UploadSpec
from minitoolstream.ports import NoMetrics
from minitoolstream.services import delete_messages
from minitoolstream.services.adopt_orphans import adopt_orphans, discard_orphans
from minitoolstream.services.backup_places import BucketPlace
from minitoolstream.services.core import Core
from minitoolstream.services.delete_messages import delete_message
from minitoolstream.services.end_upload import complete_upload
from minitoolstream.services.issue_tickets import Ticket, issue_tickets
from minitoolstream.services.make_backup import list_backups, make_backup
from minitoolstream.services.publish_batch import publish_batch
from minitoolstream.services.publish_inline import publish_inline
from minitoolstream.services.reconcile_uploads import reconcile
from minitoolstream.services.restore_backup import fetch_snapshot, find_backup, replay_journal
from minitoolstream.services.write_journal import finish_journal
from tests.clocked_core import core_on
from tests.clocked_tarantool import settings_for
from tests.faults.test_every_step import check
from tests.fuse import Fuse
from tests.servers import TarantoolServer, start_tarantool

SUBJECT = "orders"
Work = Callable[[Core], Awaitable[Any]]


@dataclass
class Scene:
    """A Tarantool that may lose its disk, and a bucket that stays."""

    server: TarantoolServer
    folder: Path
    payloads: MemoryPayloads

    async def run(self, work: Work, fuse: Fuse | None = None) -> bool:
        """In a process of its own; whether it came to its end."""
        settings = settings_for(self.server, self.folder, {"MTS_TRASH_GRACE": "0s"})
        metadata = TarantoolMetadata(settings, NoMetrics())
        core = core_on(settings, metadata, self.payloads, fuse)
        try:
            if fuse is None:
                await work(core)
                return True
            return await fuse.survives(_coroutine(work, core))
        finally:
            await metadata.close()

    @property
    def data(self) -> Path:
        assert self.server.launch.folder is not None
        return self.server.launch.folder

    def lose_disk(self) -> None:
        self.server.kill()
        shutil.rmtree(self.data)
        self.data.mkdir()

    def restart(self) -> None:
        self.server.kill()
        self.server.start()


async def _coroutine(work: Work, core: Core) -> None:
    await work(core)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    payloads = MemoryPayloads()
    made = Scene(start_tarantool(tmp_path / "server"), tmp_path, payloads)
    yield made
    made.server.stop()


async def publish(core: Core, *names: str) -> list[int]:
    results = await publish_batch(core, [InlineMessage(SUBJECT, name.encode(), "text/plain") for name in names])
    return [result.receipt.sequence or 0 for result in results if result.receipt]


async def found(core: Core) -> list[int]:
    """The sequences of all messages."""
    page = await core.metadata.get_messages(SUBJECT, 1, 1000)
    return [int(item.message.sequence) for extent in page.extents for item in messages_of(extent)]


async def back_up(core: Core) -> None:
    await make_backup(core, BucketPlace(core.payloads))


async def history(core: Core) -> None:
    """Before the backup, in the journal behind it, deleted for good, and lost: what nobody wrote down."""
    await core.ceiling.keep()
    early = await publish(core, "a", "b", "c")
    await publish_inline(core, InlineMessage(SUBJECT, b"named", "text/plain", producer_id="till", seqno=1))
    await back_up(core)
    await publish(core, "d", "e")
    await delete_message(core, early[1], "me", "law")
    await finish_journal(core)
    await publish(core, "lost")


KEPT = [1, 3, 4, 5, 6]


async def settled(core: Core, folder: Path, kept: list[int], where: str) -> None:
    """Whatever comes next, all is as it should be."""
    sequences = await found(core)
    assert sequences[: len(kept)] == kept, where
    (fresh,) = await publish(core, "fresh")
    assert fresh > 7, f"{where}: a number was given twice"
    again = await publish_inline(core, InlineMessage(SUBJECT, b"named", "text/plain", producer_id="till", seqno=1))
    assert again.receipt
    assert (again.receipt.duplicate, again.receipt.sequence) == (True, 4), where
    await reconcile(core)
    report = await check(core, folder)
    assert (report.verdict, report.deletions, report.trash) == ("clean", 0, 0), (where, report.faults)


def every_step(scene: Scene, before: Callable[[], Awaitable[None]], work: Work, after: Work, *, least: int) -> None:
    """`before`, then the work, killed at one step after the other, then the work again and `after`. Where it is killed
    behind a step, Tarantool is killed with it."""

    async def run() -> None:
        for behind in (False, True):
            step, survived = 0, False
            while not survived:
                step += 1
                await before()
                fuse = Fuse(step, after=behind)
                survived = await scene.run(work, fuse)
                if behind and not survived:
                    scene.restart()
                if not survived:
                    await scene.run(work)
                await scene.run(after)
            assert step > least, "there were fewer steps than there are"

    asyncio.run(run())


def test_a_backup_killed_at_any_step_is_none_or_whole_and_the_next_one_works(scene: Scene, tmp_path: Path) -> None:
    async def one_more(core: Core) -> None:
        await core.ceiling.keep()
        await publish(core, "x", "y")

    async def before() -> None:
        await scene.run(one_more)

    async def after(core: Core) -> None:
        place = BucketPlace(core.payloads)
        newest = (await list_backups(place))[-1]
        path = await fetch_snapshot(place, newest, tmp_path / "copy")
        assert path.read_bytes() == (scene.data / newest.snapshot).read_bytes()
        assert newest.upto == max(await found(core))
        report = await check(core, tmp_path)
        assert report.verdict == "clean", report.faults

    every_step(scene, before, back_up, after, least=10)


async def _fetch(scene: Scene, core: Core) -> None:
    place = BucketPlace(core.payloads)
    await fetch_snapshot(place, await find_backup(place, None), scene.data)


@pytest.mark.parametrize("rebuild", [False, True], ids=["restore", "rebuild"])
def test_a_restore_killed_at_any_step_is_whole_when_it_is_run_again(
    scene: Scene, tmp_path: Path, rebuild: bool
) -> None:
    asyncio.run(scene.run(history))
    bucket = dict(scene.payloads.objects)

    async def before() -> None:
        scene.payloads.objects = dict(bucket)
        scene.lose_disk()
        if not rebuild:
            await scene.run(lambda core: _fetch(scene, core))
        scene.server.start()

    async def work(core: Core) -> None:
        if (await core.journal.position()).recovery != "pending":  # killed behind its last step, it is done
            await replay_journal(core, rebuild=rebuild)

    async def after(core: Core) -> None:
        await discard_orphans(core)
        await settled(core, tmp_path, KEPT, "")

    every_step(scene, before, work, after, least=15)


def test_what_was_purged_before_the_journal_knew_it_is_not_adopted(scene: Scene, tmp_path: Path) -> None:
    """Its record tells of it, and its payloads were not gone yet when the disk was lost."""

    async def before(core: Core) -> None:
        await core.ceiling.keep()
        await publish(core, "journalled")
        await finish_journal(core)
        shared = [(SUBJECT, b"kept"), ("purged", b"secret"), ("purged", b"secret too")]
        await publish_batch(core, [InlineMessage(subject, data, "text/plain") for subject, data in shared])
        await publish_batch(core, [InlineMessage("purged", b"secret of its own", "text/plain")])
        (ticket,) = await issue_tickets(core, "purged", [UploadSpec(6, "text/plain")])
        assert isinstance(ticket, Ticket)
        scene.payloads.client_put(ticket.upload.object_name, b"secret")
        await complete_upload(core, ticket.upload.id)
        await delete_messages._record(core, await core.deletions.purge_subject("purged", "me", "law"))

    async def after(core: Core) -> None:
        await replay_journal(core, rebuild=True)
        adopted = await adopt_orphans(core)
        assert (adopted.messages, adopted.left) == (1, [])
        assert (await core.metadata.get_messages("purged", 1, 10)).extents == []
        await reconcile(core)
        assert len(await found(core)) == 2
        report = await check(core, tmp_path)
        assert (report.verdict, report.deletions, report.trash) == ("clean", 0, 0), report.faults
        assert not [name for name, stored in scene.payloads.objects.items() if b"secret" in stored.body]

    asyncio.run(scene.run(before))
    scene.lose_disk()
    scene.server.start()
    asyncio.run(scene.run(after))


@pytest.mark.parametrize("decide", [adopt_orphans, discard_orphans])
def test_a_decision_killed_at_any_step_is_made_when_it_is_asked_for_again(
    scene: Scene, tmp_path: Path, decide: Callable[[Core], Awaitable[Any]]
) -> None:
    asyncio.run(scene.run(history))
    bucket = dict(scene.payloads.objects)

    async def before() -> None:
        scene.payloads.objects = dict(bucket)
        scene.lose_disk()
        scene.server.start()
        await scene.run(lambda core: replay_journal(core, rebuild=True))

    async def work(core: Core) -> None:
        if (await core.journal.position()).recovery == "pending":
            await decide(core)

    async def after(core: Core) -> None:
        adopted = len(await found(core)) - len(KEPT)
        assert adopted == (1 if decide is adopt_orphans else 0)
        await settled(core, tmp_path, KEPT, "")

    every_step(scene, before, work, after, least=4)
