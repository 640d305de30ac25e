"""Reconcilers on Cassandra and real stores, killed by -9 at random points: rows and copies fit in the end."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from datetime import timedelta
from pathlib import Path

import pytest

from minitoolstream.domain.cid import Cid, cid_of
from minitoolstream.domain.pin import Wish
from minitoolstream.services.check_catalog import check_catalog
from minitoolstream.services.core import utc_now
from minitoolstream.services.manage_pins import create_pin, delete_pin, get_pin, update_pin
from minitoolstream.services.pin_holders import find_pin
from minitoolstream.services.reconcile_copies import reconcile_copies
from tests.catalog_kit import ALICE, CatalogKit
from tests.faults.catalog_child import ORIGIN, open_kit
from tests.servers import CassandraServer, MinioServer, start_minio

pytestmark = pytest.mark.xdist_group("cassandra")
PEERS = ("eu", "us", "asia")
BODIES = [f"killed {number}".encode() for number in range(20)] + [b"in parts" * (9 << 17)]
KILLS = 4


def kill_somewhere(environ: dict[str, str], folder: Path, days: int, chance: random.Random) -> None:
    """By its clock, the claims of the one before have ended. One that has nothing left to do ends by itself."""
    command = [sys.executable, "-m", "tests.faults.catalog_child", str(folder), str(days)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environ}) as child:
        assert child.stdout is not None
        for _ in range(chance.randrange(5, 50)):
            child.stdout.readline()
        time.sleep(chance.random() / 20)
        child.send_signal(signal.SIGKILL)


def stores(server: MinioServer) -> dict[str, str]:
    """The environment in which each bucket is a peer."""
    for name in (*PEERS, ORIGIN):
        server.s3().create_bucket(Bucket=f"copies-{name}")
    return {
        "MTS_CATALOG_PEERS": ",".join(f"{name}={server.endpoint}/copies-{name}" for name in (*PEERS, ORIGIN)),
        "MTS_CATALOG_PEER_KEYS": ",".join(
            f"{name}={server.root.access_key}:{server.root.secret_key}" for name in (*PEERS, ORIGIN)
        ),
    }


async def change_something(kit: CatalogKit, chance: random.Random) -> None:
    for body in chance.sample(BODIES, 12):
        cid = cid_of(body)
        pin = await find_pin(kit.core, cid)
        if pin is None or pin.ended:
            await create_pin(kit.core, ALICE, cid, wish_for(body, chance))
        elif chance.random() < 0.7:
            await update_pin(kit.core, ALICE, cid, Wish(rf=chance.randrange(1, 4)))
        else:
            await delete_pin(kit.core, ALICE, cid)


def wish_for(body: bytes, chance: random.Random) -> Wish:
    return Wish(rf=chance.randrange(1, 4), source=f"0 {len(body)} {cid_of(body)}")


async def wanted(kit: CatalogKit, cid: Cid) -> frozenset[str]:
    if await find_pin(kit.core, cid) is None:
        return frozenset()
    state = await get_pin(kit.core, ALICE, cid)
    assert state.status == "pinned"
    return frozenset(state.placement["desired"])


async def test_reconcilers_killed_anywhere_leave_each_copy_where_it_is_wanted_and_no_other(
    cassandra_server: CassandraServer, tmp_path: Path
) -> None:
    chance, server = random.Random(os.urandom(4)), start_minio(tmp_path / "minio")
    try:
        database = cassandra_server.url(f"test_{uuid.uuid4().hex[:20]}")
        environ = {"MTS_HOME": str(tmp_path / "home"), "MTS_CATALOG_DATABASE": database, **stores(server)}
        kit = open_kit(environ, tmp_path)
        kit.now = utc_now()
        await kit.store.migrate()
        for body in BODIES:
            server.s3().put_object(Bucket=f"copies-{ORIGIN}", Key=cid_of(body).text, Body=body)
            await create_pin(kit.core, ALICE, cid_of(body), wish_for(body, chance))
        for number in range(KILLS):
            await asyncio.to_thread(kill_somewhere, environ, tmp_path, number + 1, chance)
            await change_something(kit, chance)
        kit.now += timedelta(days=KILLS + 2)
        for _ in range(4):
            await reconcile_copies(kit.core)
            kit.advance(4000)
        assert (await check_catalog(kit.core, deep=True)).found == []
        for body in BODIES:
            key = f"cid/{cid_of(body)}"
            held = [server.s3().list_objects_v2(Bucket=f"copies-{name}", Prefix=key)["KeyCount"] for name in PEERS]
            holders = {name for name, count in zip(PEERS, held, strict=True) if count}
            assert holders == await wanted(kit, cid_of(body))
        await kit.core.peers.close()
        await kit.store.close()
    finally:
        server.stop()
