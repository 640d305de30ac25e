from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from minitoolstream.domain.errors import MtsError
from minitoolstream.stack import processes
from minitoolstream.stack.processes import (
    Launch,
    ProcessId,
    kill_orphans,
    send,
    start,
    stop,
    tail,
    wait_gone,
    wait_until_ready,
)

_SLEEP = ["sleep", "600"]
_DEAF = [
    sys.executable,
    "-c",
    "import signal,time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)",
]
_PARENT = ["sh", "-c", "sleep 600 & echo child $!; wait"]


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    return Launch("a server", _SLEEP, tmp_path / "logs" / "server.log")


@pytest.fixture
def started(launch: Launch) -> Iterator[ProcessId]:
    process = start(launch)
    yield process
    stop(process, grace=0)


def until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_started_process_is_a_session_of_its_own(started: ProcessId) -> None:
    assert started.alive()
    assert os.getsid(started.pid) == started.pid


def test_a_stopped_process_is_gone_and_can_be_stopped_again(started: ProcessId) -> None:
    assert stop(started)
    assert not started.alive()
    assert not stop(started)


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(launch: Launch) -> None:
    deaf = replace(launch, command=_DEAF)
    process = start(deaf)
    until(lambda: tail(deaf.log))
    assert stop(process, grace=0.1)
    assert not process.alive()


def test_a_reused_pid_is_never_killed(started: ProcessId) -> None:
    same_pid_earlier_life = msgspec.structs.replace(started, started=started.started - 1)
    assert not same_pid_earlier_life.alive()
    assert not stop(same_pid_earlier_life)
    assert not send(same_pid_earlier_life, signal.SIGKILL)
    assert started.alive()


def test_a_pid_of_before_the_reboot_is_never_killed(started: ProcessId) -> None:
    before = msgspec.structs.replace(started, boot="another boot")
    assert not stop(before)
    assert started.alive()


def test_a_dead_process_that_waits_to_be_reaped_counts_as_gone(started: ProcessId) -> None:
    os.kill(started.pid, signal.SIGKILL)
    assert wait_gone(started, 10)


def test_workers_of_a_killed_process_are_killed_too(launch: Launch) -> None:
    parent = replace(launch, command=_PARENT)
    process = start(parent)
    until(lambda: tail(parent.log))
    worker = int(tail(parent.log)[0].split()[1])
    send(process, signal.SIGKILL)
    wait_gone(process, 10)
    assert processes._stat(worker) is not None
    kill_orphans(process)
    until(lambda: processes._stat(worker) is None)


def test_output_is_appended_to_a_log_only_its_owner_reads(launch: Launch) -> None:
    for text in ("first", "second"):
        process = start(replace(launch, command=["echo", text]))
        wait_gone(process, 10)
    assert tail(launch.log) == ["first", "second"]
    assert launch.log.stat().st_mode & 0o777 == 0o600


def test_sleeps_of_a_process_may_be_longer_and_those_of_who_starts_it_stay_as_they_are(launch: Launch) -> None:
    command = ["cat", "/proc/self/timerslack_ns"]
    own = Path(f"/proc/{threading.get_native_id()}/timerslack_ns")
    before = own.read_text()
    process = start(replace(launch, command=command, timer_slack=0.0005))
    assert wait_gone(process, 10)
    assert launch.log.read_text() == "500000\n"
    assert own.read_text() == before


def test_a_process_that_dies_while_starting_is_an_error_with_the_end_of_this_run_s_log(launch: Launch) -> None:
    launch.log.parent.mkdir()
    launch.log.write_text("of an earlier run\n")
    failing = replace(launch, command=["sh", "-c", "echo no such disk; exit 3"])
    size = launch.log.stat().st_size
    with pytest.raises(MtsError) as caught:
        wait_until_ready(start(failing), failing, lambda: False, timeout=10, log_from=size)
    assert caught.value.code == "start_failed"
    assert caught.value.details["log_tail"] == ["no such disk"]


def test_a_process_that_is_never_ready_is_an_error(started: ProcessId, launch: Launch) -> None:
    with pytest.raises(MtsError, match="not ready within"):
        wait_until_ready(started, launch, lambda: False, timeout=0.05)


def test_a_missing_program_is_a_clear_error(launch: Launch) -> None:
    with pytest.raises(MtsError, match="cannot be started"):
        start(replace(launch, command=["/no/such/program"]))


def test_secrets_in_the_environment_are_not_shown(launch: Launch) -> None:
    assert "hush" not in repr(replace(launch, environ={"PASSWORD": "hush"}))
