"""The sweeper on fakes: its budget, the clocks, what it counts; settings at the start; the bucket's lifecycle."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.lifecycle import LifecycleRule
from minitoolstream.domain.pack import InlineMessage
from minitoolstream.services import settle_in as settling
from minitoolstream.services.keep_lifecycle import apply_lifecycle, get_lifecycle
from minitoolstream.services.manage_retention import apply_settings, configure_retention, trash_grace
from minitoolstream.services.pace import Pace
from minitoolstream.services.publish_inline import publish_inline
from minitoolstream.services.reconcile_uploads import reconcile
from minitoolstream.services.run_sweeper import run_sweeper
from minitoolstream.services.settle_in import settle_in
from minitoolstream.services.sweep_expired import Budget, sweep, sweep_expired
from tests.core_kit import CoreKit, core_kit, settings

DAY = 86400


async def kit_with(count: int, **changes: Any) -> CoreKit:
    """So many messages, each with an object of its own, and TTL as the settings say."""
    kit = core_kit(**changes)
    await apply_settings(kit.core)
    for number in range(count):
        result = await publish_inline(kit.core, InlineMessage("orders", b"%d" % number, "text/plain"))
        assert result.receipt is not None
    return kit


async def test_what_had_its_time_goes_and_its_payload_after_the_grace() -> None:
    kit = await kit_with(3, downloads__url_life=600, backup__interval=0.0)
    kit.advance(DAY + 1)

    swept = await sweep(kit.core)

    assert (swept.messages, swept.extents, swept.bytes, swept.objects_deleted, swept.finished) == (3, 3, 3, 0, True)
    assert len(kit.payloads.objects) == 3
    kit.advance(600)
    assert (await sweep(kit.core)).objects_deleted == 3
    assert not kit.payloads.objects
    assert (kit.metrics.messages_expired, kit.metrics.objects_deleted) == (3, 3)


async def test_a_sweep_that_is_out_of_time_stops_and_the_next_goes_on() -> None:
    kit = await kit_with(1200)
    kit.advance(DAY + 1)

    none = await sweep_expired(kit.core, Budget(0))
    first = await kit.retention.step(500)
    rest = await sweep_expired(kit.core, Budget(60))

    assert (none.messages, none.finished) == (0, False)
    assert (first.messages, first.more) == (500, True)
    assert (rest.messages, rest.finished) == (700, True)


async def test_two_sweeps_at_once_expire_each_message_once() -> None:
    kit = await kit_with(1200)
    kit.advance(DAY + 1)
    first, second = await asyncio.gather(sweep_expired(kit.core), sweep_expired(kit.core))
    assert first.messages + second.messages == 1200
    assert (await kit.metadata.status())["rows"] == 0


@pytest.mark.parametrize("drift", [301, -301])
async def test_nothing_goes_while_the_clocks_differ(drift: int) -> None:
    kit = await kit_with(1, trash__grace=0)
    kit.advance(DAY + 1)
    await sweep_expired(kit.core)
    kit.payloads.clock = type(kit.metadata.clock)()
    kit.payloads.clock.advance(DAY + 1 - drift)
    await publish_inline(kit.core, InlineMessage("orders", b"x", "text/plain"))
    kit.metadata.clock.advance(DAY + 1)
    kit.payloads.clock.advance(DAY + 1)

    swept = await sweep(kit.core)

    assert (swept.clocks_differ, swept.finished, swept.messages, swept.objects_deleted) == (True, False, 0, 0)
    assert (await reconcile(kit.core)).objects_deleted == 0
    assert len(kit.payloads.objects) == 2
    kit.payloads.clock.advance(drift)
    assert (await sweep(kit.core)).objects_deleted == 2


async def test_nothing_expires_while_the_store_does_not_tell_its_time() -> None:
    kit = await kit_with(1)
    kit.advance(DAY + 1)
    kit.payloads.down = True
    with pytest.raises(MtsError, match="does not answer"):
        await sweep_expired(kit.core)
    assert (await kit.metadata.status())["rows"] == 1


async def test_a_host_applies_what_is_written_down_and_leaves_what_an_operator_set() -> None:
    kit = core_kit()
    assert await apply_settings(kit.core)
    changed = await configure_retention(kit.core, {"default_ttl": 60})
    assert (changed.default_ttl, changed.check_interval) == (60, 60)
    assert not await apply_settings(kit.core)
    assert kit.retention.config["default_ttl"] == 60
    kit.core.settings = settings(ttl__default="48h", ttl__channels="logs=1d")
    assert await apply_settings(kit.core)
    assert (kit.retention.config["default_ttl"], kit.retention.config["channels"]) == (2 * DAY, {"logs": DAY})


def test_a_payload_outlives_its_message_as_long_as_a_url_may_be_used_and_a_backup_points_at_it() -> None:
    assert trash_grace(settings(downloads__url_life=7200.0, backup__interval=0.0)) == 7200
    assert trash_grace(settings(downloads__url_life=7200.0)) == DAY
    assert trash_grace(settings(downloads__url_life=7200.0, trash__grace=5.0)) == 5


async def test_a_sweep_rests_between_its_steps_unless_it_is_far_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[int] = []

    async def rest(_pace: Pace) -> None:
        rests.append(1)

    monkeypatch.setattr(Pace, "rest", rest)
    kit = await kit_with(450, trash__grace=0)
    kit.advance(DAY + 1)
    await sweep_expired(kit.core)
    assert len(rests) >= 4
    rests.clear()
    kit.advance(700)
    assert (await sweep(kit.core)).objects_deleted == 450
    assert len(rests) == 1, "only when the last of them was gone"


# -- the scheduled function


async def test_a_run_of_the_function_expires_and_reconciles() -> None:
    kit = await kit_with(2, trash__grace=0)
    ticket = await kit.ticket(2)
    kit.put(ticket.upload, b"ok")
    kit.advance(DAY + 1)

    done = await run_sweeper(kit.core, 60)

    assert done.done["sweep"]["messages"] == 2
    assert (done.done["reconcile"]["committed"], done.done["reconcile"]["objects_deleted"]) == (1, 2)
    assert not done.cut_off
    assert [rule.id for rule in kit.bucket.rules] == ["default-ttl"]


async def test_a_run_that_is_cut_off_says_so_and_keeps_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = await kit_with(1)
    kit.advance(DAY + 1)

    async def for_ever(_limit: int) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(kit.metadata, "uploads_due", for_ever)
    done = await asyncio.wait_for(run_sweeper(kit.core, 0.2), 10)
    assert (done.done["sweep"]["messages"], done.cut_off) == (1, ["reconcile"])


async def test_a_part_that_fails_does_not_keep_the_others_from_running(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = await kit_with(1)
    ticket = await kit.ticket(2)
    kit.put(ticket.upload, b"ok")
    kit.advance(60)

    async def refused() -> Any:
        raise MtsError("not_configured", "may not")

    async def down(_limit: int) -> Any:
        raise unavailable("not now")

    monkeypatch.setattr(kit.bucket, "lifecycle", refused)
    assert (await run_sweeper(kit.core, 60)).done["reconcile"]["committed"] == 1
    monkeypatch.setattr(kit.retention, "step", down)
    with pytest.raises(MtsError, match="not now"):
        await run_sweeper(kit.core, 60)


# -- the bucket's lifecycle, and the start of a host


async def test_the_lifecycle_is_put_in_step_once_and_others_are_left() -> None:
    kit = core_kit(ttl__channels="logs=7d")
    await apply_settings(kit.core)
    kit.bucket.rules = [LifecycleRule("theirs", "", expires_current=True, raw=b"<Rule/>")]

    assert not (await get_lifecycle(kit.core)).in_step
    first, second = await apply_lifecycle(kit.core), await apply_lifecycle(kit.core)

    assert [rule.id for rule in first.rules] == ["theirs", "default-ttl", "channel-logs-ttl"]
    assert [rule.id for rule in first.dangerous] == ["theirs"]
    assert (first.changed, second.changed, kit.bucket.written) == (True, False, 1)
    await configure_retention(kit.core, {"channels": {}})
    assert [rule.id for rule in (await apply_lifecycle(kit.core)).rules] == ["theirs", "default-ttl"]


async def test_a_host_settles_in_once_tarantool_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "_FIRST_PAUSE", 0.001)
    kit = core_kit()
    kit.metadata.down = True
    task = asyncio.create_task(settle_in(kit.core))
    await asyncio.sleep(0)
    assert not kit.retention.config["enabled"]
    kit.metadata.down = False
    await asyncio.wait_for(task, 10)
    assert kit.retention.config["enabled"]
    assert [rule.id for rule in kit.bucket.rules] == ["default-ttl"]


async def test_a_host_that_may_not_set_the_lifecycle_starts_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = core_kit()

    async def refused() -> Any:
        raise MtsError("not_configured", "the host's user may not")

    monkeypatch.setattr(kit.bucket, "lifecycle", refused)
    await asyncio.wait_for(settle_in(kit.core), 10)
    assert kit.retention.config["enabled"]


# -- packs


async def test_a_pack_holds_messages_of_one_class_and_keeps_their_order() -> None:
    kit = core_kit()
    kit.metadata.classes = {"long": "long", "short": "short"}

    async def publish(subject: str, data: bytes) -> int:
        result = await publish_inline(kit.core, InlineMessage(subject, data, "text/plain"))
        assert result.receipt is not None
        assert result.receipt.sequence is not None
        return result.receipt.sequence

    await publish("long", b"known")
    await publish("short", b"known")
    names = ["long", "short", "other"] * 20
    sequences = await asyncio.gather(*(publish(name, b"%d" % number) for number, name in enumerate(names)))

    assert len(set(sequences)) == 60
    objects = {name: {row.object_name for row in kit.metadata.rows_of(name)} for name in ("long", "short", "other")}
    assert not objects["long"] & objects["short"]
    for name in objects:
        own = [sequence for sequence, subject in zip(sequences, names, strict=True) if subject == name]
        assert own == sorted(own)
