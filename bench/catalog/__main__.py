"""`python -m bench.catalog [--quick] [--pins N]`: the catalog against the bare driver and against plain copies, in the
same run, into bench/results/catalog.*"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from bench.catalog import bare
from minitoolstream.adapters.catalog.cql import CqlCatalog
from minitoolstream.adapters.catalog.peers import S3Peers
from minitoolstream.config import Settings, load_settings
from minitoolstream.domain.catalog_tables import BY_OWNER, OWNER_DAYS, PINS, PLACEMENTS
from minitoolstream.domain.cid import Cid, cid_of
from minitoolstream.domain.pin import Pin, Wish
from minitoolstream.ports.catalog import Change, Put
from minitoolstream.services.copy_content import key_of
from minitoolstream.services.list_pins import PinFilter, list_pins
from minitoolstream.services.manage_pins import create_pin
from minitoolstream.services.place_copies import listed
from minitoolstream.services.reconcile_copies import AT_ONCE, reconcile_copies
from tests.catalog_kit import ALICE, NOON, CatalogKit, catalog_kit
from tests.servers import MinioServer, start_cassandra, start_minio

RESULTS = Path(__file__).resolve().parents[1] / "results"
IN_FLIGHT = 32
FLOOR, COPY_FLOOR = 0.7, 0.8
KIB = 1024


class Bench:
    def __init__(self, kit: CatalogKit, settings: Settings, *, quick: bool, pins: int) -> None:
        self.kit = kit
        self.settings = settings
        self.quick = quick
        self.pins = pins
        self.rounds = 3 if quick else 5
        self.rows: list[dict[str, Any]] = []

    def add(self, measure: str, value: float, unit: str, floor: float | None = None, note: str = "") -> None:
        met = "" if floor is None else ("met" if value >= floor else "not met")
        self.rows.append({"measure": measure, "value": value, "unit": unit, "floor": floor, "met": met, "note": note})
        print(f"  {measure}: {value:.2f} {unit} {met} {note}", flush=True)

    async def statements(self) -> None:
        """Each statement by the adapter and by the driver itself, in turn."""
        store, count = self.kit.store, 300 if self.quick else 2000
        assert isinstance(store, CqlCatalog)
        driver = bare.Driver(self.settings["catalog.database"], IN_FLIGHT)
        found: dict[str, list[tuple[float, float]]] = {"insert": [], "get": [], "compare-and-set": [], "list": []}
        for number in range(self.rounds):
            ours = [_pin(f"ours {number} {at}") for at in range(count)]
            theirs = [_pin(f"theirs {number} {at}") for at in range(count)]
            found["insert"].append(
                (
                    await _rate([partial(store.put_new, PINS, pin.row()) for pin in ours]),
                    await asyncio.to_thread(driver.insert, [pin.row() for pin in theirs]),
                )
            )
            found["get"].append(
                (
                    await _rate([partial(store.get, PINS, pin.key) for pin in ours]),
                    await asyncio.to_thread(driver.get, [pin.key for pin in theirs]),
                )
            )
            found["compare-and-set"].append(
                (
                    await _rate([partial(store.put_if, PINS, _changed(pin), {"version": 1}) for pin in ours]),
                    await asyncio.to_thread(driver.change, [pin.key for pin in theirs]),
                )
            )
            entries: list[Change] = [listed(pin)[0] for pin in ours]
            await store.write_each(entries)
            day = ours[0].created_at.strftime("%Y-%m-%d")
            pages = max(10, count // 20)
            found["list"].append(
                (
                    await _rate([partial(store.page, BY_OWNER, ("alice", day), 100)] * pages),
                    await asyncio.to_thread(driver.page, ("alice", day), pages),
                )
            )
        for name, pairs in found.items():
            ratio = statistics.median(one / other for one, other in pairs)
            rate = statistics.median(one for one, _ in pairs)
            self.add(f"{name}, {IN_FLIGHT} in flight", ratio, "x bare driver", FLOOR, f"{rate:.0f}/s")
        driver.close()

    async def service(self) -> None:
        count = 200 if self.quick else 1000
        cids = [cid_of(f"service {at}".encode()) for at in range(count)]
        rate = await _rate([partial(create_pin, self.kit.core, ALICE, cid, Wish()) for cid in cids])
        self.add("a whole pin: row, placement, lists, queue, event, counters", rate, "pins/s")

    async def many(self) -> None:
        """Rows of many pins, written as they come; then an owner's list to its last page."""
        store, began, at_once = self.kit.store, time.monotonic(), 500
        memory = []
        base = self.kit.now
        for at in range(0, self.pins, at_once):
            changes: list[Change] = []
            for number in range(at, min(at + at_once, self.pins)):
                pin = _pin(f"many {number}", owner="many", created_at=base - timedelta(seconds=number))
                changes += [Put(PINS, pin.row()), listed(pin)[0]]
                changes.append(Put(PLACEMENTS, {**dict(zip(PLACEMENTS.key, pin.key, strict=True)), "actual": {"eu"}}))
                if number % 86_400 in (0, 43_200):
                    changes.append(listed(pin)[1])
            await store.write_each(changes)
            memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB)
        days = {(base - timedelta(seconds=number)).strftime("%Y-%m-%d") for number in range(0, self.pins, 3600)}
        await store.write_each([Put(OWNER_DAYS, {"owner": "many", "day": day}) for day in days])
        seconds = time.monotonic() - began
        self.add(f"{self.pins:,} pins loaded", self.pins / seconds, "pins/s", note=f"{seconds:.0f} s")
        tenth = max(1, len(memory) // 10)
        self.add(
            "memory at the end over that after a tenth",
            memory[-1] / memory[tenth - 1],
            "x",
            note=f"{memory[-1]:.0f} MiB",
        )
        await self._pages()

    async def _pages(self) -> None:
        times, cursor, seen = [], None, 0
        while True:
            began = time.monotonic()
            page = await list_pins(self.kit.core, "many", PinFilter(), 1000, cursor)
            times.append(time.monotonic() - began)
            seen += len(page.pins)
            cursor = page.next
            if cursor is None:
                break
        assert seen == self.pins, f"{seen} of {self.pins} were listed"
        part = max(1, len(times) // 10)
        ratio = statistics.median(times[-part - 1 : -1] or times[-1:]) / statistics.median(times[:part])
        self.add("last pages of a list over its first", ratio, "x", note=f"{len(times)} pages of 1,000")

    async def copies(self, peers: S3Peers, size: int, label: str) -> None:
        """What the reconciler copies a second, against the same copies by the same client without it."""
        count, ratios, rates = (120 if self.quick else 400), [], []
        source, plain = peers.payloads("a"), peers.payloads("plain")
        for number in range(self.rounds):
            bodies = [f"{label} {number} {at} ".encode().ljust(size, b"x") for at in range(count)]
            cids = [cid_of(body) for body in bodies]
            for cid, body in zip(cids, bodies, strict=True):
                await source.put_new(key_of(cid), body, content_type="application/octet-stream")

            async def copy(cid: Cid) -> None:
                body = await source.get_range(key_of(cid), 0, size - 1)
                assert cid_of(body) == cid
                await plain.put_new(key_of(cid), body, content_type="application/octet-stream")

            bare_rate = await _rate([partial(copy, cid) for cid in cids], AT_ONCE)
            for cid in cids:
                await create_pin(self.kit.core, ALICE, cid, Wish(rf=1, zones=frozenset({"target"})))
            self.kit.now += timedelta(seconds=5)
            began = time.monotonic()
            done = await reconcile_copies(self.kit.core)
            rate = done.copied / (time.monotonic() - began)
            assert done.copied == count, done
            ratios.append(rate / bare_rate)
            rates.append(rate)
            self.kit.now += timedelta(hours=1)
            await reconcile_copies(self.kit.core)
        note = f"{statistics.median(rates):.0f} copies/s, rounds {min(ratios):.2f} - {max(ratios):.2f}"
        self.add(f"reconciler, {label}", statistics.median(ratios), "x plain copies", COPY_FLOOR, note)


def _changed(pin: Pin) -> dict[str, Any]:
    return {"mh_prefix": pin.key[0], "cid_bin": pin.key[1], "version": 2, "rf": 2}


def _pin(name: str, **more: Any) -> Pin:
    now = more.pop("created_at", None) or NOON
    return Pin(cid_of(name.encode()), more.pop("owner", "alice"), 1, 0, 1, now, now)


async def _rate(calls: Sequence[Callable[[], Awaitable[object]]], in_flight: int = IN_FLIGHT) -> float:
    waiting = iter(calls)

    async def work() -> None:
        for call in waiting:
            await call()

    began = time.monotonic()
    await asyncio.gather(*(work() for _ in range(in_flight)))
    return len(calls) / (time.monotonic() - began)


def peers_of(folder: Path, servers: dict[str, MinioServer]) -> Settings:
    zones = {"a": "source", "b": "target", "plain": "plain"}
    place = {"a": servers["a"], "b": servers["b"], "plain": servers["b"]}
    environ = {
        "MTS_HOME": str(folder),
        "MTS_CATALOG_PEERS": ",".join(
            f"{name}={server.endpoint}/{'plain' if name == 'plain' else server.bucket}?zone={zones[name]}"
            for name, server in place.items()
        ),
        "MTS_CATALOG_PEER_KEYS": ",".join(
            f"{name}={server.root.access_key}:{server.root.secret_key}" for name, server in place.items()
        ),
    }
    return load_settings(environ, cwd=folder)


async def measure(folder: Path, *, quick: bool, pins: int) -> list[dict[str, Any]]:
    cassandra = start_cassandra(folder / "cassandra")
    servers = {name: start_minio(folder / name) for name in ("a", "b")}
    servers["b"].s3().create_bucket(Bucket="plain")
    try:
        environ = {"MTS_HOME": str(folder), "MTS_CATALOG_DATABASE": cassandra.url("bench")}
        settings = load_settings(environ, cwd=folder)
        kit = catalog_kit(folder, "eu", settings=settings)
        await kit.store.migrate()
        bench = Bench(kit, settings, quick=quick, pins=pins)
        await bench.statements()
        await bench.service()
        await bench.many()
        peers = S3Peers(peers_of(folder, servers))
        fresh = load_settings({**environ, "MTS_CATALOG_DATABASE": cassandra.url("copies")}, cwd=folder)
        bench.kit = catalog_kit(folder, settings=fresh)
        await bench.kit.store.migrate()
        bench.kit.core.peers = peers
        await bench.copies(peers, 10 * KIB, "10 KiB")
        await bench.copies(peers, 1024 * KIB, "1 MiB")
        await peers.close()
        await bench.kit.store.close()
        await kit.store.close()
        return bench.rows
    finally:
        for server in (cassandra, *servers.values()):
            server.kill()


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| measure | result | floor | | |", "|---|---:|---:|---|---|"]
    for row in rows:
        floor = "" if row["floor"] is None else f">= {row['floor']}"
        lines.append(
            f"| {row['measure']} | **{row['value']:.2f}** {row['unit']} | {floor} | {row['met']} | {row['note']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.catalog", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--pins", type=int, default=1_000_000, help="how many are loaded")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mts-bench-catalog-"))
    try:
        rows = asyncio.run(measure(folder, quick=given.quick, pins=given.pins))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    (RESULTS / "catalog.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    (RESULTS / "catalog.md").write_text(table(rows))


if __name__ == "__main__":
    main()
