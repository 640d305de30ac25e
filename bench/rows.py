"""A row of a result table, and when its floor is met."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec


class Floor(msgspec.Struct, frozen=True):
    """What a change must not fall below. It is printed, and decides nothing."""

    value: float
    at_most: bool = False

    def met(self, value: float) -> bool:
        return value <= self.value if self.at_most else value >= self.value


class Row(msgspec.Struct):
    """One measure. `value` is the median of `rounds` where there are rounds."""

    key: str
    measure: str
    unit: str
    value: float | None = None
    floor: Floor | None = None
    reference: str = ""
    rounds: Sequence[float] = ()
    rate: float | None = None
    base_rate: float | None = None
    latency_ms: Mapping[str, float] = {}
    base_latency_ms: Mapping[str, float] = {}
    note: str = ""
    failed: str = ""

    @property
    def verdict(self) -> str:
        if self.failed:
            return "not measured"
        if self.floor is None or self.value is None:
            return ""
        return "met" if self.floor.met(self.value) else "**not met**"


class GrowthPoint(msgspec.Struct):
    """Publish and fetch with `stored` messages already there; ratios are to raw PUTs, CPU is in us a request."""

    stored: int
    publish_ratio: float
    publish_ms: Mapping[str, float]
    publish_cpu: Mapping[str, float]
    fetch_ratio: float
    fetch_rate: float
    fetch_ms: Mapping[str, float]
    fetch_cpu: Mapping[str, float]
    arena_used: int


def median_latency(latencies: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Percentile by percentile, the median over the rounds."""
    return {name: statistics.median(one[name] for one in latencies) for name in ("p50", "p95", "p99")}
