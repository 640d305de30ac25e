"""Compaction: small objects become packs, and whatever happens meanwhile, nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from minitoolstream.domain.compaction import worth_moving
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import Extent
from minitoolstream.services.commit_uploads import commit_created
from minitoolstream.services.compact_rows import compact_rows
from tests.core_kit import CoreKit, core_kit

SUBJECT = "orders"


@pytest.fixture
def kit() -> CoreKit:
    return core_kit()


async def store(kit: CoreKit, *bodies: bytes) -> None:
    for body in bodies:
        ticket = await kit.ticket(len(body))
        await commit_created(kit.core, kit.put(ticket.upload, body))


async def rows(kit: CoreKit) -> list[Extent]:
    return (await kit.metadata.get_messages(SUBJECT, 1, 1000, whole=True)).extents


async def payload(kit: CoreKit, row: Extent) -> bytes:
    assert row.byte_from is not None
    return await kit.payloads.get_range(row.object_name, row.byte_from + 8, row.byte_from + 7 + row.size)


async def test_small_objects_become_one_pack_with_the_same_payloads(kit: CoreKit) -> None:
    bodies = [b"one", b"three", b"seven!!"]
    await store(kit, *bodies)
    done = await compact_rows(kit.core, await rows(kit))
    after = await rows(kit)
    assert (done.rows, done.messages, done.bytes, done.left) == (3, 3, 15, [])
    assert {row.object_name for row in after} == {done.target}
    assert [await payload(kit, row) for row in after] == bodies


async def test_a_payload_that_is_damaged_or_gone_stays_out(kit: CoreKit) -> None:
    await store(kit, b"one", b"two", b"three", b"four")
    before = await rows(kit)
    kit.payloads.objects[before[0].object_name].body = b"longer"
    del kit.payloads.objects[before[2].object_name]
    done = await compact_rows(kit.core, before)
    assert sorted(done.left) == [(1, "size_mismatch"), (3, "payload_missing")]
    assert [row.object_name == done.target for row in await rows(kit)] == [False, True, False, True]


async def test_a_message_deleted_meanwhile_lives_on_nowhere(kit: CoreKit) -> None:
    await store(kit, b"one", b"two")
    before = await rows(kit)
    await kit.core.deletions.delete_message(2, "api", "")
    done = await compact_rows(kit.core, before)
    assert done.target is None
    assert await rows(kit) == before[:1]
    packs = [name for name in kit.payloads.objects if name.startswith("_mts/packs/")]
    assert packs == [name for name in kit.metadata.trash if name.startswith("_mts/packs/")]


async def test_a_store_that_is_away_is_an_error_and_changes_nothing(kit: CoreKit) -> None:
    await store(kit, b"one", b"two")
    before = await rows(kit)
    kit.payloads.down = True
    with pytest.raises(MtsError) as error:
        await compact_rows(kit.core, before)
    assert error.value.code == "unavailable"
    assert await rows(kit) == before


def row(sequence: int, size: int = 10, name: str = "", at: int = 1000, **more: Any) -> Extent:
    return Extent(sequence, {}, name or f"m/{sequence}", SUBJECT, at, 0, sequence, 1, size, **more)


def test_rows_are_worth_moving_that_are_small_and_alone_in_their_objects() -> None:
    found = list(
        worth_moving(
            [
                row(1),
                row(2, size=5000),
                row(3, name="shared"),
                row(4, name="shared"),
                row(5, missing=True),
                row(6, unverified=True),
                row(7),
                row(8, at=9000),
                row(9, at=9001),
                row(10, at=20000),
            ],
            small=1000,
            seconds=3600,
        )
    )
    assert [[one.sequence for one in group] for group in found] == [[1, 7], [8, 9]]


def test_a_pack_ends_when_it_is_full() -> None:
    groups = list(worth_moving([row(n, size=100) for n in range(1, 1202)], small=1000, seconds=3600, pack_bytes=40_000))
    assert [len(group) for group in groups] == [400, 400, 400]
    assert [len(group) for group in worth_moving([row(n) for n in range(1, 1202)], 1000, 3600)] == [500, 500, 201]
