"""Child processes that outlive the command which started them, found again by pid and start time."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess  # nosec B404
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from minitoolstream.domain.errors import MtsError

_POLL = 0.02
_TAIL_LINES = 20
_PR_SET_TIMERSLACK, _PR_GET_TIMERSLACK = 29, 30


class ProcessId(msgspec.Struct, frozen=True):
    """A pid is reused sooner or later; with boot and start time it names one process only."""

    pid: int
    started: int
    boot: str

    def alive(self) -> bool:
        stat = _stat(self.pid)
        return stat is not None and stat.started == self.started and self.boot == _boot_id()


@dataclass(frozen=True, slots=True)
class Launch:
    """What to run. `environ` is added to the caller's environment; it holds secrets, so it is never shown.
    `timer_slack`: by how many seconds its sleeps may be longer; as many as its starter's if it is None."""

    name: str
    command: Sequence[str]
    log: Path
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: Path | None = None
    timer_slack: float | None = None


def start(launch: Launch) -> ProcessId:
    """Start detached: no terminal, a session of its own, output appended to the log."""
    launch.log.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(launch.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        with _timer_slack(launch.timer_slack):
            child = subprocess.Popen(  # nosec B603
                list(launch.command),
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=handle,
                env={**os.environ, **launch.environ},
                cwd=launch.folder,
                start_new_session=True,
            )
    except OSError as error:
        raise MtsError("start_failed", f"{launch.name} cannot be started: {error}") from error
    finally:
        os.close(handle)
    # The child is left to run: without this, Python would warn about it when the object goes.
    child.returncode = 0
    stat = _stat(child.pid)
    return ProcessId(child.pid, stat.started if stat else 0, _boot_id())


@contextlib.contextmanager
def _timer_slack(seconds: float | None) -> Iterator[None]:
    """Of this thread; what it starts inherits it."""
    if seconds is None:
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    before = prctl(_PR_GET_TIMERSLACK, 0, 0, 0, 0)
    prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(int(seconds * 1e9)), 0, 0, 0)
    try:
        yield
    finally:
        if before > 0:  # what the kernel did not tell is not set
            prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(before), 0, 0, 0)


def wait_until_ready(
    process: ProcessId, launch: Launch, ready: Callable[[], bool], *, timeout: float, log_from: int = 0
) -> None:
    """Return when `ready` says so; else MtsError `start_failed` with the end of the log."""
    deadline = time.monotonic() + timeout
    while not ready():
        if not process.alive():
            raise _start_failed(launch, "ended while starting", log_from)
        if time.monotonic() > deadline:
            raise _start_failed(launch, f"was not ready within {timeout:.0f} s", log_from)
        time.sleep(_POLL)


def _start_failed(launch: Launch, what: str, log_from: int) -> MtsError:
    return MtsError(
        "start_failed",
        f"{launch.name} {what}",
        {"log": str(launch.log), "log_tail": tail(launch.log, since=log_from)},
    )


def stop(process: ProcessId, *, grace: float = 30.0) -> bool:
    """SIGTERM, then SIGKILL when the grace is over. False when it did not run any more.

    Never hits another process that got the same pid.
    """
    ran = send(process, signal.SIGTERM)
    if ran and not wait_gone(process, grace):
        send(process, signal.SIGKILL)
        wait_gone(process, grace)
    kill_orphans(process)
    return ran


def kill_orphans(process: ProcessId) -> None:
    """Kill the workers of a process that is gone: `start` made it the leader of a session of its own.

    While a session has members, the kernel gives its leader's number to nobody else.
    """
    if process.boot != _boot_id() or _stat(process.pid) is not None:
        return
    for entry in Path("/proc").glob("[0-9]*"):
        stat = _stat(int(entry.name))
        if stat and stat.session == process.pid and stat.started >= process.started:
            orphan = ProcessId(int(entry.name), stat.started, process.boot)
            if send(orphan, signal.SIGKILL):
                wait_gone(orphan, 5)


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Send a signal to exactly this process; False when it is gone."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        # Looked at after the handle was opened: from here on the handle cannot mean another process.
        if not process.alive():
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def wait_gone(process: ProcessId, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while process.alive():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    _reap(process.pid)
    return True


def tail(log: Path, lines: int = _TAIL_LINES, *, since: int = 0) -> list[str]:
    """The last lines of a log, looking no further back than byte `since`."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since, size - 64 * 1024))
            content = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return content.splitlines()[-lines:]


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


class _Stat(msgspec.Struct, frozen=True):
    session: int
    started: int


def _stat(pid: int) -> _Stat | None:
    """None when the process is gone, or only waits to be reaped. One whose other threads are still ending holds its
    files, and their locks, yet."""
    try:
        # The name in parentheses may itself hold spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] == "X" or (fields[0] == "Z" and _threads(pid) <= 1):
        return None
    return _Stat(session=int(fields[3]), started=int(fields[19]))


def _threads(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
