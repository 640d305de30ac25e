"""Many pins loaded, in one run or in several, and an owner's list read to its last page."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from minitoolstream.domain.catalog_tables import PINS, PLACEMENTS
from minitoolstream.domain.cid import cid_of
from minitoolstream.domain.pin import Pin
from minitoolstream.ports.catalog import Change, Put
from minitoolstream.services.list_pins import PinFilter, list_pins
from minitoolstream.services.place_copies import listed
from tests.catalog_kit import NOON, CatalogKit

OWNER = "many"
_IN_FLIGHT = 4
_TOGETHER = 100
_AT_ONCE = 5000
Row = tuple[str, float, str, float | None, str]


@dataclass(frozen=True, slots=True)
class Load:
    """`folder` remembers how far it is; a run ends after `seconds`."""

    folder: Path
    pins: int
    seconds: float

    async def run(self, kit: CatalogKit) -> list[Row]:
        """Nothing until all are loaded."""
        samples = self._samples()
        done = int(samples[-1]["loaded"]) if samples else 0
        number = samples[-1]["run"] + 1 if samples else 1
        began, last = time.monotonic(), time.monotonic()
        while done < self.pins and time.monotonic() - began < self.seconds:
            upto = min(done + _AT_ONCE, self.pins)
            await _write(kit, done, upto)
            now = time.monotonic()
            sample = {"run": number, "loaded": upto, "seconds": now - last, "mib": _memory()}
            last, done = now, upto
            samples.append(sample)
            self._file.write_text(json.dumps(samples))
        print(f"  {done:,} of {self.pins:,} pins are loaded", flush=True)
        return [*_told(samples), *await _pages(kit, self.pins)] if done == self.pins else []

    @property
    def _file(self) -> Path:
        return self.folder / "load.json"

    def _samples(self) -> list[dict[str, float]]:
        return json.loads(self._file.read_text()) if self._file.exists() else []


def _memory() -> float:
    """MiB of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def _told(samples: list[dict[str, float]]) -> Iterator[Row]:
    """Each run begins with a small process: its memory is compared with its own after a tenth of it."""
    loaded, seconds = samples[-1]["loaded"], sum(sample["seconds"] for sample in samples)
    runs = [[one for one in samples if one["run"] == number] for number in {sample["run"] for sample in samples}]
    yield f"{loaded:,.0f} pins loaded", loaded / seconds, "pins/s", None, f"{seconds:.0f} s in {len(runs)} runs"
    grown = max(run[-1]["mib"] / run[len(run) // 10]["mib"] for run in runs)
    yield "memory at the end of a run over that after a tenth", grown, "x", None, f"{samples[-1]['mib']:.0f} MiB"


async def _write(kit: CatalogKit, first: int, upto: int) -> None:
    """Rows of pins as they are when their copies have been made, a pin a second backwards from noon."""
    parts = iter([(at, min(at + _TOGETHER, upto)) for at in range(first, upto, _TOGETHER)])

    async def work() -> None:
        for one, other in parts:
            await kit.store.write_each([change for number in range(one, other) for change in _rows(number)])

    await asyncio.gather(*(work() for _ in range(_IN_FLIGHT)))


def _rows(number: int) -> Iterator[Change]:
    at = NOON - timedelta(seconds=number)
    pin = Pin(cid_of(f"many {number}".encode()), OWNER, 1, 0, 1, at, at)
    yield Put(PINS, pin.row())
    yield Put(PLACEMENTS, {"mh_prefix": pin.key[0], "cid_bin": pin.key[1], "desired": {"eu"}, "actual": {"eu"}})
    entry, day = listed(pin)
    yield entry
    if number % 3600 == 0:
        yield day


async def _pages(kit: CatalogKit, pins: int) -> list[Row]:
    times, cursor, seen = [], None, 0
    while True:
        began = time.monotonic()
        page = await list_pins(kit.core, OWNER, PinFilter(), 1000, cursor)
        times.append(time.monotonic() - began)
        seen += len(page.pins)
        cursor = page.next
        if cursor is None:
            break
    assert seen == pins, f"{seen} of {pins} were listed"
    part = max(1, len(times) // 10)
    # The last one is not full.
    ratio = statistics.median(times[-part - 1 : -1] or times) / statistics.median(times[:part])
    note = f"{len(times):,} pages of 1,000, {statistics.median(times) * 1000:.0f} ms each"
    return [("last tenth of a list's pages over its first", ratio, "x", None, note)]
