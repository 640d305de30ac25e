"""What is done again and again by the clock: one list for the host, which runs each job by its own schedule and lease,
and for the scheduled function, which runs them one after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from math import inf

from minitoolstream.config import Settings
from minitoolstream.services.core import Core
from minitoolstream.services.make_backup import backup_if_due
from minitoolstream.services.reconcile_uploads import reconcile
from minitoolstream.services.run_ticks import run_ticks
from minitoolstream.services.sweep_expired import sweep_expired
from minitoolstream.services.tend_catalog import DUTIES
from minitoolstream.services.write_journal import write_journal


@dataclass(frozen=True, slots=True)
class Job:
    """Its lease has its name. `interval` names the setting that says how often it runs. It answers how much of what it
    has done, and is safe to run twice at once, and to be killed anywhere."""

    name: str
    run: Callable[[Core], Awaitable[Mapping[str, int]]]
    interval: str
    longest_pause: float = inf

    def pause(self, settings: Settings) -> float | None:
        """Seconds between two runs; none when it is not to run at all."""
        return min(float(settings[self.interval]), self.longest_pause) or None


async def _reconcile(core: Core) -> Mapping[str, int]:
    return (await reconcile(core)).counts()


async def _expire(core: Core) -> Mapping[str, int]:
    return (await sweep_expired(core)).counts()


async def _write_journal(core: Core) -> Mapping[str, int]:
    return (await write_journal(core)).counts()


async def _back_up(core: Core) -> Mapping[str, int]:
    return (await backup_if_due(core)).counts()


# Apart, so that a store that does not answer holds up nothing but what needs it.
JOBS = (
    Job("ticks", run_ticks, "ticks.interval"),
    Job("sweep", _expire, "ttl.check_interval"),
    Job("reconcile", _reconcile, "reconcile.interval"),
    Job("journal", _write_journal, "journal.interval"),
    *(Job(name, duty, "catalog.interval") for name, duty in DUTIES.items()),
    # Whether one is due, the newest in the bucket says. One that failed is made up for soon.
    Job("backup", _back_up, "backup.interval", longest_pause=60.0),
)
