"""Metrics over several workers, logs, the schedule, functions and what the host refuses to start with."""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import logging
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.api.app import Route
from minitoolstream.api.auth import BearerGuard
from minitoolstream.config import load_settings
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.host import logs, serve, supervisor
from minitoolstream.host.app import Host, Wiring
from minitoolstream.host.board import SLOT_BYTES, Board
from minitoolstream.host.functions import NAMES, Functions, load_functions
from minitoolstream.host.metrics import Metrics
from minitoolstream.host.schedules import Schedule
from minitoolstream.host.worker import STARTUP_FAILURE, Worker
from minitoolstream.ports import NoMetrics
from minitoolstream.request_id import request_id
from minitoolstream.services.jobs import Job
from tests.unit.host_client import FakeCore, call, echo, no_events, open_host, settings


def sample(text: bytes, name: str) -> float:
    (line,) = [line for line in text.decode().splitlines() if line.startswith(name + " ")]
    return float(line.split()[-1])


def test_a_scrape_of_any_worker_shows_all_of_them() -> None:
    board = Board(2)
    one, two = Metrics(board, 0, lambda: 3), Metrics(board, 1, lambda: 4)
    for worker in (one, two):
        worker.request("ingress", "publish", 201, 0.002)
        worker.request("egress", "messages", 200, 99.0)
        worker.operation("tarantool", "commit", "ok")
        worker.operation("minio", "put", "unavailable")
        worker.rejected("malformed")
        worker.committed(5)
        worker.delivered(7)
        worker.publish()
    one.gauge("missing_payload_rows", 3)
    two.gauge("missing_payload_rows", 2)  # measured later
    two.publish()
    text = one.render()
    assert text == two.render()
    assert sample(text, "minitoolstream_missing_payload_rows") == 2
    assert sample(text, 'minitoolstream_ingress_requests_total{status="201"}') == 2
    assert sample(text, 'minitoolstream_egress_requests_total{method="messages",status="200"}') == 2
    assert sample(text, "minitoolstream_ingress_request_duration_seconds_count") == 2
    assert sample(text, 'minitoolstream_ingress_request_duration_seconds_bucket{le="0.001"}') == 0
    assert sample(text, 'minitoolstream_ingress_request_duration_seconds_bucket{le="0.0025"}') == 2
    assert sample(text, 'minitoolstream_egress_request_duration_seconds_bucket{le="30.0"}') == 0
    assert sample(text, "minitoolstream_egress_request_duration_seconds_sum") == 198
    labels = '{operation="commit",status="ok"}'
    assert sample(text, f"minitoolstream_ingress_tarantool_operations_total{labels}") == 2
    labels = '{operation="put",status="unavailable"}'
    assert sample(text, f"minitoolstream_ingress_minio_operations_total{labels}") == 2
    assert sample(text, 'minitoolstream_rejected_events_total{reason="malformed"}') == 2
    assert sample(text, "minitoolstream_commits_total") == 10
    assert sample(text, "minitoolstream_egress_messages_delivered_total") == 14
    assert sample(text, "minitoolstream_ingress_active_connections") == 7


def test_counters_go_on_when_a_worker_is_replaced() -> None:
    board = Board(1)
    old = Metrics(board, 0, lambda: 9)
    old.committed(5)
    old.request("ingress", "publish", 201, 0.1)
    old.publish()
    new = Metrics(board, 0)
    new.committed(1)
    new.request("ingress", "publish", 201, 0.1)
    text = new.render()
    assert sample(text, "minitoolstream_commits_total") == 6
    assert sample(text, "minitoolstream_ingress_request_duration_seconds_count") == 2
    assert sample(text, "minitoolstream_ingress_active_connections") == 0


def test_a_worker_that_dies_while_writing_leaves_what_it_wrote_before() -> None:
    board = Board(1)
    board.write(0, b"first")
    board.write(0, b"second")
    for at in (board._memory.find(b"first"), board._memory.find(b"second")):
        kept = board._memory[at : at + 3]
        board._memory[at : at + 3] = b"???"
        assert board.read(0) in {b"first", b"second"}
        board._memory[at : at + 3] = kept
    assert board.read(0) == b"second"


def test_a_slot_refuses_more_than_it_holds() -> None:
    with pytest.raises(ValueError, match="more than a slot holds"):
        Board(1).write(0, b"x" * SLOT_BYTES)


def test_counting_may_be_left_out() -> None:
    nobody = NoMetrics()
    nobody.operation("minio", "put", "ok")
    nobody.rejected("malformed")
    nobody.committed(1)
    nobody.delivered(1)


async def test_requests_are_counted_by_side_and_status() -> None:
    host = await open_host()
    await call(host, "GET", "/v1/uploads/1")
    await call(host, "GET", "/v1/subjects/a/messages", token="wrong")
    await call(host, "GET", "/nothing")
    text = (await call(host, "GET", "/metrics", token=None)).body
    assert sample(text, 'minitoolstream_ingress_requests_total{status="200"}') == 1
    assert sample(text, 'minitoolstream_egress_requests_total{method="echo",status="401"}') == 1
    assert sample(text, 'minitoolstream_host_requests_total{method="none",status="404"}') == 1


async def test_snapshots_are_published_while_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitoolstream.host.app.PUBLISH_METRICS_EVERY", 0.001)
    host = await open_host()
    host.core.metrics.committed(3)
    other = Metrics(host.core.metrics._board, 0)
    async with asyncio.timeout(5):
        while b"minitoolstream_commits_total 3.0" not in other.render():
            await asyncio.sleep(0.005)
            other = Metrics(host.core.metrics._board, 0)
    await host.stop()


def written(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.strip()


@pytest.fixture
def root_logger() -> Any:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield root
    root.handlers = handlers
    root.setLevel(level)


def test_a_log_line_is_json_with_the_request_id(capsys: pytest.CaptureFixture[str], root_logger: Any) -> None:
    logs.configure(settings())
    token = request_id.set("r-1")
    logging.getLogger("mts.test").warning("a %s", "b", extra={"fields": {"status": 503}})
    request_id.reset(token)
    line = json.loads(written(capsys))
    assert line["message"] == "a b"
    assert (line["level"], line["logger"], line["request_id"], line["status"]) == ("warning", "mts.test", "r-1", 503)
    assert line["time"].endswith("Z")
    assert isinstance(line["pid"], int)


def test_logs_can_be_text(capsys: pytest.CaptureFixture[str], root_logger: Any) -> None:
    logs.configure(settings(logging__format="text", logging__level="DEBUG"))
    token = request_id.set("r-2")
    logging.getLogger("mts.test").debug("hello", extra={"fields": {"ms": 3}})
    request_id.reset(token)
    assert written(capsys).endswith("debug   hello ms=3 request_id=r-2")


@pytest.mark.parametrize("style", ["json", "text"])
def test_secrets_do_not_reach_the_logs(style: str, capsys: pytest.CaptureFixture[str], root_logger: Any) -> None:
    logs.configure(settings(logging__format=style))
    url = "http://s/b?X-Amz-Credential=AKIA%2F1&X-Amz-Signature=abc123&x=1"
    error = RuntimeError(f"PUT {url} with Authorization: Bearer swordfish")
    logging.getLogger("mts.test").error("failed: %s", url, exc_info=error)
    text = written(capsys)
    for secret in ("AKIA", "abc123", "swordfish"):
        assert secret not in text
    assert "X-Amz-Signature=[hidden]" in text


def core() -> Any:
    return FakeCore(settings(), Metrics(Board(1), 0))


def reconciler(run: Callable[[Any], Awaitable[Mapping[str, int]]]) -> Job:
    return Job("reconcile", run, "reconcile.interval")


async def test_the_reconciler_runs_on_one_worker_only() -> None:
    shared, ran = core(), []

    async def job(given: Any) -> dict[str, int]:
        ran.append(given)
        return {"committed": 1}

    first, second = Schedule(shared, reconciler(job), 10), Schedule(shared, reconciler(job), 10)
    assert [await first.once(), await second.once(), await first.once()] == [True, False, True]
    assert ran == [shared, shared]


async def test_a_store_that_hangs_does_not_hold_up_what_is_due_by_the_clock() -> None:
    ticked = asyncio.Event()

    async def open_core(given: Any, metrics: Any) -> FakeCore:
        return FakeCore(given, metrics)

    async def hangs(given: Any) -> dict[str, int]:
        await asyncio.Event().wait()
        return {}

    async def tick(given: Any) -> dict[str, int]:
        ticked.set()
        return {}

    often = settings(reconcile__interval=0.001, ticks__interval=0.001)
    jobs = (reconciler(hangs), Job("ticks", tick, "ticks.interval"))
    host = Host(often, Functions((), no_events), Metrics(Board(1), 0), Wiring(open_core, jobs))
    await host.start()
    await asyncio.wait_for(ticked.wait(), 5)
    ticked.clear()
    await asyncio.wait_for(ticked.wait(), 5)
    await host.stop()


async def test_a_failing_reconciler_is_tried_again() -> None:
    tries, enough = [], asyncio.Event()

    async def job(given: Any) -> dict[str, int]:
        tries.append(1)
        if len(tries) == 1:
            raise unavailable("Tarantool is down")
        if len(tries) == 2:
            raise RuntimeError("a bug")
        enough.set()
        return {}

    task = asyncio.create_task(Schedule(core(), reconciler(job), 0.001).run())
    await asyncio.wait_for(enough.wait(), 5)
    task.cancel()


async def test_a_long_run_keeps_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, leases, enough = core(), 0, asyncio.Event()

    async def take_lease(name: str, owner: str, seconds: float) -> bool:
        nonlocal leases
        leases += 1
        if leases == 4:
            enough.set()
        if leases == 2:
            raise unavailable("for a moment")
        return True

    async def job(given: Any) -> dict[str, int]:
        await asyncio.wait_for(enough.wait(), 5)
        return {}

    monkeypatch.setattr(shared.metadata, "take_lease", take_lease)
    schedule = Schedule(shared, reconciler(job), 10)
    schedule._lease_seconds = 0.003
    assert await schedule.once()


APP = """
from minitoolstream.api.app import App, answer
app = App("{name}")
@app.endpoint("GET", "/v1/{name}", "about {name}")
async def show(request):
    return answer("{name}")
async def handle_event(core, event, request_id):
    return {{"by": "{name}"}}
"""


def write_functions(folder: Path) -> None:
    for name in NAMES:
        (folder / name).mkdir()
        (folder / name / "app.py").write_text(APP.format(name=name))


async def test_functions_are_loaded_side_by_side(tmp_path: Path) -> None:
    write_functions(tmp_path)
    functions = load_functions(tmp_path)
    assert [(name, route.path) for name, route in functions.routes] == [(name, f"/v1/{name}") for name in NAMES]
    assert await functions.handle_event(None, {}, "1") == {"by": "on_object_created"}


def test_a_missing_function_is_named(tmp_path: Path) -> None:
    write_functions(tmp_path)
    (tmp_path / "fetch" / "app.py").unlink()
    with pytest.raises(MtsError, match="`fetch` is missing"):
        load_functions(tmp_path)


@pytest.mark.parametrize("token", ["", "two words", " padded "])
def test_a_token_is_one_word(token: str) -> None:
    with pytest.raises(MtsError, match="one word"):
        BearerGuard(token, "api")


@pytest.mark.parametrize("missing", ["server__token", "server__webhook_token"])
def test_the_host_does_not_start_without_a_token(missing: str) -> None:
    with pytest.raises(MtsError, match="is not set"):
        serve._check_tokens(settings(**{missing: None}))


def test_a_webhook_token_is_not_needed_where_events_come_by_queue() -> None:
    serve._check_tokens(settings(server__webhook_token=None, object_store__queue_url="http://q"))


def test_a_port_in_use_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "_BIND_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(MtsError, match=f"cannot listen on 127.0.0.1:{port}"):
            serve._listen("127.0.0.1", port)


def test_a_worker_that_ends_while_it_is_looked_at_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited_for: list[Any] = []

    class Ending:
        pid, sentinel = 1, 12345
        looks = iter([True])

        def is_alive(self) -> bool:
            return next(self.looks, False)

        def terminate(self) -> None: ...

        def join(self) -> None: ...

    monkeypatch.setattr(supervisor, "wait", lambda handles, _timeout: waited_for.extend(handles))
    stopping = supervisor.Supervisor(lambda _slot, _parent: None, 1, deadline=60, on_stop=lambda: None)
    stopping._wake.setblocking(False)
    stopping._workers[0].process = Ending()  # type: ignore[assignment]
    assert stopping._end_all()
    assert Ending.sentinel in waited_for


def test_a_signal_that_meets_a_worker_before_it_has_begun_ends_it() -> None:
    class Meeting(supervisor.Supervisor):
        def _in_child(self, slot: int) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            super()._in_child(slot)

    meeting = Meeting(lambda _slot, _parent: time.sleep(60), 1, deadline=60, on_stop=lambda: None)
    (worker,) = meeting._workers
    before = signal.signal(signal.SIGTERM, meeting._on_signal)
    try:
        meeting._start(worker)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert worker.process
    worker.process.join(20)
    ended = worker.process.exitcode
    worker.process.kill()
    assert ended == -signal.SIGTERM


async def test_a_worker_opens_its_core_at_the_start_and_closes_it_at_the_end() -> None:
    host = await open_host()
    assert not host.core.closed
    await host.stop()
    assert host.core.closed
    assert host.core.draining.is_set()


def test_a_worker_that_cannot_start_says_so() -> None:
    async def open_core(given: Any, metrics: Any) -> Any:
        raise MtsError("bad_config", "wrong")

    alive, held = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        worker = Worker(settings(), Functions((), no_events), Wiring(open_core), Board(1), listener, drain_seconds=1)
        process = multiprocessing.get_context("fork").Process(target=worker.run, args=(0, alive))
        # A fork has none of the threads that objects of gRPC, left by tests before, wait for when they are collected.
        gc.collect()
        process.start()
        process.join(30)
        ended = process.exitcode
        process.kill()
    assert ended == STARTUP_FAILURE
    os.close(alive)
    os.close(held)


def test_the_limits_of_the_settings_are_the_ones_of_the_routes() -> None:
    assert load_settings({"MTS_HOME": "/nonexistent"})["server.inline_limit"] == 4 * 1024 * 1024


async def test_a_route_without_a_name_is_still_counted() -> None:
    host = await open_host(("fetch", Route("GET", "/v1/thing", functools.partial(echo), "thing")))
    await call(host, "GET", "/v1/thing")
    text = (await call(host, "GET", "/metrics", token=None)).body
    assert sample(text, 'minitoolstream_egress_requests_total{method="/v1/thing",status="200"}') == 1
