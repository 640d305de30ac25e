"""The ceiling and the journal on fakes (rules 28 and 29)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from minitoolstream.domain.ceiling import STEP, ceiling_name, highest
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.journal import Segment, decode, encode, segment_name, segments_of
from minitoolstream.domain.keys import CEILING_PREFIX, JOURNAL_PREFIX
from minitoolstream.domain.pack import InlineMessage
from minitoolstream.services.raise_ceiling import Ceiling
from minitoolstream.services.write_journal import prune_journal, write_journal
from tests.core_kit import CoreKit, core_kit

DAY = 86_400


@pytest.fixture
def kit() -> CoreKit:
    return core_kit()


def ceilings(kit: CoreKit) -> list[int]:
    return [int(name.removeprefix(CEILING_PREFIX)) for name in kit.payloads.objects if name.startswith(CEILING_PREFIX)]


def segments(kit: CoreKit) -> list[Segment]:
    names = segments_of(kit.payloads.objects)
    return [decode(one.name, kit.payloads.objects[one.name].body) for one in names]


def lag_shown(kit: CoreKit) -> tuple[float, float]:
    return kit.metrics.gauges["journal_behind"], kit.metrics.gauges["journal_behind_seconds"]


async def publish(kit: CoreKit, count: int = 1) -> None:
    for _ in range(count):
        await kit.core.packer.publish(InlineMessage("orders", b"data", "text/plain"))


async def test_the_bucket_knows_the_ceiling_before_the_store_does(kit: CoreKit) -> None:
    assert await kit.core.ceiling.keep() == STEP
    assert ceilings(kit) == [STEP]

    kit.payloads.down = True
    kit.metadata.order.watermark = STEP - 10
    with pytest.raises(MtsError):
        await kit.core.ceiling.keep()

    assert (await kit.journal.position()).top == STEP


async def test_a_ceiling_that_is_far_away_costs_the_bucket_nothing(kit: CoreKit) -> None:
    await kit.core.ceiling.keep()
    kit.payloads.down = True
    kit.metadata.order.watermark = STEP // 2
    assert await kit.core.ceiling.keep() == STEP


@pytest.mark.parametrize("given", [STEP, 2**53 + 1])
async def test_a_ceiling_that_comes_near_is_raised_and_lower_ones_go(kit: CoreKit, given: int) -> None:
    await kit.core.ceiling.keep()
    kit.metadata.order.watermark = given

    assert await kit.core.ceiling.keep() == given + STEP

    assert ceilings(kit) == [given + STEP]


async def test_a_raise_whose_answer_was_lost_is_made_up_for(kit: CoreKit, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost(target: int) -> int:
        raise unavailable("Tarantool does not answer")

    monkeypatch.setattr(kit.journal, "raise_ceiling", lost)
    with pytest.raises(MtsError):
        await kit.core.ceiling.keep()
    monkeypatch.undo()

    assert await kit.core.ceiling.keep() == STEP
    assert ceilings(kit) == [STEP]


async def test_a_bucket_that_knows_more_closes_the_store(kit: CoreKit) -> None:
    await kit.payloads.put_new(ceiling_name(STEP), b"", content_type="x/y")

    for _ in range(2):
        with pytest.raises(MtsError, match="mts restore") as refused:
            await kit.core.ceiling.keep()
        assert refused.value.code == "unavailable"

    assert (await kit.journal.position()).recovery == "needed"
    assert ceilings(kit) == [STEP]


async def test_a_journal_that_knows_more_closes_the_store(kit: CoreKit) -> None:
    await kit.payloads.put_new(f"{JOURNAL_PREFIX}{1:020}-{0:020}-{5:020}ce", b"", content_type="x/y")
    with pytest.raises(MtsError, match="older than its bucket"):
        await kit.core.ceiling.keep()


async def test_a_bucket_that_lost_its_ceiling_is_told_again(kit: CoreKit) -> None:
    await kit.core.ceiling.keep()
    kit.payloads.objects.clear()
    assert await Ceiling(kit.journal, kit.payloads).keep() == STEP
    assert highest(kit.payloads.objects) == STEP


async def test_what_another_host_wrote_meanwhile_is_no_sign_of_a_lost_disk(
    kit: CoreKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, real = Ceiling(kit.journal, kit.payloads), kit.payloads.list_after

    async def list_after(prefix: str, start_after: str, limit: int) -> Any:
        monkeypatch.undo()
        await other.keep()
        return await real(prefix, start_after, limit)

    monkeypatch.setattr(kit.payloads, "list_after", list_after)
    assert await kit.core.ceiling.keep() == STEP
    assert (await kit.journal.position()).recovery is None


async def test_a_round_holds_what_is_new_and_the_next_one_what_came_since(kit: CoreKit) -> None:
    await publish(kit, 3)
    assert (await write_journal(kit.core)).segments == 1
    await publish(kit, 2)
    assert (await write_journal(kit.core)).segments == 1
    assert (await write_journal(kit.core)).segments == 0

    first, second = segments(kit)
    assert [row[0] for row in first.rows] == [1, 2, 3]
    assert [row[0] for row in second.rows] == [4, 5]
    assert (first.checkpoint, second.checkpoint) == (True, False)
    assert lag_shown(kit) == (0, 0)


async def test_while_the_store_is_down_the_lag_is_told_and_then_made_up_for(kit: CoreKit) -> None:
    await publish(kit, 3)
    kit.payloads.down = True
    kit.advance(30)
    with pytest.raises(MtsError):
        await write_journal(kit.core)
    assert lag_shown(kit) == (3, 30)

    kit.payloads.down = False
    assert (await write_journal(kit.core)).complete
    assert lag_shown(kit) == (0, 0)
    assert sorted(row[0] for one in segments(kit) for row in one.rows) == [1, 2, 3]


async def test_a_segment_whose_confirmation_was_lost_is_written_again(
    kit: CoreKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(number: int, position: Mapping[str, Any], *, complete: bool) -> bool:
        raise unavailable("the host was killed")

    await publish(kit)
    monkeypatch.setattr(kit.journal, "ack_segment", lost)
    with pytest.raises(MtsError):
        await write_journal(kit.core)
    monkeypatch.undo()
    await publish(kit)

    assert (await write_journal(kit.core)).complete

    first, second = segments(kit)
    assert (first.number, [row[0] for row in first.rows]) == (1, [1])
    assert (second.number, [row[0] for row in second.rows]) == (2, [1, 2])


@pytest.mark.parametrize("is_ours", [True, False])
async def test_a_segment_that_is_there_already_counts_when_it_is_this_one(
    kit: CoreKit, monkeypatch: pytest.MonkeyPatch, is_ours: bool
) -> None:
    put_new = kit.payloads.put_new

    async def put_twice(name: str, body: bytes, *, content_type: str) -> None:
        await put_new(name, body if is_ours else b"of another store", content_type=content_type)
        await put_new(name, body, content_type=content_type)

    await publish(kit)
    monkeypatch.setattr(kit.payloads, "put_new", put_twice)
    if is_ours:
        assert (await write_journal(kit.core)).complete
        return
    with pytest.raises(MtsError) as refused:
        await write_journal(kit.core)
    assert refused.value.code == "already_exists"
    assert lag_shown(kit)[0] > 0


async def test_of_two_writers_at_once_one_gives_up(kit: CoreKit, monkeypatch: pytest.MonkeyPatch) -> None:
    await publish(kit)
    real = kit.journal.plan_segment

    async def plan(seen: int) -> int | None:
        await real(seen)
        return await real(seen)

    monkeypatch.setattr(kit.journal, "plan_segment", plan)
    written = await write_journal(kit.core)
    assert (written.segments, written.complete) == (0, False)
    assert segments(kit) == []


async def test_many_rows_become_several_segments_and_the_last_one_is_complete(
    kit: CoreKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitoolstream.services.write_journal._ROWS_AT_ONCE", 2)
    monkeypatch.setattr("minitoolstream.services.write_journal._STEPS_A_SEGMENT", 2)
    await publish(kit, 9)

    assert (await write_journal(kit.core)).segments == 3

    found = segments(kit)
    assert [one.complete for one in found] == [False, False, True]
    assert [(one.after, one.upto) for one in found] == [(0, 4), (4, 8), (8, 9)]


async def test_a_checkpoint_comes_every_day_and_old_segments_go_with_their_messages(kit: CoreKit) -> None:
    await publish(kit, 2)
    await write_journal(kit.core)
    await publish(kit, 2)
    await write_journal(kit.core)
    del kit.metadata.order.rows[:2]
    assert await prune_journal(kit.core) == 0, "no later checkpoint holds what else was in it"

    kit.advance(DAY + 1)
    written = await write_journal(kit.core)

    assert (written.segments, written.removed) == (1, 1)
    assert [one.number for one in segments(kit)] == [2, 3]


async def test_small_segments_become_one_when_a_later_checkpoint_holds_the_rest(kit: CoreKit) -> None:
    kit.advance(-DAY)
    for _ in range(3):
        await publish(kit, 2)
        await write_journal(kit.core)
    kit.advance(DAY + 1)

    written = await write_journal(kit.core)

    assert written.removed == 3
    whole, checkpoint = segments(kit)
    assert (whole.number, whole.after, whole.upto, whole.side) == (3, 0, 6, [])
    assert [row[0] for row in whole.rows] == [1, 2, 3, 4, 5, 6]
    assert (checkpoint.number, checkpoint.checkpoint) == (4, True)
    assert await prune_journal(kit.core) == 0, "what is together stays so"


async def test_a_damaged_segment_is_not_put_together_with_others(kit: CoreKit) -> None:
    for _ in range(3):
        await publish(kit)
        await write_journal(kit.core)
    names = [one.name for one in segments_of(kit.payloads.objects)]
    kit.payloads.objects[names[1]].body = b"something else"
    kit.advance(DAY + 1)

    assert (await write_journal(kit.core)).removed == 0

    assert [one.name for one in segments_of(kit.payloads.objects)][:3] == names


async def test_a_segment_that_bears_the_name_of_the_whole_does_not_stand_for_it(kit: CoreKit) -> None:
    """As when a message of the first segment was changed in the last: both begin with it, and both end there."""
    await publish(kit, 3)
    rows: list[list[Any]] = [[number, {}, f"m/{number}"] for number in (1, 2, 3)]
    changed = [[1, {}, "m/anew"]]
    parts = [
        Segment(1, 0, 3, 1, checkpoint=True, complete=True, rows=rows),
        Segment(2, 0, 3, 2, checkpoint=False, complete=True, rows=changed),
        Segment(3, 3, 3, 3, checkpoint=True, complete=True),
    ]
    for part in parts:
        await kit.payloads.put_new(segment_name(part), encode(part), content_type="x/y")

    await prune_journal(kit.core)

    kept = {row[0]: row for part in segments(kit) for row in part.rows}
    assert list(kept.values()) == [*changed, *rows[1:]]


async def test_a_merge_that_was_killed_before_it_removed_the_parts_is_finished(
    kit: CoreKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await publish(kit)
        await write_journal(kit.core)
    kit.advance(DAY + 1)

    async def killed(names: Sequence[str]) -> list[str]:
        raise unavailable("the host was killed")

    monkeypatch.setattr(kit.payloads, "delete_many", killed)
    with pytest.raises(MtsError):
        await write_journal(kit.core)
    monkeypatch.undo()
    assert len(segments(kit)) == 5

    await prune_journal(kit.core)

    whole, _checkpoint = segments(kit)
    assert [row[0] for row in whole.rows] == [1, 2, 3]


async def test_a_store_that_is_older_than_its_bucket_writes_no_journal(kit: CoreKit) -> None:
    """Its rows would stand behind newer ones, and its checkpoint would take their place."""
    await kit.core.ceiling.keep()
    await publish(kit)
    known = f"{JOURNAL_PREFIX}{7:020}-{0:020}-{5:020}e"
    await kit.payloads.put_new(known, b"", content_type="x/y")
    kit.core.ceiling = Ceiling(kit.journal, kit.payloads)

    for _ in range(2):
        with pytest.raises(MtsError, match="older than its bucket"):
            await write_journal(kit.core)

    assert [one.name for one in segments_of(kit.payloads.objects)] == [known]


async def test_a_store_that_is_set_back_under_a_running_host_is_noticed(kit: CoreKit) -> None:
    await kit.core.ceiling.keep()
    await publish(kit, 3)
    await write_journal(kit.core)

    kit.metadata.order.watermark, kit.journal._number = 1, 0

    with pytest.raises(MtsError, match="older than its bucket"):
        await kit.core.ceiling.keep()


async def test_a_checkpoint_of_a_clock_that_stood_ahead_does_not_put_off_the_next(kit: CoreKit) -> None:
    kit.advance(365 * DAY)
    await publish(kit)
    await write_journal(kit.core)
    kit.advance(-365 * DAY)
    await publish(kit)

    await write_journal(kit.core)

    assert [one.checkpoint for one in segments(kit)] == [True, True]
    assert (await write_journal(kit.core)).segments == 0
