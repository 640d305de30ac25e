"""Claims of the tracked pipeline on MariaDB: how many tasks a second daemons get, and that none is served twice."""

from __future__ import annotations

import asyncio
import statistics
import time
import uuid
from pathlib import Path

from bench.errors import BenchError
from bench.measure import Bench
from bench.rows import Row
from minitoolstream.bootstrap import open_tracking
from minitoolstream.config import Settings, load_settings
from minitoolstream.domain import tracking
from minitoolstream.domain.tracking import WORK_STAGES, Claim
from minitoolstream.ports import QueuePlace, TrackingStore
from tests.servers import MariadbServer, start_mariadb

STAGE = WORK_STAGES[0]
DAEMONS = 20
VARIANTS = {
    "1 daemon, 1 a claim": (1, 1),
    "20 daemons, 1 a claim": (DAEMONS, 1),
    "20 daemons, 10 a claim": (DAEMONS, 10),
}


def run(bench: Bench) -> list[Row]:
    tasks = 200 if bench.quick else 2_000
    server = start_mariadb(bench.stack.folder / "mariadb")
    rates: dict[str, list[float]] = {name: [] for name in VARIANTS}
    try:
        for number in range(bench.rounds):
            for name, (daemons, limit) in VARIANTS.items():
                settings = _settings(server, bench.stack.folder)
                rates[name].append(asyncio.run(_claimed_a_second(settings, daemons, limit, tasks)))
            shown = ", ".join(f"{name} {found[-1]:,.0f}/s" for name, found in rates.items())
            bench.say(f"claims: round {number + 1} of {bench.rounds}: {shown}")
    finally:
        server.stop()
    return [
        Row(
            key=f"claims-{daemons}-{limit}",
            measure=f"claims: tasks a second, claimed and done ({name})",
            unit="/s",
            value=statistics.median(rates[name]),
            rounds=rates[name],
            note="none served twice",
        )
        for name, (daemons, limit) in VARIANTS.items()
    ]


def _settings(server: MariadbServer, folder: Path) -> Settings:
    environ = {
        "MTS_HOME": str(folder / "claims"),
        "MTS_PIPELINE_DATABASE": server.url(f"test_{uuid.uuid4().hex}"),
        "MTS_PIPELINE_PASSWORD": server.password,
    }
    return load_settings(environ, cwd=folder)


async def _claimed_a_second(settings: Settings, daemons: int, limit: int, tasks: int) -> float:
    stores = [open_tracking(settings) for _ in range(daemons)]
    await stores[0].register("bench", range(tasks))
    await stores[0].finish_ingest("bench")
    begun = time.perf_counter()
    served = await asyncio.gather(*(_daemon(store, f"d{at}", limit) for at, store in enumerate(stores)))
    seconds = time.perf_counter() - begun
    for store in stores:
        await store.close()
    shards = [shard for mine in served for shard in mine]
    if len(shards) != len(set(shards)):
        raise BenchError("a task was served twice")
    return len(shards) / seconds


async def _daemon(store: TrackingStore, owner: str, limit: int) -> list[int]:
    mine: list[int] = []
    while taken := await store.claim(STAGE, QueuePlace(limit), Claim(owner, 600)):
        for task in taken:
            await store.change(task.filename, task.shard, tracking.finish(STAGE, owner))
            mine.append(task.shard)
    return mine
