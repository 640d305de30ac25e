"""One contract for the pipeline's tracking: the fake, SQLite and MariaDB keep it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.adapters.memory.tracking import MemoryTracking
from minitoolstream.bootstrap import open_tracking
from minitoolstream.config import load_settings
from minitoolstream.domain import tracking
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.tracking import STAGES, WORK_STAGES, Claim, StageCounts, Task
from minitoolstream.ports import QueuePlace, TrackingStore

ALL = QueuePlace(limit=1000)
LONG, SHORT = 600.0, 0.001
SPLITTER, WORKER, SENDER = WORK_STAGES
Open = Callable[[], TrackingStore]


@pytest.fixture(params=["memory", "sqlite", "mariadb"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """Opens further stores on the same data; the fake has one."""
    environ: dict[str, str] = {"MTS_HOME": str(tmp_path / "home")}
    if request.param == "mariadb":
        server = request.getfixturevalue("mariadb_server")
        environ["MTS_PIPELINE_DATABASE"] = server.url(f"test_{uuid.uuid4().hex}")
        environ["MTS_PIPELINE_PASSWORD"] = server.password
    settings, fake = load_settings(environ, cwd=tmp_path), MemoryTracking()
    opened: list[TrackingStore] = []

    def open_one() -> TrackingStore:
        opened.append(fake if request.param == "memory" else open_tracking(settings))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
def store(open_store: Open) -> TrackingStore:
    return open_store()


async def written(store: TrackingStore, filename: str = "20250101000000", *shards: int) -> str:
    """A file whose shards wait for the splitter."""
    await store.register(filename, shards or (0, 1))
    await store.finish_ingest(filename)
    return filename


async def one(store: TrackingStore, filename: str, shard: int = 0) -> Task:
    return next(task for task in await store.file(filename) if task.shard == shard)


async def pass_stage(store: TrackingStore, filename: str, shard: int, stage: str) -> None:
    await store.change(filename, shard, tracking.start(stage, Claim(None, LONG)))
    await store.change(filename, shard, tracking.finish(stage, None))


async def refused(work: Any, code: str = "stage_conflict") -> dict[str, Any]:
    with pytest.raises(MtsError) as caught:
        await work
    assert caught.value.code == code, caught.value
    return caught.value.details


async def once_ended(store: TrackingStore, filename: str, stage: str) -> None:
    """Until the lease on shard 0 is over by the store's own clock."""
    async with asyncio.timeout(30):
        while (await one(store, filename)).of(stage).status != "new":  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)


async def test_a_registered_file_is_being_written(store: TrackingStore) -> None:
    assert await store.register("f", [1, 0]) == 2
    found = await store.file("f")
    assert [task.shard for task in found] == [0, 1]
    for task in found:
        assert [state.status for state in task.stages] == ["started", "new", "new", "new"]
        assert (task.owner, task.lease_until) == (None, None)
        assert task.created_at == task.updated_at


async def test_registering_again_adds_what_is_missing_and_changes_nothing_else(store: TrackingStore) -> None:
    await written(store, "f", 0, 1)
    before = await store.file("f")
    assert await store.register("f", [0, 1]) == 0
    assert await store.register("f", [1, 2, 3]) == 2
    after = await store.file("f")
    assert after[:2] == before
    assert [task.stages[0].status for task in after] == ["done", "done", "started", "started"]


async def test_a_file_with_very_many_shards_is_registered_whole(store: TrackingStore) -> None:
    assert await store.register("f", range(1200)) == 1200
    assert await store.register("f", range(1300)) == 100
    assert len(await store.file("f")) == 1300


async def test_the_end_of_writing_counts_the_shards_that_changed(store: TrackingStore) -> None:
    await store.register("f", [0, 1])
    assert await store.finish_ingest("f") == 2
    assert await store.finish_ingest("f") == 0


async def test_names_that_differ_in_case_are_two_files(store: TrackingStore) -> None:
    await store.register("File", [0])
    await store.register("file", [0])
    assert [each.filename for each in await store.files(10, None)] == ["file", "File"]


async def test_an_unknown_file_or_shard_is_told_from_another(store: TrackingStore) -> None:
    await refused(store.file("f"), "not_found")
    await refused(store.finish_ingest("f"), "not_found")
    await refused(store.change("f", 0, tracking.retry(WORKER)), "not_found")
    await store.register("f", [3, 5])
    details = await refused(store.change("f", 4, tracking.retry(WORKER)), "not_found")
    assert details["allowed"] == [3, 5]


async def test_a_task_passes_all_stages_in_their_order(store: TrackingStore) -> None:
    filename = await written(store, "f", 0)
    for stage in WORK_STAGES:
        assert [(task.filename, task.shard) for task in await store.ready(stage, ALL)] == [(filename, 0)]
        await pass_stage(store, filename, 0, stage)
        assert await store.ready(stage, ALL) == []
    task = await one(store, filename)
    assert [state.status for state in task.stages] == ["done"] * 4
    assert [state.attempts for state in task.stages] == [0, 1, 1, 1]


async def test_a_stage_does_not_start_before_the_one_before_is_done(store: TrackingStore) -> None:
    await store.register("f", [0])
    details = await refused(store.change("f", 0, tracking.start(SPLITTER, Claim("a", LONG))))
    assert (details["status"], details["allowed"], details["waits_for"]) == ("new", [], "event-ingest")
    await store.finish_ingest("f")
    for decide in (tracking.start(WORKER, Claim("a", LONG)), tracking.fail(WORKER, "a", None)):
        details = await refused(store.change("f", 0, decide))
        assert details["waits_for"] == SPLITTER


async def test_of_two_that_start_one_gets_it(store: TrackingStore) -> None:
    filename = await written(store)
    task = await store.change(filename, 0, tracking.start(SPLITTER, Claim("a", LONG)))
    assert (task.owner, task.of(SPLITTER).status) == ("a", "started")
    assert task.lease_until == task.updated_at + timedelta(seconds=LONG)
    for owner in ("b", None):
        details = await refused(store.change(filename, 0, tracking.start(SPLITTER, Claim(owner, LONG))))
        assert (details["status"], details["allowed"], details["owner"]) == ("started", ["done", "fail"], "a")


async def test_an_owner_may_start_again_to_keep_its_lease(store: TrackingStore) -> None:
    filename = await written(store)
    await store.change(filename, 0, tracking.start(SPLITTER, Claim("a", 10)))
    task = await store.change(filename, 0, tracking.start(SPLITTER, Claim("a", LONG)))
    assert task.lease_until == task.updated_at + timedelta(seconds=LONG)
    assert task.of(SPLITTER).attempts == 1


async def test_a_lease_that_has_ended_puts_the_task_back(store: TrackingStore) -> None:
    filename = await written(store)
    await store.change(filename, 0, tracking.start(SPLITTER, Claim("a", SHORT)))
    await once_ended(store, filename, SPLITTER)
    assert [task.shard for task in await store.ready(SPLITTER, ALL)] == [0, 1]
    assert (await store.summary()).stages[SPLITTER] == StageCounts(new=2)
    assert (await one(store, filename)).owner is None
    task = await store.change(filename, 0, tracking.start(SPLITTER, Claim("b", LONG)))
    assert (task.owner, task.of(SPLITTER).attempts) == ("b", 2)


@pytest.mark.parametrize("decide", [tracking.finish, lambda stage, owner: tracking.fail(stage, owner, "late")])
async def test_who_lost_its_task_cannot_end_it(store: TrackingStore, decide: Any) -> None:
    filename = await written(store)
    await store.change(filename, 0, tracking.start(SPLITTER, Claim("a", SHORT)))
    await once_ended(store, filename, SPLITTER)
    await store.change(filename, 0, tracking.start(SPLITTER, Claim("b", LONG)))
    details = await refused(store.change(filename, 0, decide(SPLITTER, "a")), "lease_lost")
    assert details["owner"] == "b"
    assert (await one(store, filename)).owner == "b"


async def test_a_lease_that_has_ended_and_that_nobody_took_may_still_be_done(store: TrackingStore) -> None:
    filename = await written(store)
    await store.change(filename, 0, tracking.start(SPLITTER, Claim("a", SHORT)))
    await once_ended(store, filename, SPLITTER)
    task = await store.change(filename, 0, tracking.finish(SPLITTER, "a"))
    assert (task.of(SPLITTER).status, task.owner, task.lease_until) == ("done", None, None)


async def test_without_a_name_everything_works_as_the_specification_has_it(store: TrackingStore) -> None:
    filename = await written(store)
    await store.change(filename, 0, tracking.start(SPLITTER, Claim(None, LONG)))
    await refused(store.change(filename, 0, tracking.start(SPLITTER, Claim(None, LONG))))
    await store.change(filename, 0, tracking.finish(SPLITTER, None))
    await store.change(filename, 0, tracking.start(WORKER, Claim("named", LONG)))
    await store.change(filename, 0, tracking.finish(WORKER, None))


async def test_repeating_done_changes_nothing(store: TrackingStore) -> None:
    filename = await written(store)
    await pass_stage(store, filename, 0, SPLITTER)
    before = await one(store, filename)
    assert await store.change(filename, 0, tracking.finish(SPLITTER, "anyone")) == before
    assert await one(store, filename) == before


async def test_what_failed_keeps_its_error_and_may_be_tried_again(store: TrackingStore) -> None:
    filename = await written(store)
    await store.change(filename, 0, tracking.start(SPLITTER, Claim("a", LONG)))
    task = await store.change(filename, 0, tracking.fail(SPLITTER, "a", "ключ ✗ " + "x" * 5000))
    state = task.of(SPLITTER)
    assert (state.status, task.owner) == ("failed", None)
    assert state.error is not None
    assert state.error.startswith("ключ ✗")
    assert len(state.error) == tracking.MAX_ERROR_LENGTH
    assert await store.change(filename, 0, tracking.fail(SPLITTER, "a", "again")) == task

    assert [task.shard for task in await store.ready(SPLITTER, ALL)] == [1]
    await store.change(filename, 0, tracking.retry(SPLITTER))
    assert [task.shard for task in await store.ready(SPLITTER, ALL)] == [0, 1]
    again = await store.change(filename, 0, tracking.start(SPLITTER, Claim("b", LONG)))
    assert again.of(SPLITTER).attempts == 2
    assert again.of(SPLITTER).error == state.error


async def test_a_task_may_fail_before_it_was_started(store: TrackingStore) -> None:
    filename = await written(store)
    task = await store.change(filename, 0, tracking.fail(SPLITTER, None, "no such input"))
    assert (task.of(SPLITTER).status, task.of(SPLITTER).attempts) == ("failed", 0)


@pytest.mark.parametrize(
    ("status", "transition"),
    [
        ("new", "done"),
        ("new", "retry"),
        ("started", "retry"),
        ("done", "start"),
        ("done", "fail"),
        ("done", "retry"),
        ("failed", "start"),
        ("failed", "done"),
    ],
)
async def test_a_transition_that_does_not_fit_is_refused_with_what_does(
    store: TrackingStore, status: str, transition: str
) -> None:
    filename = await written(store)
    if status in {"started", "done"}:
        await store.change(filename, 0, tracking.start(SPLITTER, Claim("a", LONG)))
    if status == "done":
        await store.change(filename, 0, tracking.finish(SPLITTER, "a"))
    if status == "failed":
        await store.change(filename, 0, tracking.fail(SPLITTER, None, "no"))
    decide = {
        "start": tracking.start(SPLITTER, Claim("a", LONG)),
        "done": tracking.finish(SPLITTER, "a"),
        "fail": tracking.fail(SPLITTER, "a", "no"),
        "retry": tracking.retry(SPLITTER),
    }[transition]
    before = await store.file(filename)
    details = await refused(store.change(filename, 0, decide))
    assert (details["status"], details["transition"]) == (status, transition)
    assert details["allowed"] == list(tracking.ALLOWED[status])
    assert await store.file(filename) == before


async def test_a_queue_is_read_oldest_first_and_page_by_page(store: TrackingStore) -> None:
    for name in ("b", "a", "c"):
        await written(store, name, 1, 0)
    names = [(task.filename, task.shard) for task in await store.ready(SPLITTER, ALL)]
    assert names == [("b", 0), ("b", 1), ("a", 0), ("a", 1), ("c", 0), ("c", 1)]
    pages = [await store.ready(SPLITTER, QueuePlace(4, offset)) for offset in (0, 4, 8)]
    assert [[(task.filename, task.shard) for task in page] for page in pages] == [names[:4], names[4:], []]


async def test_a_queue_shows_what_was_not_touched_since(store: TrackingStore) -> None:
    await written(store, "a", 0)
    await written(store, "b", 0)
    moment = (await one(store, "b")).updated_at
    for found in (
        await store.ready(SPLITTER, QueuePlace(10, updated_before=moment)),
        await store.claim(SPLITTER, QueuePlace(10, updated_before=moment), Claim("x", LONG)),
    ):
        assert [task.filename for task in found] == ["a"]


async def test_claimed_tasks_are_started_in_the_callers_name(store: TrackingStore) -> None:
    await written(store, "f", 0, 1, 2)
    taken = await store.claim(SPLITTER, QueuePlace(2), Claim("a", LONG))
    assert [task.shard for task in taken] == [0, 1]
    for task in taken:
        assert task == await one(store, "f", task.shard)
        assert (task.owner, task.of(SPLITTER).status, task.of(SPLITTER).attempts) == ("a", "started", 1)
        assert task.lease_until == task.updated_at + timedelta(seconds=LONG)
    assert [task.shard for task in await store.claim(SPLITTER, ALL, Claim("b", LONG))] == [2]
    assert await store.claim(SPLITTER, ALL, Claim("c", LONG)) == []


async def test_a_claim_takes_what_was_put_back_first(store: TrackingStore) -> None:
    await written(store, "f", 1)
    await written(store, "g", 0)
    await store.change("g", 0, tracking.start(SPLITTER, Claim("a", SHORT)))
    await once_ended(store, "g", SPLITTER)
    (taken,) = await store.claim(SPLITTER, QueuePlace(1), Claim("b", LONG))
    assert (taken.filename, taken.owner, taken.of(SPLITTER).attempts) == ("g", "b", 2)
    assert [task.filename for task in await store.claim(SPLITTER, ALL, Claim("c", LONG))] == ["f"]


async def test_a_claim_takes_only_what_is_ready_for_its_stage(store: TrackingStore) -> None:
    await written(store, "f", 0, 1, 2)
    await pass_stage(store, "f", 1, SPLITTER)
    await store.change("f", 2, tracking.start(SPLITTER, Claim("a", SHORT)))
    assert [task.shard for task in await store.claim(WORKER, ALL, Claim("w", LONG))] == [1]
    assert await store.claim(SENDER, ALL, Claim("s", LONG)) == []


async def test_claims_side_by_side_never_get_the_same_task(open_store: Open) -> None:
    stores = [open_store() for _ in range(4)]
    await written(stores[0], "f", *range(60))

    async def work(number: int) -> list[int]:
        mine: list[int] = []
        while taken := await stores[number % 4].claim(SPLITTER, QueuePlace(3), Claim(f"d{number}", LONG)):
            mine += [task.shard for task in taken]
        return mine

    served = [shard for mine in await asyncio.gather(*map(work, range(8))) for shard in mine]
    assert sorted(served) == list(range(60))


async def test_of_many_that_start_one_task_one_gets_it(open_store: Open) -> None:
    stores = [open_store() for _ in range(4)]
    filename = await written(stores[0], "f", 0)

    async def attempt(number: int) -> Task:
        claim = Claim(f"d{number}", LONG)
        return await stores[number % 4].change(filename, 0, tracking.start(SPLITTER, claim))

    answers = await asyncio.gather(*map(attempt, range(16)), return_exceptions=True)
    (winner,) = [answer for answer in answers if isinstance(answer, Task)]
    assert {answer.code for answer in answers if isinstance(answer, MtsError)} == {"stage_conflict"}
    assert await one(stores[0], filename) == winner


async def test_side_by_side_registers_make_each_shard_once(open_store: Open) -> None:
    stores = [open_store() for _ in range(4)]
    created = await asyncio.gather(*(stores[at % 4].register("f", range(50)) for at in range(8)))
    assert sum(created) == 50


async def test_the_summary_covers_all_stages_and_shards(store: TrackingStore) -> None:
    assert (await store.summary()).total == 0
    assert (await store.summary()).stages == {stage: StageCounts() for stage in STAGES}
    await written(store, "f", 0, 1)
    await store.register("g", [1])
    for stage in WORK_STAGES:
        await pass_stage(store, "f", 0, stage)
    await store.change("f", 1, tracking.fail(SPLITTER, None, "no"))
    summary = await store.summary()
    assert summary.total == 3
    assert summary.stages == {
        "event-ingest": StageCounts(started=1, done=2),
        SPLITTER: StageCounts(new=1, done=1, failed=1),
        WORKER: StageCounts(new=2, done=1),
        SENDER: StageCounts(new=2, done=1),
    }
    assert [(one.shard, one.total, one.done, one.failed) for one in summary.shards] == [(0, 1, 1, 0), (1, 2, 0, 0)]


async def test_files_are_listed_by_name_the_last_first(store: TrackingStore) -> None:
    for name in ("20250101000000", "20250103000000", "20250102000000"):
        await written(store, name, 0, 1)
    await store.change("20250102000000", 1, tracking.start(SPLITTER, Claim(None, LONG)))
    found = await store.files(2, None)
    assert [file.filename for file in found] == ["20250103000000", "20250102000000"]
    assert found[1].shards == 2
    assert found[1].stages[SPLITTER] == StageCounts(new=1, started=1)
    assert found[1].updated_at == (await one(store, "20250102000000", 1)).updated_at
    assert [file.filename for file in await store.files(5, "20250102000000")] == ["20250101000000"]


async def test_what_was_answered_is_there_for_the_next_who_opens_it(open_store: Open) -> None:
    filename = await written(open_store())
    assert [task.stages[0].status for task in await open_store().file(filename)] == ["done", "done"]
