"""What a scrape tells of retention: how deep the trash is, who holds back what, when the last round ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.retention import Retention
from minitoolstream.services.core import Core
from minitoolstream.services.manage_retention import get_retention

_FRESH_FOR = 5.0
_WAIT = 2.0


class RetentionGauges:
    """Asked of Tarantool at most every few seconds, whoever scrapes. While it is down a scrape goes without them."""

    def __init__(self) -> None:
        self._read_at = float("-inf")
        self._told: Sequence[Metric] = ()

    async def read(self, core: Core) -> Sequence[Metric]:
        if time.monotonic() - self._read_at < _FRESH_FOR:
            return self._told
        try:
            self._told = tuple(_families(await asyncio.wait_for(get_retention(core), _WAIT)))
        except (MtsError, TimeoutError):
            self._told = ()
        self._read_at = time.monotonic()
        return self._told


def _families(found: Retention) -> Iterator[Metric]:
    yield _gauge("minitoolstream_trash_objects", "objects that wait to be deleted from the bucket", found.trash)
    late = max(0, found.time - found.trash_due_at) if found.trash_due_at is not None else 0
    yield _gauge("minitoolstream_trash_overdue_seconds", "how long the oldest of them has been due", late)
    if found.last_round_at is not None:
        about = "when all subjects had last been looked through for what has expired"
        yield _gauge("minitoolstream_last_sweep_timestamp_seconds", about, found.last_round_at)
    if found.drift_ms is not None:
        about = "Tarantool's clock before the object store's; nothing expires beyond 300"
        yield _gauge("minitoolstream_clock_drift_seconds", about, found.drift_ms / 1000)
    labels = ("subject", "durable")
    about = "messages that had their time and are held back by an important durable"
    messages = GaugeMetricFamily("minitoolstream_held_messages", about, labels=labels)
    size = GaugeMetricFamily("minitoolstream_held_bytes", "bytes of those messages", labels=labels)
    for hold in found.holds:
        messages.add_metric((hold.subject, hold.durable), hold.messages)
        size.add_metric((hold.subject, hold.durable), hold.bytes)
    yield messages
    yield size


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=value)
