"""Receipts: read, waited for, answered when the host stops."""

from __future__ import annotations

import asyncio

import pytest

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.subject import new_id
from minitoolstream.domain.upload import State
from minitoolstream.ports import Changes
from minitoolstream.services.commit_uploads import commit_created
from minitoolstream.services.get_receipt import get_receipt
from minitoolstream.services.watch_changes import Watcher
from tests.core_kit import CoreKit, core_kit

LONG = 20.0


async def waiting(kit: CoreKit, upload_id: str) -> asyncio.Task[State]:
    """A receipt that has begun to wait."""

    async def state() -> State:
        return (await get_receipt(kit.core, upload_id, LONG)).state

    task = asyncio.create_task(state())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_without_a_wait_the_receipt_says_what_is() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    assert (await get_receipt(kit.core, upload.id)).state is State.OPEN


@pytest.mark.parametrize("wait", [0, 0.01])
async def test_nobody_knows_an_upload_that_was_never_made(wait: float) -> None:
    kit = core_kit()
    with pytest.raises(MtsError) as caught:
        await get_receipt(kit.core, new_id(1), wait)
    assert caught.value.code == "not_found"
    await kit.core.watcher.close()


async def test_a_waiting_receipt_is_woken_by_the_commit() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    receipt = await waiting(kit, upload.id)
    await commit_created(kit.core, kit.put(upload, b"ok"))
    assert await asyncio.wait_for(receipt, 5) is State.COMMITTED
    await kit.core.watcher.close()


async def test_every_way_to_end_wakes_the_receipt() -> None:
    kit = core_kit()
    first, second = [(await kit.ticket(1, producer_id="p", seqno=n)).upload for n in (1, 2)]
    receipts = [await waiting(kit, upload.id) for upload in (first, second, second)]
    await commit_created(kit.core, kit.put(second, b"2"))
    assert not any(receipt.done() for receipt in receipts)
    await kit.metadata.abort_upload(first.id)
    states = await asyncio.wait_for(asyncio.gather(*receipts), 5)
    assert states == [State.ABORTED, State.COMMITTED, State.COMMITTED]
    await kit.core.watcher.close()


async def test_a_receipt_that_waited_in_vain_says_what_is() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    assert (await get_receipt(kit.core, upload.id, 0.01)).state is State.OPEN
    await kit.core.watcher.close()


async def test_a_host_that_stops_answers_those_who_wait() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    receipt = await waiting(kit, upload.id)
    kit.core.draining.set()
    assert await asyncio.wait_for(receipt, 5) is State.OPEN
    assert (await get_receipt(kit.core, upload.id, LONG)).state is State.OPEN
    await kit.core.watcher.close()


async def test_watching_goes_on_when_the_metadata_store_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitoolstream.services.watch_changes._PAUSE_AFTER_FAILURE", 0.001)
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    watcher = Watcher(kit.metadata, kit.core.draining)
    wait_for_changes, failed = kit.metadata.wait_for_changes, asyncio.Event()

    async def watched(cursor: tuple[str, int], timeout: float) -> Changes:
        try:
            return await wait_for_changes(cursor, timeout)
        except MtsError:
            failed.set()
            raise

    monkeypatch.setattr(kit.metadata, "wait_for_changes", watched)
    kit.metadata.down = True
    with watcher.watch(upload.id) as changed:
        await asyncio.wait_for(failed.wait(), 5)
        assert not changed.is_set()
        kit.metadata.down = False
        await asyncio.wait_for(changed.wait(), 5)
    await watcher.close()
