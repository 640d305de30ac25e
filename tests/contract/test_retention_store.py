"""One contract, two stores: expiry in the fake that services are tested with, and in Tarantool through our adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.adapters.memory.metadata import MemoryMetadata
from minitoolstream.adapters.memory.retention import MemoryRetention
from minitoolstream.adapters.tarantool.delivery import TarantoolDelivery
from minitoolstream.adapters.tarantool.retention import TarantoolRetention
from minitoolstream.adapters.tarantool.subjects import TarantoolSubjects
from minitoolstream.config import load_settings
from minitoolstream.domain.consumer import ConsumerSettings
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pack import InlineMessage, build_pack
from minitoolstream.domain.retention import SweepStep
from minitoolstream.domain.subject import new_id, pack_name
from minitoolstream.domain.upload import Receipt, State, StoredObject, UploadSpec
from minitoolstream.ports import MetadataStore, RetentionStore
from tests.clocked_tarantool import ClockedMetadata, settings_for, start_clocked_tarantool

DAY = 86400
GRACE = 7200
MANY = 10_000
CONFIG = {"enabled": True, "default_ttl": DAY, "check_interval": 3600, "channels": {"channel": 100}}


@dataclass
class Kit:
    """A store of the test's own, its clock, and hands on what differs between the two."""

    retention: RetentionStore
    metadata: MetadataStore
    advance: Callable[[float], Awaitable[None]]
    set_ttl: Callable[[str, int], Awaitable[None]]
    hold: Callable[[str], Awaitable[None]]
    """From now on an important durable that has acked nothing holds back this subject."""

    async def publish(self, subject: str, count: int = 1) -> list[Receipt]:
        """A pack of so many; its name is its own."""
        pack = build_pack([InlineMessage(subject, b"1234", "text/plain") for _ in range(count)])
        name = pack_name(new_id(await self.metadata.now_ms()))
        (answers,) = await self.metadata.commit_pack(name, pack.groups)
        return [answer.receipt for answer in answers if answer.receipt]

    async def upload(self, subject: str) -> str:
        """A message with an object of its own; the object's name."""
        (new,) = await self.metadata.create_uploads(subject, [UploadSpec(3, "text/plain")])
        assert new.upload is not None
        await self.metadata.commit_uploads([StoredObject(new.upload.id, new.upload.object_name, 3)])
        return new.upload.object_name

    async def round(self) -> SweepStep:
        """All steps of a round, summed up."""
        total = SweepStep(0, 0, 0, 0, more=True, clocks_differ=False)
        while total.more:
            step = await self.retention.step(MANY)
            total.messages, total.rows, total.bytes = (
                total.messages + step.messages,
                total.rows + step.rows,
                total.bytes + step.bytes,
            )
            total.subjects, total.more = total.subjects + step.subjects, step.more
        return total

    async def count(self, subject: str) -> int:
        page = await self.metadata.get_messages(subject, 1, MANY)
        return sum(extent.count for extent in page.extents)

    async def trash(self) -> list[str]:
        return [one.name for one in await self.metadata.trash_due(MANY)]


@pytest.fixture(params=["memory", "tarantool"])
async def kit(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kit]:
    if request.param == "memory":
        memory = MemoryMetadata(load_settings({"MTS_HOME": "/nonexistent"}))
        fake = MemoryRetention(memory)

        async def advance(seconds: float) -> None:
            memory.clock.advance(seconds)

        async def set_ttl(subject: str, seconds: int) -> None:
            fake.ttls[subject] = seconds

        async def hold(subject: str) -> None:
            fake.acked[subject] = 0

        yield Kit(fake, memory, advance, set_ttl, hold)
        return
    server = start_clocked_tarantool(tmp_path)
    settings = settings_for(server, tmp_path)
    real = ClockedMetadata(settings)
    subjects, deliveries = TarantoolSubjects(real.connection, settings), TarantoolDelivery(real.connection)

    async def real_ttl(subject: str, seconds: int) -> None:
        await subjects.put(subject, {"ttl": seconds})

    async def real_hold(subject: str) -> None:
        await deliveries.put_consumer(subject, "held", ConsumerSettings(important=True), None)

    yield Kit(TarantoolRetention(real.connection), real, real.advance, real_ttl, real_hold)
    await real.close()
    server.stop()


async def test_nothing_expires_before_it_is_configured(kit: Kit) -> None:
    await kit.publish("orders")
    await kit.advance(100 * DAY)
    assert (await kit.round()).messages == 0
    assert not (await kit.retention.status()).enabled


async def test_settings_are_applied_configured_and_told(kit: Kit) -> None:
    assert await kit.retention.apply(CONFIG, GRACE, given=False)
    told = await kit.retention.status()
    assert (told.enabled, told.default_ttl, told.check_interval, told.channels) == (True, DAY, 3600, {"channel": 100})
    assert (told.trash_grace, told.trash, told.holds, told.last_round_at) == (GRACE, 0, [], None)
    assert await kit.retention.apply({**CONFIG, "default_ttl": 5}, GRACE, given=False)
    await kit.retention.configure({"default_ttl": 6, "channels": {}})
    assert not await kit.retention.apply(CONFIG, GRACE, given=False)
    told = await kit.retention.status()
    assert (told.default_ttl, told.check_interval, told.channels) == (6, 3600, {})
    assert await kit.retention.apply(CONFIG, GRACE, given=True)
    assert (await kit.retention.status()).default_ttl == DAY


async def test_what_is_written_down_counts_once_so_that_a_second_worker_takes_nothing_back(kit: Kit) -> None:
    assert await kit.retention.apply(CONFIG, GRACE, given=True)
    await kit.retention.configure({"default_ttl": 6})
    assert not await kit.retention.apply(CONFIG, GRACE, given=True)
    assert (await kit.retention.status()).default_ttl == 6
    assert await kit.retention.apply({**CONFIG, "default_ttl": 7}, GRACE, given=True)
    assert (await kit.retention.status()).default_ttl == 7
    assert await kit.retention.apply(CONFIG, GRACE, given=False), "the last one was a host"
    await kit.retention.configure({"default_ttl": 8})
    assert not await kit.retention.apply({**CONFIG, "default_ttl": 7}, GRACE, given=True)


@pytest.mark.parametrize("wrong", [{"default_ttl": 0}, {"channels": {"a": 0}}, {"default": 5}], ids=str)
async def test_a_configuration_that_does_not_fit_is_refused(kit: Kit, wrong: dict[str, Any]) -> None:
    with pytest.raises(MtsError) as raised:
        await kit.retention.configure(wrong)
    assert raised.value.code == "bad_request"


async def test_each_subject_has_its_time(kit: Kit) -> None:
    await kit.retention.apply(CONFIG, GRACE, given=True)
    await kit.set_ttl("own", 50)
    for name in ("own", "channel", "default"):
        await kit.publish(name, 2)
    counts = []
    for seconds in (51, 50, DAY):
        await kit.advance(seconds)
        done = await kit.round()
        assert (done.messages, done.rows, done.bytes) == (2, 1, 8)
        counts.append([await kit.count(name) for name in ("own", "channel", "default")])
    assert counts == [[0, 2, 2], [0, 0, 2], [0, 0, 0]]
    assert (await kit.retention.status()).last_round_at == await kit.metadata.now_ms() // 1000


async def test_dead_letters_have_at_least_the_time_of_the_subject_they_came_from(kit: Kit) -> None:
    await kit.retention.apply(CONFIG, GRACE, given=True)
    await kit.set_ttl("own", 3 * DAY)
    await kit.set_ttl("set.dlq", 50)
    names = ("own.dlq", "channel.dlq", "set.dlq", "default.dlq")
    for name in names:
        await kit.publish(name)
    counts = []
    for seconds in (51, DAY, 2 * DAY):
        await kit.advance(seconds)
        await kit.round()
        counts.append([await kit.count(name) for name in names])
    assert counts == [[1, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]]


async def test_a_payload_is_due_after_the_grace_and_not_before(kit: Kit) -> None:
    await kit.retention.apply(CONFIG, GRACE, given=True)
    name = await kit.upload("orders")
    await kit.advance(DAY + 1)
    await kit.round()
    told = await kit.retention.status()
    assert (told.trash, told.trash_due_at) == (1, told.time + GRACE)
    await kit.advance(GRACE - 5)
    assert await kit.trash() == []
    await kit.advance(5)
    assert await kit.trash() == [name]


async def test_a_receipt_and_the_offsets_outlive_a_message(kit: Kit) -> None:
    await kit.retention.apply(CONFIG, GRACE, given=True)
    (first,) = await kit.publish("orders")
    await kit.advance(DAY + 1)
    await kit.round()
    (second,) = await kit.publish("orders")
    assert (second.state, second.offset) == (State.COMMITTED, 1)
    assert first.sequence is not None
    assert await kit.metadata.get_message(first.sequence) is None


async def test_what_is_held_back_stays_and_is_told(kit: Kit) -> None:
    await kit.retention.apply(CONFIG, GRACE, given=True)
    await kit.publish("orders", 3)
    await kit.hold("orders")
    await kit.advance(DAY + 10)
    assert (await kit.round()).messages == 0
    (hold,) = (await kit.retention.status()).holds
    assert (hold.subject, hold.durable, hold.messages, hold.bytes) == ("orders", "held", 3, 12)
    assert (hold.age, hold.position, hold.estimated) == (DAY + 10, 0, False)


async def test_a_round_goes_in_steps_and_goes_on_where_it_ended(kit: Kit) -> None:
    await kit.retention.apply(CONFIG, GRACE, given=True)
    for number in range(1100):
        await kit.publish(f"orders-{number % 2}")
    await kit.advance(DAY + 1)
    steps = [await kit.retention.step(MANY) for _ in range(2)]
    assert all(step.more and 0 < step.rows <= 500 for step in steps)
    assert (await kit.retention.status()).last_round_at is None
    await kit.round()
    assert await kit.count("orders-0") + await kit.count("orders-1") == 0


async def test_a_step_does_nothing_while_the_clocks_differ(kit: Kit) -> None:
    await kit.retention.apply(CONFIG, GRACE, given=True)
    await kit.publish("orders")
    await kit.advance(DAY + 1)
    now = await kit.metadata.now_ms()
    agree, drift = await kit.retention.compare_clocks(now - 301_000)
    assert (agree, 301_000 <= drift < 361_000) == (False, True)
    step = await kit.retention.step(MANY)
    assert (step.clocks_differ, step.messages, step.more) == (True, 0, False)
    told = await kit.retention.status()
    assert (told.clocks_agree, told.drift_ms) == (False, drift)
    agree, drift = await kit.retention.compare_clocks(now - 200_000)
    assert agree
    assert (await kit.retention.step(MANY)).messages == 1


async def test_the_class_of_a_subject_is_told_by_its_commits(kit: Kit) -> None:
    if isinstance(kit.metadata, MemoryMetadata):
        kit.metadata.classes = {"own": "50", "default": f"{DAY}"}
    await kit.retention.apply(CONFIG, GRACE, given=True)
    await kit.set_ttl("own", 50)
    pack = build_pack([InlineMessage(name, b"x", "text/plain") for name in ("own", "default")])
    answers = await kit.metadata.commit_pack(pack_name(new_id(await kit.metadata.now_ms())), pack.groups)
    assert [answer.retention for answer in answers] == ["50", f"{DAY}"]
