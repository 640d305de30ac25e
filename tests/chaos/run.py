"""The cycles: wait for some work to be done, kill, start again, wait until it works; and now and then check all."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minitoolstream.stack.processes import Launch
from tests.chaos.crew import Crew
from tests.chaos.report import Summary
from tests.faults.audit import objects_in_bucket, objects_of_rows, status
from tests.faults.test_kill import kill
from tests.fsck import fsck
from tests.live import eventually, start_live
from tests.servers import Server, start_tarantool

MEMORY = 512 * 2**20
SETTINGS = {
    "MTS_RECONCILE_INTERVAL": "1s",
    "MTS_TICKS_INTERVAL": "500ms",
    "MTS_TTL_CHECK_INTERVAL": "500ms",
    "MTS_JOURNAL_INTERVAL": "500ms",
    "MTS_BACKUP_INTERVAL": "20s",
    "MTS_BACKUP_KEEP": "2",
    "MTS_UPLOADS_TICKET_LIFE": "15s",
    "MTS_UPLOADS_PRODUCER_TICKET_LIFE": "120s",
    "MTS_UPLOADS_PUT_GRACE": "1s",
    "MTS_UPLOADS_FIRST_LOOK": "1s",
    "MTS_PACKS_GRACE": "8s",
    "MTS_LOGGING_LEVEL": "info",
}
PARTS = ("host", "Tarantool", "MinIO", "sweeper")
MOST_BETWEEN = 40  # messages from one kill to the next, at most
FREEZES = 0.25
TWO_AT_ONCE = 0.15
WITHIN = 120.0

Say = Callable[[str], None]


@dataclass
class Sweeper(Server):
    """A process that sweeps all the time, beside the host's own schedule; ready when a run has ended."""

    _before: int = 0

    def start(self) -> None:
        self._before = self.runs()
        super().start()

    def runs(self) -> int:
        return self.log.read_text().count("swept\n") if self.log.exists() else 0

    def ready(self) -> bool:
        return self.runs() > self._before


class Chaos:
    """One stack, killed again and again. All that is decided by chance follows from the seed; how far each request had
    come when a part died does not."""

    def __init__(self, folder: Path, seed: int, say: Say) -> None:
        self.summary = Summary(seed)
        self._folder = folder
        self._say = say
        self._chance = random.Random(seed)
        self._begun = time.monotonic()
        self.live = start_live(
            folder / "stack",
            extra_env=SETTINGS,
            tarantool=start_tarantool(folder / "stack" / "tarantool", memory=MEMORY),
        )
        sweeper = Sweeper(
            Launch(
                "sweeper",
                [sys.executable, "-m", "tests.chaos.sweeper"],
                folder / "sweeper.log",
                environ={**self.live.environ, "MTS_HOME": str(folder / "sweeper")},
                folder=Path(__file__).parents[2],
            )
        )
        sweeper.start()
        live = self.live
        self._servers = dict(zip(PARTS, (live.hosts[0], live.tarantool, live.minio, sweeper), strict=True))

    def stop(self) -> None:
        self._servers["sweeper"].stop()
        self.live.stop()

    def run(self, cycles: int, check_every: int) -> Summary:
        """All cycles, in rounds; the first broken promise ends it."""
        parts = [PARTS[number % len(PARTS)] for number in range(cycles)]
        self._chance.shuffle(parts)
        for start in range(0, cycles, check_every):
            try:
                self._round(start, parts[start : start + check_every], cycles)
            except Exception as problem:  # it is the result
                self.summary.problems.append("".join(traceback.format_exception(problem)))
            if not self.summary.promises_kept():
                break
        else:
            self._end()
        self.summary.seconds = time.monotonic() - self._begun
        return self.summary

    def _round(self, start: int, parts: list[str], cycles: int) -> None:
        crew = Crew(self.live, f"r{start}", random.Random(self._chance.random()))
        with crew.at_work():
            for number, part in enumerate(parts, start + 1):
                if problem := crew.problem():
                    raise problem
                self._cycle(crew, part)
                done = self.summary.recoveries[part][-1]
                self._say(f"cycle {number} of {cycles}: {part} killed, works again after {done:.1f} s")
        self._say(f"checking after cycle {start + len(parts)}: {crew.name}")
        found = crew.check()
        self.summary.acknowledged += found.acknowledged
        self.summary.lost += found.faults.lost
        self.summary.doubled += found.faults.doubled
        self.summary.reordered += found.faults.reordered
        self.summary.left_over += found.left_over
        self._fsck()
        self._say(f"checked: {self.summary.acknowledged:,} messages so far, fsck {self.summary.verdicts[-1]}")

    def _cycle(self, crew: Crew, part: str) -> None:
        victims = [part]
        if self._chance.random() < TWO_AT_ONCE:
            victims += self._chance.sample([name for name in PARTS if name != part], 1)
        crew.inline.wait_for_more(self._chance.randint(1, MOST_BETWEEN))
        if self._chance.random() < FREEZES:
            # So that the kill surely meets what is under way.
            os.killpg(self._servers[part].pid, signal.SIGSTOP)
            if part != "sweeper":
                eventually(lambda: crew.inline.failed or crew.inline.stands_still(), WITHIN)
        killed_at = time.monotonic()
        for name in victims:
            kill(self._servers[name])
            self.summary.kills[name] += 1
        with ThreadPoolExecutor() as threads:  # at once: one may need the other to be ready
            list(threads.map(lambda name: self._servers[name].start(), victims))
        # So many that at least one was begun after the kill.
        crew.inline.wait_for_more(5)
        self.summary.recoveries.setdefault(part, []).append(time.monotonic() - killed_at)

    def _fsck(self) -> Any:
        report = fsck(self.live, self._folder, "--deep")
        self.summary.verdicts.append(report["verdict"])
        self.summary.left_over += [str(fault) for fault in report["faults"]]
        return report

    def _end(self) -> None:
        """Nobody works any more: nothing but the messages is left. Uploads that ended stay as long as their URLs."""
        self._say("settling: what nobody finished must go")
        try:
            eventually(self._is_settled, WITHIN, pause=1.0)
        except AssertionError:
            left = objects_in_bucket(self.live) ^ objects_of_rows(self.live)
            self.summary.left_over += sorted(left) or ["tickets, deletions or trash that nobody clears away"]
        self._fsck()

    def _is_settled(self) -> bool:
        self.live.reconcile()
        if status(self.live)["trash"] or objects_in_bucket(self.live) != objects_of_rows(self.live):
            return False
        report = fsck(self.live, self._folder, "--sample", "0")
        waits = report["deletions"] + report["objects"]["waiting"]["count"]
        return report.get("oldest_ticket") is None and not waits
