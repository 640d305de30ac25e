"""The pipeline's seven endpoints as its specification has them, and what it leaves open; on fakes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import msgspec
import pytest

from minitoolstream.host.app import Host, Wiring
from minitoolstream.host.board import Board
from minitoolstream.host.functions import load_functions
from minitoolstream.host.metrics import Metrics
from tests.core_kit import core_kit
from tests.unit.host_client import TOKEN, WEBHOOK_TOKEN, Answer, call

BASE = "/api/v1/pipeline"
FILE = "20250101000000"
TASK = {"filename": FILE, "shard": 0}


class Api:
    def __init__(self, host: Host) -> None:
        self._host = host

    async def __call__(self, method: str, path: str, body: Any = None) -> Answer:
        raw = b"" if body is None else msgspec.json.encode(body)
        return await call(self._host, method, BASE + path, raw, headers={"content-type": "application/json"})

    async def get(self, path: str) -> Any:
        answer = await self("GET", path)
        assert answer.status == 200, answer.body
        return answer.json

    async def post(self, path: str, **body: Any) -> Any:
        answer = await self("POST", path, body)
        assert answer.status == 200, answer.body
        return answer.json

    async def written(self, *shards: int) -> None:
        await self.post("/files/register", filename=FILE, shards=list(shards or (0, 1)))
        await self.post("/stages/event-ingest/done", filename=FILE)

    async def pass_stage(self, stage: str, shard: int = 0) -> None:
        for transition in ("start", "done"):
            await self.post(f"/stages/{stage}/{transition}", filename=FILE, shard=shard)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    kit = core_kit(server__token=TOKEN, server__webhook_token=WEBHOOK_TOKEN)

    async def open_core(*_: Any) -> Any:
        return kit.core

    host = Host(kit.core.settings, load_functions(), Metrics(Board(1), 0), Wiring(open_core))
    await host.start()
    yield Api(host)
    await host.stop()


async def test_a_file_is_registered_and_again_without_effect(api: Api) -> None:
    first = await api.post("/files/register", filename=FILE, shards=[0, 1])
    assert first == {"filename": FILE, "shards": [0, 1], "created": True}
    again = await api.post("/files/register", filename=FILE, shards=[0, 1])
    assert again == {"filename": FILE, "shards": [0, 1], "created": False}
    more = await api.post("/files/register", filename=FILE, shards=[1, 2, 2])
    assert more == {"filename": FILE, "shards": [1, 2], "created": True}
    assert [one["shard"] for one in (await api.get(f"/files/{FILE}"))["shards"]] == [0, 1, 2]


async def test_the_end_of_writing_is_marked_for_all_shards(api: Api) -> None:
    await api.post("/files/register", filename=FILE, shards=[0, 1])
    assert await api.post("/stages/event-ingest/done", filename=FILE) == {"filename": FILE, "updated_rows": 2}
    assert await api.post("/stages/event-ingest/done", filename=FILE) == {"filename": FILE, "updated_rows": 0}


@pytest.mark.parametrize("stage", ["shard-splitter", "shard-worker", "mysql-sender"])
async def test_a_stage_is_started_done_failed_and_retried(api: Api, stage: str) -> None:
    await api.written()
    for before in ("shard-splitter", "shard-worker", "mysql-sender"):
        if before == stage:
            break
        await api.pass_stage(before)
        await api.pass_stage(before, 1)
    for transition, status in (("start", "started"), ("fail", "failed"), ("retry", "new")):
        answer = await api.post(f"/stages/{stage}/{transition}", filename=FILE, shard=1)
        assert answer == {"filename": FILE, "shard": 1, "stage": stage, "status": status}
    for transition, status in (("start", "started"), ("done", "done"), ("done", "done")):
        answer = await api.post(f"/stages/{stage}/{transition}", **TASK)
        assert answer == {**TASK, "stage": stage, "status": status}


async def test_who_names_itself_learns_how_long_it_has(api: Api) -> None:
    await api.written()
    answer = await api.post("/stages/shard-splitter/start", **TASK, owner="host-1", lease=60)
    until = datetime.fromisoformat(answer.pop("lease_until"))
    assert answer == {**TASK, "stage": "shard-splitter", "status": "started", "owner": "host-1", "attempts": 1}
    assert until.tzinfo is not None
    other = await api("POST", "/stages/shard-splitter/done", {**TASK, "owner": "host-2"})
    assert (other.status, other.code) == (409, "lease_lost")
    await api.post("/stages/shard-splitter/done", **TASK, owner="host-1")


async def test_queues_have_the_fields_of_the_specification(api: Api) -> None:
    await api.written()
    await api.pass_stage("shard-splitter")
    queue = await api.get("/queues/shard-worker")
    created = queue["items"][0].pop("created_at")
    assert queue == {"stage": "shard-worker", "items": [TASK]}
    assert datetime.fromisoformat(created).tzinfo is not None
    assert created.endswith("Z")


async def test_a_queue_is_paged_and_bounded_by_time(api: Api) -> None:
    await api.written(0, 1, 2)
    assert [one["shard"] for one in (await api.get("/queues/shard-splitter?limit=2&offset=1"))["items"]] == [1, 2]
    for old in ("2020-01-01T00:00:00Z", "1577836800"):
        assert (await api.get(f"/queues/shard-splitter?updated_before={old}"))["items"] == []
    assert len((await api.get("/queues/shard-splitter?updated_before=2999-01-01"))["items"]) == 3


async def test_a_claim_starts_what_it_returns(api: Api) -> None:
    await api.written()
    queue = await api.get("/queues/shard-splitter?claim=true&limit=1&owner=host-1&lease=60")
    (item,) = queue["items"]
    assert (item["shard"], item["owner"], item["attempts"]) == (0, "host-1", 1)
    assert [one["shard"] for one in (await api.get("/queues/shard-splitter?claim=true"))["items"]] == [1]
    assert (await api.get("/queues/shard-splitter"))["items"] == []
    shards = (await api.get(f"/files/{FILE}?details=true"))["shards"]
    assert [one.get("owner") for one in shards] == ["host-1", None]
    assert all(one["lease_until"] for one in shards)


async def test_a_file_has_the_fields_of_the_specification_and_more_when_asked(api: Api) -> None:
    await api.written(0)
    await api.post("/stages/shard-splitter/start", **TASK, owner="host-1")
    await api.post("/stages/shard-splitter/fail", **TASK, owner="host-1", error="no space left")
    (shard,) = (await api.get(f"/files/{FILE}"))["shards"]
    assert datetime.fromisoformat(shard.pop("updated_at")).tzinfo is not None
    statuses = {
        "event_ingest_status": "done",
        "shard_splitter_status": "failed",
        "shard_worker_status": "new",
        "mysql_sender_status": "new",
    }
    assert shard == {"shard": 0, **statuses}
    (shard,) = (await api.get(f"/files/{FILE}?details=true"))["shards"]
    assert (shard["attempts"], shard["errors"]) == ({"shard-splitter": 1}, {"shard-splitter": "no space left"})


async def test_the_summary_covers_all_stages(api: Api) -> None:
    await api.written()
    await api.pass_stage("shard-splitter")
    none = {"new": 0, "started": 0, "done": 0, "failed": 0}
    assert await api.get("/metrics/summary") == {
        "total": 2,
        "by_stage": {
            "event_ingest": {**none, "done": 2},
            "shard_splitter": {**none, "new": 1, "done": 1},
            "shard_worker": {**none, "new": 2},
            "mysql_sender": {**none, "new": 2},
        },
        "by_shard": [{"shard": shard, "total": 1, "done": 0, "failed": 0} for shard in (0, 1)],
    }


async def test_files_are_listed_page_by_page(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.post("/files/register", filename=name, shards=[0])
    page = await api.get("/files?limit=2")
    assert ([one["filename"] for one in page["files"]], page["next"]) == (["c", "b"], "b")
    page = await api.get("/files?limit=2&before=b")
    assert ([one["filename"] for one in page["files"]], "next" in page) == (["a"], False)
    assert page["files"][0]["by_stage"]["event_ingest"]["started"] == 1
    assert await api.get("/files?before=a") == {"files": []}


async def test_a_conflict_names_the_status_and_what_is_allowed(api: Api) -> None:
    await api.written()
    early = await api("POST", "/stages/mysql-sender/start", TASK)
    assert (early.status, early.code) == (409, "stage_conflict")
    details = early.json["error"]["details"]
    assert (details["status"], details["allowed"], details["waits_for"]) == ("new", [], "shard-worker")
    await api.post("/stages/shard-splitter/start", **TASK)
    second = await api("POST", "/stages/shard-splitter/start", TASK)
    details = second.json["error"]["details"]
    assert (second.status, details["status"], details["allowed"]) == (409, "started", ["done", "fail"])
    retried = await api("POST", "/stages/shard-splitter/retry", TASK)
    assert (retried.status, retried.json["error"]["details"]["status"]) == (409, "started")


@pytest.mark.parametrize(
    ("method", "path", "body", "allowed"),
    [
        ("POST", "/stages/shard-slicer/start", TASK, ["shard-splitter", "shard-worker", "mysql-sender"]),
        ("POST", "/stages/shard-slicer/retry", TASK, ["shard-splitter", "shard-worker", "mysql-sender"]),
        ("POST", "/stages/event-ingest/start", TASK, ["shard-splitter", "shard-worker", "mysql-sender"]),
        ("POST", "/stages/event-ingest/retry", TASK, ["shard-splitter", "shard-worker", "mysql-sender"]),
        ("POST", "/stages/shard-worker/finish", TASK, ["start", "done", "fail", "retry"]),
        ("GET", "/queues/event-ingest", None, ["shard-splitter", "shard-worker", "mysql-sender"]),
    ],
)
async def test_an_unknown_stage_or_transition_is_answered_with_the_known_ones(
    api: Api, method: str, path: str, body: Any, allowed: list[str]
) -> None:
    answer = await api(method, path, body)
    assert (answer.status, answer.code) == (400, "bad_request")
    assert answer.json["error"]["details"]["allowed"] == allowed


async def test_an_unknown_file_or_shard_is_not_found(api: Api) -> None:
    for method, path, body in (
        ("GET", f"/files/{FILE}", None),
        ("POST", "/stages/event-ingest/done", {"filename": FILE}),
        ("POST", "/stages/shard-worker/done", TASK),
        ("POST", "/stages/shard-worker/retry", TASK),
    ):
        answer = await api(method, path, body)
        assert (answer.status, answer.code) == (404, "not_found"), path
    await api.written(3)
    answer = await api("POST", "/stages/shard-splitter/start", TASK)
    assert (answer.status, answer.json["error"]["details"]["allowed"]) == (404, [3])


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/files/register", {"filename": FILE}),
        ("POST", "/files/register", {"filename": FILE, "shards": []}),
        ("POST", "/files/register", {"filename": FILE, "shards": [-1]}),
        ("POST", "/files/register", {"filename": FILE, "shards": [2**31]}),
        ("POST", "/files/register", {"filename": FILE, "shards": ["0"]}),
        ("POST", "/files/register", {"filename": "../etc", "shards": [0]}),
        ("POST", "/files/register", {"filename": "register", "shards": [0]}),
        ("POST", "/files/register", {"filename": f"{FILE}\n", "shards": [0]}),
        ("POST", "/files/register", {"filename": f"{FILE}.event-ingest.txt", "shards": [0]}),
        ("POST", "/files/register", {"filename": FILE, "shards": [0], "more": 1}),
        ("POST", "/stages/event-ingest/done", {}),
        ("POST", "/stages/shard-worker/start", {"filename": FILE}),
        ("POST", "/stages/shard-worker/start", {**TASK, "owner": ""}),
        ("POST", "/stages/shard-worker/start", {**TASK, "owner": "два"}),
        ("POST", "/stages/shard-worker/start", {**TASK, "lease": 0}),
        ("GET", "/queues/shard-worker?limit=0", None),
        ("GET", "/queues/shard-worker?offset=-1", None),
        ("GET", "/queues/shard-worker?updated_before=soon", None),
        ("GET", "/queues/shard-worker?updated_before=99999999999999", None),
        ("GET", "/queues/shard-worker?claim=maybe", None),
        ("GET", "/queues/shard-worker?claim=true&offset=5", None),
        ("GET", "/queues/shard-worker?claim=true&lease=0", None),
        ("GET", "/queues/shard-worker?claim=true&owner=a%20b", None),
        ("GET", f"/queues/shard-worker?owner={'a' * 201}", None),
        ("GET", "/files/%2e%2e", None),
    ],
)
async def test_bad_input_is_refused_and_changes_nothing(api: Api, method: str, path: str, body: Any) -> None:
    answer = await api(method, path, body)
    assert (answer.status, answer.code) == (400, "bad_request"), answer.body
    assert (await api.get("/metrics/summary"))["total"] == 0


async def test_every_call_needs_the_token(api: Api) -> None:
    answer = await call(api._host, "GET", f"{BASE}/metrics/summary", token=None)
    assert answer.status == 401
