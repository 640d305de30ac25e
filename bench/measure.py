"""Interleaved rounds: every round runs each variant once, so that all see the same machine."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bench.api import Api, RawStore
from bench.errors import BenchError
from bench.generator import LoadGenerator, LoadResult, Plan
from bench.rows import Floor, Row, median_latency
from bench.stack import Stack


@dataclass(frozen=True)
class Sample:
    """One timed run of a variant, with the CPU seconds it took of each part."""

    result: LoadResult
    cpu: Mapping[str, float]


@dataclass(frozen=True)
class Variant:
    """A way to send the same load: `plan` before the clock starts, `check` the answers after it stopped."""

    name: str
    plan: Callable[[int], Plan]
    check: Callable[[LoadResult], None]
    warm_up: int = 100
    most: int = 20_000


@dataclass
class Bench:
    """What every scenario works with."""

    generator: LoadGenerator
    stack: Stack
    api: Api
    raw: RawStore
    rounds: int
    seconds: float
    quick: bool = False
    _sequences: set[int] = field(default_factory=set)

    def on(self, stack: Stack) -> Bench:
        """The same on another stack, which gives sequences of its own."""
        return replace(self, stack=stack, api=Api(stack.host.url, stack.token), _sequences=set())

    def say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def expect_new(self, receipts: Iterable[Mapping[str, object]]) -> None:
        """Every receipt is committed, and its sequence was given to nobody else in the whole run."""
        for receipt in receipts:
            if receipt.get("state") != "committed":
                raise BenchError(f"not committed: {receipt}")
            sequence = int(str(receipt["sequence"]))
            if sequence in self._sequences:
                raise BenchError(f"sequence {sequence} was given twice")
            self._sequences.add(sequence)

    def once(self, variant: Variant, count: int) -> Sample:
        plan = variant.plan(count)
        before = self.stack.cpu()
        result = self.generator.run(plan)
        after = self.stack.cpu()
        result.must_have_succeeded(plan.count)
        variant.check(result)
        return Sample(result, {part: after[part] - before[part] for part in after})

    def interleaved(self, title: str, variants: Sequence[Variant]) -> dict[str, list[Sample]]:
        """`rounds` samples of each variant, after a warm-up that finds how many operations fill a run."""
        counts = {}
        for variant in variants:
            rate = self.once(variant, variant.warm_up).result.rate
            counts[variant.name] = max(variant.warm_up, min(variant.most, int(rate * self.seconds)))
        samples: dict[str, list[Sample]] = {variant.name: [] for variant in variants}
        for number in range(self.rounds):
            # Another one goes first each time: the first after a pause meets an idle store.
            turn = number % len(variants)
            for variant in (*variants[turn:], *variants[:turn]):
                samples[variant.name].append(self.once(variant, counts[variant.name]))
            rates = ", ".join(f"{name} {runs[-1].result.rate:,.0f}/s" for name, runs in samples.items())
            self.say(f"{title}: round {number + 1} of {self.rounds}: {rates}")
        return samples


def ratios(ours: Sequence[Sample], base: Sequence[Sample]) -> list[float]:
    """Round by round, our rate against that of what we are compared with."""
    return [one.result.rate / other.result.rate for one, other in zip(ours, base, strict=True)]


def cpu_microseconds(samples: Sequence[Sample], part: str) -> list[float]:
    """Round by round, what one operation took of a part."""
    return [one.cpu[part] / one.result.succeeded * 1e6 for one in samples]


def ratio_row(
    key: str,
    measure: str,
    ours: Sequence[Sample],
    base: Sequence[Sample],
    *,
    unit: str = "raw",
    floor: float | None = None,
    reference: str = "",
    messages: int = 1,
    base_messages: int = 1,
    note: str = "",
) -> Row:
    """The median of per-round ratios of requests; `messages` a request make the rate one of messages."""
    found = ratios(ours, base)
    return Row(
        key=key,
        measure=measure,
        unit=unit,
        value=statistics.median(found),
        floor=Floor(floor) if floor else None,
        reference=reference,
        rounds=found,
        rate=statistics.median(one.result.rate for one in ours) * messages,
        base_rate=statistics.median(one.result.rate for one in base) * base_messages,
        latency_ms=median_latency([one.result.latency_ms for one in ours]),
        base_latency_ms=median_latency([one.result.latency_ms for one in base]),
        note=note,
    )
