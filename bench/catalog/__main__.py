"""`python -m bench.catalog [--quick] [--only PART] [--pins N]`: the catalog against the bare driver and against plain
copies, in the same run, and many pins loaded, into bench/results/catalog.*"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from bench import machine
from bench.catalog import bare, scripted
from bench.catalog.load import Load
from bench.processes import cpu_seconds
from minitoolstream.adapters.catalog.cql import CqlCatalog
from minitoolstream.adapters.catalog.peers import S3Peers
from minitoolstream.adapters.s3.client import S3Payloads
from minitoolstream.adapters.s3.sigv4 import SigV4
from minitoolstream.config import Settings, load_settings
from minitoolstream.domain.catalog_tables import BY_OWNER, PINS, PLACEMENTS
from minitoolstream.domain.cid import Cid, cid_of
from minitoolstream.domain.limits import KIB, MIB
from minitoolstream.domain.pin import Pin, Wish
from minitoolstream.ports import PayloadStore
from minitoolstream.ports.catalog import Change, Put
from minitoolstream.services.copy_content import key_of
from minitoolstream.services.manage_pins import create_pin
from minitoolstream.services.place_copies import assigned, listed, look_again, look_before
from minitoolstream.services.reconcile_copies import AT_ONCE, reconcile_copies
from minitoolstream.stack import cassandra
from minitoolstream.stack.ports import free_port
from tests.catalog_kit import ALICE, NOON, CatalogKit, catalog_kit
from tests.servers import MinioServer, start_cassandra, start_minio

RESULTS = Path(__file__).resolve().parents[1] / "results"
IN_FLIGHT = 32
FLOOR, COPY_FLOOR = 0.7, 0.8
PARTS = ("statements", "load", "copies", "copies-sqlite")
COUNTS = {10 * KIB: 6000, MIB: 1200, 16 * MIB: 120}
"""Copies of a round, by their size: some seconds, for claims and a look at each peer cost the same however many
there are."""
TYPE = "application/octet-stream"
HEAP = 2048 * cassandra.MIB
"""Of the engine: a third of what it would take by itself on 24 GiB. With that of the tests it mostly tidies up."""
WARM = 60_000
Call = Callable[[], Awaitable[object]]


class Bench:
    def __init__(self, kit: CatalogKit, settings: Settings, *, quick: bool) -> None:
        self.kit = kit
        self.settings = settings
        self.quick = quick
        self.rounds = 3 if quick else 5
        self.servers: dict[str, int] = {}
        """Their process ids, of those that take part in a copy."""

    def add(self, measure: str, value: float, unit: str, floor: float | None = None, note: str = "") -> None:
        met = "" if floor is None else ("met" if value >= floor else "not met")
        row = {"measure": measure, "value": value, "unit": unit, "floor": floor, "met": met, "note": note}
        if not self.quick:  # at once: a run that is ended early has told what it measured
            save([row])
        print(f"  {measure}: {value:.2f} {unit} {met} {note}", flush=True)

    async def statements(self) -> None:
        """Each statement by the adapter and by the driver itself, in turn."""
        store, count = self.kit.store, 300 if self.quick else 2000
        assert isinstance(store, CqlCatalog)
        driver = bare.Driver(self.settings["catalog.database"], IN_FLIGHT)
        found: dict[str, list[tuple[float, float]]] = {}
        for number in range(-1, self.rounds):  # the first warms up both
            ours = [_pin(f"ours {number} {at}") for at in range(count)]
            theirs = [_pin(f"theirs {number} {at}") for at in range(count)]
            entries: list[Change] = [listed(pin)[0] for pin in ours]
            await store.write_each(entries)
            day = ours[0].created_at.strftime("%Y-%m-%d")
            pages = count // 4
            pairs: dict[str, tuple[list[Call], Callable[[], float]]] = {
                "insert": (
                    [partial(store.put_new, PINS, pin.row()) for pin in ours],
                    partial(driver.insert, [pin.row() for pin in theirs]),
                ),
                "get": (
                    [partial(store.get, PINS, pin.key) for pin in ours],
                    partial(driver.get, [pin.key for pin in theirs]),
                ),
                "compare-and-set": (
                    [partial(store.put_if, PINS, _changed(pin), {"version": 1}) for pin in ours],
                    partial(driver.change, [pin.key for pin in theirs]),
                ),
                "list": (
                    [partial(store.page, BY_OWNER, ("alice", day), 100)] * pages,
                    partial(driver.page, ("alice", day), pages),
                ),
            }
            for name, (calls, bare_calls) in pairs.items():
                # By turns first: the engine is still getting faster.
                if number % 2:
                    other, one = await asyncio.to_thread(bare_calls), await _rate(calls)
                else:
                    one, other = await _rate(calls), await asyncio.to_thread(bare_calls)
                if number >= 0:
                    found.setdefault(name, []).append((one, other))
        for name, rates in found.items():
            ratio = statistics.median(one / other for one, other in rates)
            rate = statistics.median(one for one, _ in rates)
            self.add(f"{name}, {IN_FLIGHT} in flight", ratio, "x bare driver", FLOOR, f"{rate:.0f}/s")
        driver.close()

    async def service(self) -> None:
        count = 200 if self.quick else 1000
        cids = [cid_of(f"service {at}".encode()) for at in range(count)]
        rate = await _rate([partial(create_pin, self.kit.core, ALICE, cid, Wish()) for cid in cids])
        self.add("a whole pin: row, placement, lists, queue, event, counters", rate, "pins/s")

    async def warm_up(self, contents: int) -> None:
        """A JVM takes long to be as fast as it gets: the reconciler's statements, its stores in memory."""
        kit = self.kit
        for peer, zone in (("a", "source"), ("b", "target")):
            kit.peers.add(peer, zone)
        for number in range(0, contents, 500):
            bodies = [f"warm {number + at}".encode() for at in range(500)]
            for body in bodies:
                kit.kit.payloads.client_put(key_of(cid_of(body)), body)
            await self._wanted([_of_content(cid_of(one), len(one), from_peer=False) for one in bodies], from_peer=False)
            assert (await reconcile_copies(kit.core)).copied == len(bodies)

    async def copies(
        self, peers: S3Peers, servers: dict[str, MinioServer], size: int, label: str, *, from_peer: bool = False
    ) -> None:
        """What the reconciler copies a second, against the same copies without it, as many at once: those that a script
        makes with boto3 (a third of them, for it takes longer), and those of the reconciler's own client."""
        found: dict[str, list[float]] = {"reconciled": [], "boto3": [], "bare": []}
        costs: dict[str, list[dict[str, float]]] = {"reconciled": [], "bare": []}
        core = self.kit.core
        count = COUNTS[size] // (3 if self.quick else 1)
        source, plain = (peers.payloads("a") if from_peer else core.payloads), peers.payloads("plain")
        bucket = servers["a"].bucket if from_peer else "messages"
        for number in range(-1, self.rounds):
            cids: list[Cid] = []
            await _rate([partial(_put, source, f"{label} {number} {at} ", size, cids) for at in range(count)])
            await self._wanted([_of_content(cid, size, from_peer=from_peer) for cid in cids], from_peer=from_peer)

            async def copy(cid: Cid) -> None:
                body = await source.get_range(key_of(cid), 0, size - 1)
                assert cid_of(body) == cid
                await plain.put_new(key_of(cid), body, content_type=TYPE)

            async def reconciled() -> float:
                began = time.monotonic()
                done = await reconcile_copies(core)
                assert done.copied == count, done
                return done.copied / (time.monotonic() - began)

            # By turns first: whoever comes later meets sources that are in memory.
            sides: list[tuple[str, Callable[[], Awaitable[float]]]] = [
                ("reconciled", reconciled),
                ("bare", partial(_rate, [partial(copy, cid) for cid in cids], AT_ONCE)),
                ("boto3", partial(_by_a_script, servers, bucket, cids[: max(count // 3, 2 * AT_ONCE)])),
            ]
            rates = {}
            for name, side in sides[number % 3 :] + sides[: number % 3]:
                before = self._cpu()
                rates[name] = await side()
                if number >= 0 and name in costs:
                    costs[name].append({part: (now - before[part]) / count * 1e6 for part, now in self._cpu().items()})
            if size >= MIB:  # the disk may be small
                for store in (source, plain, peers.payloads("b")):
                    await store.delete_many([key_of(cid) for cid in cids])
                scripted.clear(servers["b"])
            if number >= 0:
                for name, rate in rates.items():
                    found[name].append(rate)
        rate = statistics.median(found["reconciled"])
        for name, against in (("boto3", ", against boto3"), ("bare", "")):
            ratios = [one / other for one, other in zip(found["reconciled"], found[name], strict=True)]
            note = f"{rate:.0f} copies/s, rounds {min(ratios):.2f} - {max(ratios):.2f}"
            self.add(f"reconciler, {label}{against}", statistics.median(ratios), "x plain copies", COPY_FLOOR, note)
        ours, plainly = (
            {part: statistics.median(one[part] for one in costs[name]) for part in costs[name][0]}
            for name in ("reconciled", "bare")
        )
        more = ", ".join(f"{part} {cost - plainly[part]:+.0f}" for part, cost in ours.items())
        note = f"beside {sum(plainly.values()):.0f} of a plain one: {more}"
        self.add(f"CPU of a copy, {label}", sum(ours.values()), "us", note=note)

    def _cpu(self) -> dict[str, float]:
        return {"this process": time.process_time()} | {name: cpu_seconds(pid) for name, pid in self.servers.items()}

    async def _wanted(self, pins: Sequence[Pin], *, from_peer: bool) -> None:
        """Rows as whoever pins leaves them: one copy is missing, at the peer b."""
        first: list[Put] = []
        changes: list[Change] = []
        for pin in pins:
            desired = frozenset("ab" if from_peer else "b")
            changes += [Put(PINS, pin.row()), *assigned(pin, frozenset(), desired, self.kit.now)]
            if from_peer:
                key = dict(zip(PLACEMENTS.key, pin.key, strict=True))
                there = frozenset("a")
                changes.append(Put(PLACEMENTS, key, plus={"actual": there}, minus={"in_progress": there}))
            first.append(look_before(pin.cid, self.kit.now))
            changes += look_again(first[-1], pin.cid, self.kit.now)
            self.kit.advance(0.002)  # one pin after the other
        await self.kit.store.write_each(first)
        await self.kit.store.write_each(changes)
        self.kit.advance(5)


def _changed(pin: Pin) -> dict[str, Any]:
    return {"mh_prefix": pin.key[0], "cid_bin": pin.key[1], "version": 2, "rf": 2}


def _pin(name: str) -> Pin:
    return Pin(cid_of(name.encode()), "alice", 1, 0, 1, NOON, NOON)


def _of_content(cid: Cid, size: int, *, from_peer: bool) -> Pin:
    source = {"mts.source": f"0 {size} {key_of(cid)}"}
    metadata = {"mts.zones": "source,target"} if from_peer else {"mts.zones": "target", **source}
    return Pin(cid, "alice", 1 + from_peer, 0, 1, NOON, NOON, metadata=metadata, size=size)


async def _put(store: PayloadStore, beginning: str, size: int, cids: list[Cid]) -> None:
    body = beginning.encode().ljust(size, b"x")
    cid = cid_of(body)
    await store.put_new(key_of(cid), body, content_type=TYPE)
    cids.append(cid)


async def _by_a_script(servers: dict[str, MinioServer], bucket: str, cids: Sequence[Cid]) -> float:
    return await asyncio.to_thread(scripted.copies, servers["a"], bucket, servers["b"], cids)


async def _rate(calls: Sequence[Callable[[], Awaitable[object]]], in_flight: int = IN_FLIGHT) -> float:
    waiting = iter(calls)

    async def work() -> None:
        for call in waiting:
            await call()

    began = time.monotonic()
    await asyncio.gather(*(work() for _ in range(in_flight)))
    return len(calls) / (time.monotonic() - began)


def keys_of(server: MinioServer) -> tuple[str, str]:
    return server.root.access_key, server.root.secret_key


def peers_of(folder: Path, servers: dict[str, MinioServer]) -> Settings:
    """The peer `plain` is a bucket beside that of `b`: what is copied there costs the same."""
    zones = {"a": "source", "b": "target", "plain": "plain"}
    place = {"a": servers["a"], "b": servers["b"], "plain": servers["b"]}
    environ = {
        "MTS_HOME": str(folder),
        "MTS_CATALOG_PEERS": ",".join(
            f"{name}={server.endpoint}/{'plain' if name == 'plain' else server.bucket}?zone={zones[name]}"
            for name, server in place.items()
        ),
        "MTS_CATALOG_PEER_KEYS": ",".join(f"{name}={':'.join(keys_of(server))}" for name, server in place.items()),
    }
    return load_settings(environ, cwd=folder)


async def measure(folder: Path, only: Sequence[str], sizes: Sequence[int], *, quick: bool, load: Load) -> None:
    # The load may go on in a later run: its engine stays where it is.
    node = cassandra.Node("127.0.0.1", free_port(), free_port(), heap=HEAP, password=False)
    engine = start_cassandra((load.folder if "load" in only else folder) / "cassandra", node)
    copies = {"copies", "copies-sqlite"} & set(only)
    servers = {name: start_minio(folder / name) for name in ("a", "b")} if copies else {}
    for name, bucket in (("a", "messages"), ("b", "plain"), ("b", scripted.TARGET)) if servers else ():
        servers[name].s3().create_bucket(Bucket=bucket)
    try:
        environ = {"MTS_HOME": str(folder)}

        async def kit_of(keyspace: str, *peers: str) -> tuple[CatalogKit, Settings]:
            settings = load_settings({**environ, "MTS_CATALOG_DATABASE": engine.url(keyspace)}, cwd=folder)
            kit = catalog_kit(folder, *peers, settings=settings)
            await kit.store.migrate()
            return kit, settings

        kit, settings = await kit_of("bench", "eu")
        bench = Bench(kit, settings, quick=quick)
        bench.servers = {part: servers[name].pid for part, name in (("source", "a"), ("target", "b")) if servers}
        if "statements" in only:
            await bench.statements()
            await bench.service()
        if "load" in only:
            for row in await load.run(kit):
                bench.add(*row)
        if "copies" in only:
            bench.kit, _ = await kit_of("warm")
            await bench.warm_up(2_000 if quick else WARM)
            await bench.kit.store.close()
            bench.kit, _ = await kit_of("copies")
            bench.servers["engine"] = engine.pid
            await _copies(bench, folder, servers, sizes, "on Cassandra")
            del bench.servers["engine"]
            await bench.kit.store.close()
        if "copies-sqlite" in only:
            bench.kit = catalog_kit(folder)
            await _copies(bench, folder, servers, sizes, "on SQLite")
            await bench.kit.store.close()
        await kit.store.close()
    finally:
        for server in (engine, *servers.values()):
            server.kill()


async def _copies(
    bench: Bench, folder: Path, servers: dict[str, MinioServer], sizes: Sequence[int], engine: str
) -> None:
    a = servers["a"]
    peers = S3Peers(peers_of(folder, servers))
    messages = S3Payloads(SigV4(a.endpoint, "messages", a.region, *keys_of(a)))
    bench.kit.core.peers, bench.kit.core.payloads = peers, messages
    for size in sizes:
        label = f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"
        await bench.copies(peers, servers, size, f"{label}, {engine}")
        if size == 10 * KIB:
            await bench.copies(peers, servers, size, f"{label} from a peer, {engine}", from_peer=True)
    await messages.close()
    await peers.close()


def document(about: str, rows: Sequence[dict[str, Any]]) -> str:
    made = "Made by `python -m bench.catalog`, each row by the last run that measured it"
    return f"# The content catalog\n\n{made}; the latest on: {about}.\n\n{table(rows)}"


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| measure | result | floor | | |", "|---|---:|---:|---|---|"]
    for row in rows:
        floor = "" if row["floor"] is None else f">= {row['floor']}"
        lines.append(
            f"| {row['measure']} | **{row['value']:.2f}** {row['unit']} | {floor} | {row['met']} | {row['note']} |"
        )
    return "\n".join(lines) + "\n"


def save(fresh: Sequence[dict[str, Any]]) -> None:
    """What was measured now takes the place of what was measured before."""
    file = RESULTS / "catalog.json"
    known = {row["measure"]: row for row in json.loads(file.read_text())["rows"]} if file.exists() else {}
    known |= {row["measure"]: row for row in fresh}
    about = f"{machine.hardware()}, {datetime.now(UTC):%Y-%m-%d}"
    file.write_text(json.dumps({"machine": about, "rows": list(known.values())}, indent=1) + "\n")
    (RESULTS / "catalog.md").write_text(document(about, list(known.values())))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.catalog", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds; nothing is kept")
    parser.add_argument("--only", choices=PARTS, action="append", help="some of what is measured; all by default")
    parser.add_argument(
        "--size",
        type=int,
        action="append",
        help="copies of so many KiB alone",
        choices=[size // KIB for size in COUNTS],
    )
    parser.add_argument("--pins", type=int, default=1_000_000, help="how many are loaded")
    parser.add_argument("--folder", type=Path, help="a load of several runs lies here")
    parser.add_argument("--seconds", type=float, default=math.inf, help="load so long; the next run goes on")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mts-bench-catalog-"))
    load = Load(given.folder or folder, given.pins, given.seconds)
    gc.set_threshold(1_000, 10, 500)  # as host/worker.py, for all sides
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            sizes = [size * KIB for size in given.size or ()] or list(COUNTS)
            runner.run(measure(folder, given.only or PARTS, sizes, quick=given.quick, load=load))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
