"""One contract, two stores: ceiling and journal of the fake that services are tested with, and of Tarantool."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.adapters.memory.metadata import MemoryMetadata
from minitoolstream.adapters.memory.recovery import MemoryJournal
from minitoolstream.adapters.tarantool.recovery import TarantoolJournal
from minitoolstream.domain.pack import InlineMessage, build_pack
from minitoolstream.domain.subject import new_id, pack_name
from minitoolstream.ports import JournalStep, JournalStore, MetadataStore
from tests.clocked_tarantool import ClockedMetadata, settings_for, start_clocked_tarantool
from tests.core_kit import settings

BEYOND = 2**53 + 1
TOP = 2**62


@dataclass
class Kit:
    metadata: MetadataStore
    journal: JournalStore
    advance: Callable[[float], Awaitable[None]]
    first: int
    """What the first sequence follows."""

    async def publish(self, count: int = 1) -> str:
        pack = build_pack([InlineMessage("orders", b"data", "text/plain")] * count)
        name = pack_name(new_id(await self.metadata.now_ms()))
        await self.metadata.commit_pack(name, pack.groups)
        return name

    async def round(self, limit: int = 1000, *, checkpoint: bool = False) -> tuple[list[JournalStep], int]:
        """All steps of a round, confirmed; and its number."""
        steps: list[JournalStep] = []
        position: Mapping[str, Any] | None = None
        while not steps or not steps[-1].complete:
            steps.append(await self.journal.read_journal(position, limit, checkpoint=checkpoint))
            position = steps[-1].position
        assert position is not None
        number = await self.journal.plan_segment(position["number"])
        assert number is not None
        assert await self.journal.ack_segment(number, position, complete=True)
        return steps, number


@pytest.fixture(params=["memory", "tarantool", "tarantool beyond 2**53"])
async def kit(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kit]:
    if request.param == "memory":
        memory = MemoryMetadata(settings())

        async def advance(seconds: float) -> None:
            memory.clock.advance(seconds)

        yield Kit(memory, MemoryJournal(memory), advance, 0)
        return
    last = BEYOND if "beyond" in request.param else 0
    server = start_clocked_tarantool(tmp_path, last)
    real = ClockedMetadata(settings_for(server, tmp_path))
    yield Kit(real, TarantoolJournal(real.connection), real.advance, last)
    await real.close()
    server.stop()


async def test_a_ceiling_is_planned_then_raised_and_never_goes_down(kit: Kit) -> None:
    await kit.journal.plan_ceiling(TOP + 7)
    assert (await kit.journal.position()).planned == TOP + 7
    assert await kit.journal.raise_ceiling(TOP + 7) == TOP + 7
    assert await kit.journal.raise_ceiling(TOP + 1) == TOP + 7
    await kit.journal.plan_ceiling(TOP + 2)
    position = await kit.journal.position()
    assert (position.top, position.planned) == (TOP + 7, TOP + 7)


async def test_the_position_tells_what_was_given(kit: Kit) -> None:
    await kit.publish(3)
    position = await kit.journal.position()
    assert (position.given, position.number, position.recovery) == (kit.first + 3, 0, None)


async def test_a_store_that_is_behind_its_bucket_says_so_until_it_is_mended(kit: Kit) -> None:
    assert await kit.journal.need_recovery("the bucket is ahead") == "needed"
    assert await kit.journal.need_recovery("another reason") == "needed"
    position = await kit.journal.position()
    assert (position.recovery, position.recovery_reason) == ("needed", "the bucket is ahead")


async def test_a_round_holds_each_message_once_and_the_next_what_came_since(kit: Kit) -> None:
    await kit.publish(2)
    await kit.publish(1)
    steps, number = await kit.round()
    assert [row[0] for step in steps for row in step.rows] == [kit.first + 2, kit.first + 3]
    assert number == 1

    await kit.publish(1)
    steps, number = await kit.round()
    assert [row[0] for step in steps for row in step.rows] == [kit.first + 4]
    assert number == 2


async def test_small_steps_hold_the_same_as_large_ones(kit: Kit) -> None:
    for _ in range(7):
        await kit.publish(1)
    steps, _ = await kit.round(3)
    assert [row[0] - kit.first for step in steps for row in step.rows] == list(range(1, 8))
    assert len(steps) > 2
    assert [step.complete for step in steps] == [False] * (len(steps) - 1) + [True]


async def test_what_was_read_and_not_confirmed_is_read_again(kit: Kit) -> None:
    await kit.publish(1)
    first = await kit.journal.read_journal(None, 1000)
    steps, _ = await kit.round()
    assert [row[0] for row in first.rows] == [row[0] for step in steps for row in step.rows]
    assert first.position["checkpoint"] is True, "after a start everything is to be written"


async def test_a_checkpoint_is_what_was_asked_for(kit: Kit) -> None:
    await kit.round()
    plain, _ = await kit.round()
    asked, _ = await kit.round(checkpoint=True)
    assert plain[-1].position["checkpoint"] is False
    assert asked[-1].position["checkpoint"] is True


async def test_a_segment_has_one_writer(kit: Kit) -> None:
    await kit.publish(1)
    one = await kit.journal.read_journal(None, 1000)
    other = await kit.journal.read_journal(None, 1000)
    number = await kit.journal.plan_segment(one.position["number"])
    assert number == 1
    assert await kit.journal.plan_segment(other.position["number"]) is None
    assert not await kit.journal.ack_segment(number + 1, other.position, complete=True)
    assert await kit.journal.ack_segment(number, one.position, complete=True)


async def test_the_lag_is_what_is_not_confirmed_and_how_old_it_is(kit: Kit) -> None:
    await kit.round()
    lag = await kit.journal.journal_lag()
    assert (lag.behind, lag.seconds, lag.waiting) == (0, 0, False)
    await kit.publish(3)
    await kit.advance(90)
    lag = await kit.journal.journal_lag()
    assert lag.behind == 3
    assert 90 <= lag.seconds <= 92
    await kit.round()
    lag = await kit.journal.journal_lag()
    assert (lag.behind, lag.seconds, lag.upto) == (0, 0, kit.first + 3)


async def test_a_range_lives_as_long_as_one_of_its_messages(kit: Kit) -> None:
    name = await kit.publish(3)
    first = kit.first
    ranges = [(first, first + 1), (first + 1, first + 2), (first + 3, first + 9), (first, first)]
    assert await kit.journal.living(ranges) == [True, True, False, False]
    assert await kit.journal.objects_after(0, 10) == [(first + 3, name, False)]
    assert await kit.journal.objects_after(first + 3, 10) == []
