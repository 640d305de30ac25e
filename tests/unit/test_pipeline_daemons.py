"""The pipeline's daemons on fakes: what they make of messages, and that a kill at any point changes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.domain import tracking
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.tracking import Claim
from minitoolstream.pipeline.aggregate import by_key
from minitoolstream.pipeline.daemon import Manner, Outcome, new_owner, run_daemon
from minitoolstream.pipeline.events import Event, check_key, event_of, events_in, key_of, line_of, shard_of
from minitoolstream.pipeline.files import events_name, input_name, rows_name
from minitoolstream.pipeline.ingest import Ingested, Range, Window, ingest, last_window
from minitoolstream.pipeline.run import SENDER, SPLITTER, WORKER, run_splitter, run_worker
from minitoolstream.pipeline.stages import Work, load_function, send
from tests.pipeline_kit import BEGUN, Killed, PipelineKit

MANNER = Manner("tester", lease=60)
SHARDS = (0, 1)
FILE = "20250101000000"


@pytest.fixture
def kit(tmp_path: Path) -> PipelineKit:
    kit = PipelineKit(tmp_path)
    for number in range(30):
        kit.fake.publish(f"payload {number}".encode(), {"key": f"k{number % 7}"}, seconds=number * 60)
    return kit


def ingested(kit: PipelineKit, wanted: Range | Window | None = None, **more: Any) -> Ingested | None:
    given = {"shards": SHARDS, "key": "header:key", **more}
    return ingest(kit.client, kit.files, "orders", wanted or Range(), **given)


def sent(kit: PipelineKit, manner: Manner = MANNER) -> Outcome:
    return run_daemon(kit.client, SENDER, lambda task: send(kit.files, task, kit), manner)


def run_all(kit: PipelineKit) -> None:
    ingested(kit)
    run_splitter(kit.client, kit.files, MANNER)
    run_worker(kit.client, kit.files, by_key, MANNER)
    sent(kit)


def lines(kit: PipelineKit, name: str) -> list[Any]:
    return [json.loads(line) for line in kit.files.get(name).splitlines()]


def test_every_message_ends_in_one_shards_rows(kit: PipelineKit) -> None:
    run_all(kit)
    rows = [json.loads(value) for shard in SHARDS for _, value in kit.rows[FILE, shard]]
    assert sorted(row["key"] for row in rows) == [f"k{number}" for number in range(7)]
    assert sum(row["messages"] for row in rows) == 30
    assert {row["key"]: row["first_sequence"] for row in rows} == {f"k{number}": number + 1 for number in range(7)}
    status = kit.fake.pipeline.file(FILE)
    assert {shard.mysql_sender_status for shard in status.shards} == {"done"}


def test_the_files_of_a_run_are_as_documented(kit: PipelineKit) -> None:
    run_all(kit)
    first = lines(kit, events_name(FILE))[0]
    assert first == {
        "sequence": 1,
        "subject": "orders",
        "partition": 0,
        "offset": 0,
        "create_at": int(BEGUN.timestamp()),
        "content_type": "application/octet-stream",
        "headers": {"key": "k0"},
        "text": "payload 0",
    }
    parts = [lines(kit, input_name(FILE, shard)) for shard in SHARDS]
    assert sorted(one["sequence"] for part in parts for one in part) == list(range(1, 31))
    for shard, part in zip(SHARDS, parts, strict=True):
        assert {shard_of(one["headers"]["key"], SHARDS) for one in part} == {shard}
        assert lines(kit, rows_name(FILE, shard))[0].keys() >= {"key", "messages", "bytes"}


def test_killed_behind_any_call_the_next_run_ends_with_the_same_rows(tmp_path: Path) -> None:
    def made(folder: Path) -> PipelineKit:
        kit = PipelineKit(folder)
        for number in range(5):
            kit.fake.publish(b"x", {"key": f"k{number}"})
        return kit

    whole = made(tmp_path / "whole")
    run_all(whole)
    calls = whole.reaper.calls
    assert calls > 20
    for at in range(1, calls + 1):
        kit = made(tmp_path / str(at))
        kit.reaper.left = at
        with pytest.raises(Killed):
            run_all(kit)
        kit.pass_time(61)
        run_all(kit)
        assert kit.rows == whole.rows, f"killed behind call {at}"
        assert {shard.mysql_sender_status for shard in kit.fake.pipeline.file(FILE).shards} == {"done"}


def test_a_file_is_named_by_when_it_begins_and_made_once(kit: PipelineKit) -> None:
    first = ingested(kit, Range(3, 5))
    assert first is not None
    assert (first.filename, first.messages, first.created) == ("20250101000200", 3, True)
    again = ingested(kit, Range(3, 5))
    assert again is not None
    assert (again.filename, again.messages, again.created) == ("20250101000200", None, False)


def test_what_came_later_does_not_change_a_file_that_was_begun(kit: PipelineKit) -> None:
    kit.reaper.left = 2  # the plan is there, the file registered
    with pytest.raises(Killed):
        ingested(kit)
    kit.fake.publish(b"late")
    done = ingested(kit)
    assert done is not None
    assert (done.plan.last, done.messages) == (30, 30)


def test_another_range_under_a_name_that_is_taken_is_refused(kit: PipelineKit) -> None:
    ingested(kit, Range(1, 5))
    others: list[tuple[Range, dict[str, Any]]] = [
        (Range(1, 3), {}),
        (Range(1, 9), {}),
        (Range(1), {}),
        (Range(1, 5), {"shards": (0, 1, 2)}),
        (Range(1, 5), {"key": "field:id"}),
    ]
    for wanted, more in others:
        with pytest.raises(MtsError) as caught:
            ingested(kit, wanted, **more)
        assert caught.value.code == "already_exists"


def test_a_window_takes_what_came_in_its_time(kit: PipelineKit) -> None:
    window = Window(300, BEGUN + timedelta(seconds=301))
    done = ingested(kit, window)
    assert done is not None
    assert (done.filename, done.plan.first, done.plan.last) == ("20250101000500", 6, 10)


def test_a_window_without_messages_makes_no_file(kit: PipelineKit) -> None:
    assert ingested(kit, Window(300, BEGUN - timedelta(days=1))) is None
    assert ingested(kit, Window(300, BEGUN + timedelta(days=1))) is None
    assert kit.reaper.calls == 0


def test_a_window_that_is_not_over_is_refused(kit: PipelineKit) -> None:
    """By the server's time, which gives messages theirs, whatever this machine's clock says."""
    now = kit.fake.now = datetime(2099, 1, 1, 0, 30, tzinfo=UTC)
    with pytest.raises(MtsError, match="not over yet"):
        ingested(kit, Window(3600, now))
    kit.fake.now = BEGUN + timedelta(seconds=301)
    with pytest.raises(MtsError, match="not over yet"):
        ingested(kit, Window(300, BEGUN))
    kit.fake.now = BEGUN + timedelta(seconds=302)
    assert ingested(kit, Window(300, BEGUN)) is not None
    assert last_window(3600, now).start == datetime(2098, 12, 31, 23, tzinfo=UTC)
    assert last_window(3600, now.replace(minute=0, second=1)).start == datetime(2098, 12, 31, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wanted", "more"),
    [(Range(5, 4), {}), (Range(), {"key": "id"}), (Range(), {"shards": ()}), (Range(), {"filename": "a/b"})],
)
def test_bad_arguments_are_refused_before_anything_is_written(
    kit: PipelineKit, wanted: Range, more: Mapping[str, Any]
) -> None:
    with pytest.raises(MtsError) as caught:
        ingested(kit, wanted, **more)
    assert caught.value.code == "bad_request"
    assert kit.reaper.calls == 0


def test_payloads_come_back_as_they_were() -> None:
    fake = PipelineKit(Path("/nonexistent")).fake
    for data in (b"", b"text \xd0\xb9\n\r\xe2\x80\xa8", b"\xff\x00\n", b'{"a": 1}'):
        fake.publish(data)
    lines = [line_of(event_of(message)) for message in fake.stored]
    assert [event.payload() for event in events_in(lines, "f")] == [message.data for message in fake.stored]


def test_a_payload_that_is_missing_is_told_with_its_sequence(kit: PipelineKit) -> None:
    from dataclasses import replace

    kit.fake.stored[4] = replace(kit.fake.stored[4], data=None)
    with pytest.raises(MtsError, match="message 5"):
        ingested(kit)


def event(data: bytes, **headers: str) -> Event:
    fake = PipelineKit(Path("/nonexistent")).fake
    fake.publish(data, headers)
    return event_of(fake.stored[0])


@pytest.mark.parametrize(
    ("data", "key", "found"),
    [
        (b"", "header:customer", "ann"),
        (b"", "header:other", "1"),
        (b'{"id": "x"}', "field:id", "x"),
        (b'{"id": 5}', "field:id", "5"),
        (b'{"id": {}}', "field:id", "1"),
        (b"[1]", "field:id", "1"),
        (b"\xff", "field:id", "1"),
    ],
)
def test_a_key_is_a_header_or_a_field_or_the_sequence(data: bytes, key: str, found: str) -> None:
    assert key_of(event(data, customer="ann"), check_key(key)) == found


def test_the_shard_of_a_key_never_changes() -> None:
    assert [shard_of(key, (0, 1, 2, 3)) for key in ("ann", "bob", "eve", "", "ключ")] == [2, 2, 3, 0, 0]
    assert {shard_of(str(number), (3, 8)) for number in range(50)} == {3, 8}


def test_a_task_that_fails_is_marked_and_the_next_is_done(kit: PipelineKit) -> None:
    ingested(kit)
    run_splitter(kit.client, kit.files, MANNER)

    def touchy(events: Iterable[tuple[str, Event]]) -> list[Mapping[str, Any]]:
        keys = {key for key, _ in events}
        if "k0" in keys:
            raise ValueError("k0 is not welcome")
        return [{"key": key} for key in sorted(keys)]

    outcome = run_worker(kit.client, kit.files, touchy, MANNER)
    assert (outcome.done, outcome.failed) == (1, 1)
    failed = next(shard for shard in kit.fake.pipeline.file(FILE).shards if shard.errors)
    assert failed.errors == {WORKER: "ValueError: k0 is not welcome"}
    kit.fake.pipeline.retry(WORKER, FILE, failed.shard)
    assert run_worker(kit.client, kit.files, by_key, MANNER).done == 1
    assert sent(kit).done == 2


@pytest.mark.parametrize("row", [None, [], {"k": 1}, {"key": 1}])
def test_a_row_without_a_key_fails_the_task(kit: PipelineKit, row: Any) -> None:
    ingested(kit)
    run_splitter(kit.client, kit.files, MANNER)
    outcome = run_worker(kit.client, kit.files, lambda _: [row], MANNER)
    assert (outcome.failed, outcome.tasks[0]["error"][:8]) == (2, "bad_row:")


def test_a_part_that_is_down_ends_the_run_and_leaves_the_task(kit: PipelineKit) -> None:
    ingested(kit)

    def down(_: Work) -> dict[str, Any]:
        raise unavailable("the database does not answer")

    with pytest.raises(MtsError, match="does not answer"):
        run_daemon(kit.client, SPLITTER, down, MANNER)
    assert run_splitter(kit.client, kit.files, MANNER).done == 1
    kit.pass_time(61)
    assert run_splitter(kit.client, kit.files, MANNER).done == 1


def test_who_lost_its_task_says_so_and_goes_on(kit: PipelineKit) -> None:
    ingested(kit)

    def slow(task: Work) -> dict[str, Any]:
        kit.pass_time(61)
        claim = tracking.start(SPLITTER, Claim("other", 60))
        asyncio.run(kit.store.change(task.filename, task.shard, claim))
        return {}

    outcome = run_daemon(kit.client, SPLITTER, slow, Manner("slow", limit=1))
    assert (outcome.lost, outcome.done) == (1, 0)


def test_a_long_task_keeps_its_lease(kit: PipelineKit) -> None:
    ingested(kit)
    renewed: list[float] = []

    def long(task: Work) -> dict[str, Any]:
        kit.pass_time(0.5)
        before = asyncio.run(kit.store.file(task.filename))[task.shard].lease_until
        while asyncio.run(kit.store.file(task.filename))[task.shard].lease_until == before:
            pass
        renewed.append(1)
        return {}

    assert run_daemon(kit.client, SPLITTER, long, Manner("long", lease=1)).done == 2
    assert len(renewed) == 2


def test_a_run_waits_for_what_others_hold(kit: PipelineKit) -> None:
    ingested(kit)
    asyncio.run(kit.store.change(FILE, 0, tracking.start(SPLITTER, Claim("dead", 60))))
    assert run_splitter(kit.client, kit.files, MANNER).done == 1

    original = kit.fake.pipeline.summary

    def later() -> Any:
        found = original()
        kit.pass_time(61)
        return found

    kit.fake.pipeline.summary = later  # type: ignore[method-assign]
    assert run_splitter(kit.client, kit.files, Manner("patient", lease=60, wait=30)).done == 1
    assert run_splitter(kit.client, kit.files, Manner("patient", lease=60, wait=30)).tasks == []


def test_a_function_is_found_by_its_name() -> None:
    assert load_function("minitoolstream.pipeline.aggregate:by_key") is by_key
    for wrong in ("nothing", "no.such.module:x", "minitoolstream.pipeline.aggregate:nothing", "os:name", ":x"):
        with pytest.raises(MtsError) as caught:
            load_function(wrong)
        assert caught.value.code == "bad_request"


def test_a_damaged_file_is_told_by_its_line(kit: PipelineKit) -> None:
    with pytest.raises(MtsError, match="line 2 of f"):
        list(events_in([line_of(event(b"x")), b"{}\n"], "f"))


def test_owners_are_no_one_elses() -> None:
    names = {tracking.check_owner(new_owner(WORKER)) for _ in range(100)}
    assert len(names) == 100


def test_memory_does_not_grow_with_a_file(kit: PipelineKit) -> None:
    import tracemalloc

    for number in range(3000):
        kit.fake.publish(b"%d" % number * 2000, {"key": f"k{number}"})

    def lengths(events: Iterable[tuple[str, Event]]) -> Iterable[Mapping[str, Any]]:
        return ({"key": key, "filler": "x" * len(event.payload())} for key, event in events)

    kit.now += timedelta(days=1)
    tracemalloc.start()
    try:
        ingested(kit, filename=FILE, shards=(0,))
        run_splitter(kit.client, kit.files, MANNER)
        run_worker(kit.client, kit.files, lengths, MANNER)
        run_daemon(kit.client, SENDER, lambda task: send(kit.files, task, Forgetful()), MANNER)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(len(block) for block in kit.files.blocks(events_name(FILE))) > 20_000_000
    assert {shard.mysql_sender_status for shard in kit.fake.pipeline.file(FILE).shards} == {"done"}
    assert peak < 4_000_000


class Forgetful:
    """A database that keeps nothing."""

    def replace(self, _filename: str, _shard: int, rows: Iterable[tuple[str, str]]) -> None:
        for _ in rows:
            pass

    def close(self) -> None: ...
