"""`make catalog-cluster`: the content catalog on two datacenters of Cassandra, on this machine's loopback addresses.

Written in one and read in the other; a node killed and back, hints delivered; a datacenter lost while the other goes
on, with claims that are never given twice. Prints a line for each with its figures; exits with 1 when one fails."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from minitoolstream.config import load_settings
from minitoolstream.domain.catalog_tables import CLAIMS, PINS
from minitoolstream.domain.cid import Cid, cid_of
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pin import Wish
from minitoolstream.services.claims import take_claim
from minitoolstream.services.manage_pins import create_pin, get_pin
from minitoolstream.stack.cassandra import MIB, Node
from minitoolstream.stack.console import Console
from minitoolstream.stack.get_cassandra import get_cassandra
from minitoolstream.stack.ports import free_port
from scripts import tools
from tests.catalog_kit import ALICE, CatalogKit, catalog_kit
from tests.servers import CassandraServer, start_cassandra

KEYSPACE = "cluster"
PINS_EACH = 200
CLAIMS_EACH = 50
WORKERS = 8
WITHIN = 120.0


def main() -> int:
    tools.get(Console(), "Cassandra", get_cassandra)
    with tempfile.TemporaryDirectory(prefix="mts-catalog-cluster-") as folder:
        return asyncio.run(_run(Path(folder)))


async def _run(folder: Path) -> int:
    storage = free_port()
    nodes = [
        Node(f"127.0.0.{number}", free_port(), storage, f"dc{number}", ("127.0.0.1",), 384 * MIB, password=False)
        for number in (1, 2)
    ]
    servers = []
    try:
        for node in nodes:
            began = time.monotonic()
            servers.append(start_cassandra(folder / node.datacenter, node))
            _say(f"{node.datacenter} at {node.host}", f"ready after {time.monotonic() - began:.1f} s")
        await _story(folder, servers)
    except (AssertionError, MtsError, TimeoutError) as error:
        print(f"✗ {error!r}", file=sys.stderr)
        return 1
    finally:
        for server in servers:
            server.kill()
    return 0


async def _story(folder: Path, servers: list[CassandraServer]) -> None:
    one, two = (_kit(folder, server, home="dc1") for server in servers)
    began = time.monotonic()
    applied = await one.store.migrate()
    _say(f"migrated to {applied[-1]}", f"{time.monotonic() - began:.1f} s")
    await _written_in_one_read_in_the_other(one, two)
    await _killed_and_back(one, two, servers[1])
    await _lost(one, two, folder, servers)
    for kit in (one, two):
        await kit.store.close()


def _kit(folder: Path, server: CassandraServer, home: str) -> CatalogKit:
    environ = {
        "MTS_HOME": str(folder / "home"),
        "MTS_CATALOG_DATABASE": server.url(KEYSPACE),
        "MTS_CATALOG_REPLICATION": "dc1=1,dc2=1",
        "MTS_CATALOG_DATACENTER": server.node.datacenter,
        "MTS_CATALOG_HOME": home,
    }
    settings = load_settings(environ, cwd=folder)
    return catalog_kit(folder, "eu", "us", settings=settings)


async def _pin(kit: CatalogKit, name: str, count: int) -> tuple[list[Cid], float]:
    cids = [cid_of(f"{name} {number}".encode()) for number in range(count)]
    began = time.monotonic()
    await asyncio.gather(*(create_pin(kit.core, ALICE, cid, Wish()) for cid in cids))
    return cids, time.monotonic() - began


async def _until_all_are_read(kit: CatalogKit, cids: list[Cid]) -> float:
    began = time.monotonic()
    keys = [(cid.prefix, cid.binary) for cid in cids]

    async def all_there() -> bool:
        return all(row is not None for row in await kit.store.get_many(PINS, keys))

    await _until(all_there)
    return time.monotonic() - began


async def _until(check: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + WITHIN
    while True:
        try:
            if await check():
                return
        except MtsError as error:
            if not error.retryable:
                raise
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so within {WITHIN:.0f} s")
        await asyncio.sleep(0.05)


async def _written_in_one_read_in_the_other(one: CatalogKit, two: CatalogKit) -> None:
    cids, seconds = await _pin(one, "first", PINS_EACH)
    behind = await _until_all_are_read(two, cids)
    _say(f"{PINS_EACH} pins written in dc1", f"{PINS_EACH / seconds:.0f}/s; read in dc2 {behind * 1000:.0f} ms later")
    cids, seconds = await _pin(two, "second", PINS_EACH)
    behind = await _until_all_are_read(one, cids)
    _say(
        f"{PINS_EACH} pins written from dc2",
        f"{PINS_EACH / seconds:.0f}/s, decided in dc1; there {behind * 1000:.0f} ms later",
    )


async def _killed_and_back(one: CatalogKit, two: CatalogKit, server: CassandraServer) -> None:
    server.kill()
    cids, seconds = await _pin(one, "hinted", PINS_EACH)
    began = time.monotonic()
    await asyncio.to_thread(server.start)
    started = time.monotonic() - began
    behind = await _until_all_are_read(two, cids)
    rate = f"{PINS_EACH / seconds:.0f}/s in dc1 meanwhile"
    _say("dc2's node killed and back", f"{rate}; up after {started:.1f} s, hints delivered {behind:.1f} s later")


async def _lost(one: CatalogKit, two: CatalogKit, folder: Path, servers: list[CassandraServer]) -> None:
    await _claims_are_given_once(one, two, "both")
    assert await take_claim(one.core, "kept", "dc1")

    async def replicated() -> bool:
        return await two.store.get(CLAIMS, ("kept",)) is not None

    await _until(replicated)
    servers[0].kill()
    (known,) = [cid_of(b"first 0")]

    async def reads() -> bool:
        return (await get_pin(two.core, ALICE, known)).pin.owner == "alice"

    began = time.monotonic()
    await _until(reads)
    _say("dc1 lost: reads in dc2", f"again after {time.monotonic() - began:.1f} s")
    refused = await _refused(create_pin(two.core, ALICE, cid_of(b"undecided"), Wish()))
    assert refused, "a conditional write went through without its home"
    _say("conditional writes without their home", "refused, retryable")
    moved = _kit(folder, servers[1], home="dc2")
    others = _kit(folder, servers[1], home="dc2")
    assert not await take_claim(moved.core, "kept", "dc2"), "a claim was given twice"
    _, seconds = await _pin(moved, "moved", PINS_EACH)
    _say("home moved to dc2", f"{PINS_EACH / seconds:.0f} pins/s; the claim that dc1 gave is kept")
    await _claims_are_given_once(moved, others, "moved")
    for kit in (moved, others):
        await kit.store.close()


async def _refused(work: Awaitable[object]) -> bool:
    try:
        await work
    except MtsError as error:
        return error.retryable
    return False


async def _claims_are_given_once(one: CatalogKit, two: CatalogKit, name: str) -> None:
    began, given = time.monotonic(), 0
    for number in range(CLAIMS_EACH):
        takers = [
            take_claim(kit.core, f"{name}/{number}", f"{kit_name}-{worker}")
            for kit_name, kit in (("one", one), ("two", two))
            for worker in range(WORKERS // 2)
        ]
        outcomes = await asyncio.gather(*takers, return_exceptions=True)
        winners = [outcome for outcome in outcomes if outcome is True]
        unknown = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert all(isinstance(outcome, MtsError) and outcome.retryable for outcome in unknown), unknown
        assert len(winners) <= 1, f"{name}/{number} was given to {len(winners)}"
        # One who was not answered may have it.
        assert winners or unknown, f"{name}/{number} was given to nobody"
        given += len(winners)
    assert given >= CLAIMS_EACH // 2, f"only {given} of {CLAIMS_EACH} claims were given"
    seconds = time.monotonic() - began
    _say(
        f"{CLAIMS_EACH} claims, {WORKERS} workers of both at once",
        f"{given} given, none twice, {CLAIMS_EACH / seconds:.0f}/s",
    )


def _say(what: str, figures: str) -> None:
    print(f"✓ {what}: {figures}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
