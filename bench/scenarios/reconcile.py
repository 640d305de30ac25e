"""The reconciler beside many open tickets: its cost follows what changed, not how many there are."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field

from bench.cores import with_core
from bench.errors import BenchError
from bench.measure import Bench
from bench.rows import Floor, Row
from bench.stack import Stack, running_stack
from minitoolstream.domain.upload import UploadSpec
from minitoolstream.services.core import Core
from minitoolstream.services.issue_tickets import Ticket, issue_tickets
from minitoolstream.services.reconcile_uploads import Summary, reconcile

SUBJECT = "bench.reconcile"
LEVELS, QUICK_LEVELS = (10_000, 100_000), (500, 2_000)
CAME, QUICK_CAME = 1_000, 50
SIZE = 100
FLAT = 1.5
_A_CALL = 1000
AT_ONCE = {"MTS_UPLOADS_FIRST_LOOK": "0s"}
"""Tickets that are due when they are made."""
LATER = {"MTS_UPLOADS_FIRST_LOOK": "1h"}
"""Who looks at one does not come back to it during the run."""


@dataclass
class Level:
    """Of one number of open tickets. `idle`: seconds of runs that had nothing to look at."""

    tickets: int
    looked: float = 0.0
    idle: list[float] = field(default_factory=list)
    committed: float = 0.0


def run(bench: Bench) -> list[Row]:
    """On stacks of its own, whose hosts are stopped: else they would reconcile beside it, and hear of payloads."""
    levels = [_measure(bench, count) for count in (QUICK_LEVELS if bench.quick else LEVELS)]
    few, many = levels[0], levels[-1]
    rows = [row for level in levels for row in _rows(level, QUICK_CAME if bench.quick else CAME)]
    ratio = statistics.median(many.idle) / statistics.median(few.idle)
    return [
        *rows,
        Row(
            key="reconcile-flat",
            measure=f"reconcile: a run without anything due, {many.tickets:,} open tickets against {few.tickets:,}",
            unit="x",
            value=ratio,
            floor=Floor(FLAT, at_most=True),
            reference="1.0",
        ),
    ]


def _rows(level: Level, came: int) -> list[Row]:
    idle = [1000 * seconds for seconds in level.idle]
    name, count = f"{level.tickets // 1000}k" if level.tickets >= 1000 else str(level.tickets), f"{level.tickets:,}"
    return [
        Row(f"reconcile-due-{name}", f"reconcile: tickets looked at a second ({count}, all due)", "/s", level.looked),
        Row(
            key=f"reconcile-idle-{name}",
            measure=f"reconcile: a run beside {count} open tickets, none due",
            unit="ms",
            value=statistics.median(idle),
            rounds=idle,
        ),
        Row(
            f"reconcile-lost-{name}",
            f"reconcile: payloads whose event was lost, committed a second ({came:,} beside {count} open tickets)",
            "/s",
            level.committed,
        ),
    ]


def _measure(bench: Bench, count: int) -> Level:
    came = QUICK_CAME if bench.quick else CAME
    level = Level(count)
    with running_stack(bench.stack.workers) as stack:
        stack.host.stop()
        bench.say(f"taking {count:,} tickets")
        with_core(stack, lambda core: _tickets(core, count), **AT_ONCE)
        seconds, summary = _timed(stack)
        _expect(summary.looked, count, "looked at")
        level.looked = count / seconds
        level.idle = [_idle(stack) for _ in range(max(3, bench.rounds))]
        with_core(stack, lambda core: _lose_events(core, came), **AT_ONCE)
        seconds, summary = _timed(stack)
        _expect(summary.committed, came, "committed")
        level.committed = came / seconds
    idle = 1000 * statistics.median(level.idle)
    bench.say(f"{count:,} open tickets: {level.looked:,.0f}/s looked at, {idle:.1f} ms a run when none is due")
    return level


def _idle(stack: Stack) -> float:
    seconds, summary = _timed(stack)
    _expect(summary.looked, 0, "looked at")
    return seconds


def _expect(found: int, expected: int, what: str) -> None:
    if found != expected:
        raise BenchError(f"{found} of {expected} uploads were {what}")


def _timed(stack: Stack) -> tuple[float, Summary]:
    """One run, without what opening its connections takes."""

    async def work(core: Core) -> tuple[float, Summary]:
        await core.metadata.check()
        await core.payloads.check()
        begun = time.perf_counter()
        summary = await reconcile(core)
        return time.perf_counter() - begun, summary

    return with_core(stack, work, **LATER)


async def _tickets(core: Core, count: int) -> list[str]:
    """The names of the objects that are announced."""
    await core.ceiling.keep()
    names: list[str] = []
    while len(names) < count:
        specs = [UploadSpec(SIZE, "text/plain")] * min(_A_CALL, count - len(names))
        for issued in await issue_tickets(core, SUBJECT, specs):
            assert isinstance(issued, Ticket)
            names.append(issued.upload.object_name)
    return names


async def _lose_events(core: Core, count: int) -> None:
    for name in await _tickets(core, count):
        await core.payloads.put_new(name, bytes(SIZE), content_type="text/plain")
