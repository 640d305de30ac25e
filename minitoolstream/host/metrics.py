"""What Prometheus sees. Names follow section 9.6 of the specification where they fit.

A worker counts in plain dictionaries and puts a snapshot on the shared board now and then; a scrape adds up
the snapshots of all workers, whichever of them answers it. They only grow: no scrape sees a counter fall.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from time import time
from typing import Any

import msgspec
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from minitoolstream.host.board import Board

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
INGRESS, EGRESS, WEBHOOK, HOST = "ingress", "egress", "webhook", "host"
SIDES = {
    INGRESS: "publishing: tickets, receipts, inline and batch messages",
    EGRESS: "reading: messages and their download URLs",
    WEBHOOK: "events of the object store",
    HOST: "everything else: health, metrics, pages, administration",
}
GAUGES = {
    "missing_payload_rows": "rows whose payload is missing in the object store",
    "journal_behind": "sequences that the journal in the bucket does not hold yet",
    "journal_behind_seconds": "age of the first of them",
}
_PARTS = {"tarantool": "calls to Tarantool", "minio": "requests to the object store"}

Labels = tuple[str, ...]


class Snapshot(msgspec.Struct, array_like=True):
    """Everything one worker counted since the host started."""

    requests: dict[tuple[str, str, int], int] = {}
    durations: dict[str, list[float]] = {}
    operations: dict[tuple[str, str, str], int] = {}
    rejected: dict[str, int] = {}
    committed: int = 0
    delivered: int = 0
    connections: int = 0
    streams: int = 0
    expired: int = 0
    deleted: int = 0
    gauges: dict[str, tuple[float, float]] = {}

    def add(self, other: Snapshot) -> None:
        _add(self.requests, other.requests)
        _add(self.operations, other.operations)
        _add(self.rejected, other.rejected)
        for side, counts in other.durations.items():
            mine = self.durations.setdefault(side, _no_durations())
            mine[:] = map(sum, zip(mine, counts, strict=True))
        self.committed += other.committed
        self.delivered += other.delivered
        self.connections += other.connections
        self.streams += other.streams
        self.expired += other.expired
        self.deleted += other.deleted
        for name, measured in other.gauges.items():
            self.gauges[name] = max(measured, self.gauges.get(name, measured))  # the newest


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Snapshot).decode


class Metrics:
    """The counters of the worker in one slot; a worker that takes over a slot goes on from what it held."""

    def __init__(self, board: Board, slot: int, connections: Callable[[], int] = lambda: 0) -> None:
        self._board = board
        self._slot = slot
        self.connections = connections
        self.streams = 0
        content = board.read(slot)
        self._now = _decode(content) if content else Snapshot()

    def request(self, side: str, method: str, status: int, seconds: float) -> None:
        now = self._now
        key = (side, method, status)
        try:
            now.requests[key] += 1
            durations = now.durations[side]
        except KeyError:
            now.requests[key] = 1
            durations = now.durations.setdefault(side, _no_durations())
        durations[bisect_left(BUCKETS, seconds)] += 1
        durations[-1] += seconds

    def operation(self, part: str, operation: str, status: str) -> None:
        operations = self._now.operations
        key = (part, operation, status)
        operations[key] = operations.get(key, 0) + 1

    def rejected(self, reason: str) -> None:
        self._now.rejected[reason] = self._now.rejected.get(reason, 0) + 1

    def committed(self, count: int) -> None:
        self._now.committed += count

    def delivered(self, count: int) -> None:
        self._now.delivered += count

    def expired(self, count: int) -> None:
        self._now.expired += count

    def deleted(self, count: int) -> None:
        self._now.deleted += count

    def gauge(self, name: str, value: float) -> None:
        self._now.gauges[name] = (time(), value)

    def publish(self) -> None:
        """Show the other workers what was counted."""
        self._now.connections = self.connections()
        self._now.streams = self.streams
        self._board.write(self._slot, _encode(self._now))

    def render(self, more: Iterable[Metric] = ()) -> bytes:
        """The text of a scrape, over all workers; `more` is what others know."""
        return generate_latest(self.families(more))

    def families(self, more: Iterable[Metric] = ()) -> Collector:
        """The same in the words of prometheus_client."""
        self.publish()
        total = Snapshot()
        for slot in range(self._board.slots):
            if content := self._board.read(slot):
                total.add(_decode(content))
        return _Families(total, more)


class _Families(Collector):
    """A snapshot in the words of prometheus_client."""

    def __init__(self, total: Snapshot, more: Iterable[Metric]) -> None:
        self._total = total
        self._more = more

    def collect(self) -> Iterator[Metric]:
        total = self._total
        for side, about in SIDES.items():
            yield _requests(side, about, total.requests)
            if side in total.durations:
                yield _durations(side, about, total.durations[side])
        for part, about in _PARTS.items():
            yield _counter(
                f"minitoolstream_ingress_{part}_operations",
                about,
                ("operation", "status"),
                ((key[1:], count) for key, count in total.operations.items() if key[0] == part),
            )
        reasons = (((reason,), count) for reason, count in total.rejected.items())
        about = "events and objects that were not committed"
        yield _counter("minitoolstream_rejected_events", about, ("reason",), reasons)
        about = "messages that became visible"
        yield _counter("minitoolstream_commits", about, (), [((), total.committed)])
        about = "messages handed to readers"
        yield _counter("minitoolstream_egress_messages_delivered", about, (), [((), total.delivered)])
        about = "open connections of clients"
        yield GaugeMetricFamily("minitoolstream_ingress_active_connections", about, value=total.connections)
        for name, about in GAUGES.items():
            if name in total.gauges:
                yield GaugeMetricFamily(f"minitoolstream_{name}", about, value=total.gauges[name][1])
        about = "open streams of events"
        yield GaugeMetricFamily("minitoolstream_egress_open_streams", about, value=total.streams)
        about = "messages that had their time and went"
        yield _counter("minitoolstream_expired_messages", about, (), [((), total.expired)])
        about = "objects deleted from the bucket"
        yield _counter("minitoolstream_deleted_objects", about, (), [((), total.deleted)])
        yield from self._more


def _requests(side: str, about: str, counts: dict[tuple[str, str, int], int]) -> Metric:
    # The specification labels publishing by status alone.
    names: Labels = ("status",) if side in {INGRESS, WEBHOOK} else ("method", "status")
    sums: dict[Labels, int] = {}
    for (of, method, status), count in counts.items():
        if of == side:
            key = (method, str(status))[-len(names) :]
            sums[key] = sums.get(key, 0) + count
    return _counter(f"minitoolstream_{side}_requests", f"requests, {about}", names, sums.items())


def _durations(side: str, about: str, counts: list[float]) -> Metric:
    running, buckets = 0.0, []
    for bound, count in zip([*map(str, BUCKETS), "+Inf"], counts, strict=False):
        running += count
        buckets.append((bound, running))
    return HistogramMetricFamily(
        f"minitoolstream_{side}_request_duration_seconds",
        f"time to answer, {about}",
        buckets,
        sum_value=counts[-1],
    )


def _counter(name: str, about: str, names: Labels, values: Iterable[tuple[Labels, int]]) -> Metric:
    family = CounterMetricFamily(name, about, labels=names)
    for labels, count in values:
        family.add_metric(labels, count)
    return family


def _no_durations() -> list[float]:
    """A count for each bucket, one for what is above them all, and the sum of seconds."""
    return [0.0] * (len(BUCKETS) + 2)


def _add(into: dict[Any, int], other: dict[Any, int]) -> None:
    for key, count in other.items():
        into[key] = into.get(key, 0) + count
