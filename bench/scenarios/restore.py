"""How long a lost Tarantool takes to come back, beside the specification's 5 minutes: half of the messages are in the
backup, half in the journal behind it; and all of it from the journal alone."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable

import asynctnt

from bench.cores import with_core
from bench.errors import BenchError
from bench.measure import Bench
from bench.rows import Floor, Row
from bench.scenarios.batch import MESSAGES, batch
from bench.stack import Stack, running_stack
from minitoolstream.services.backup_places import BucketPlace
from minitoolstream.services.core import Core
from minitoolstream.services.make_backup import make_backup
from minitoolstream.services.restore_backup import fetch_snapshot, find_backup, replay_journal
from minitoolstream.services.write_journal import finish_journal

SUBJECT = "bench.restore"
COUNT, QUICK_COUNT = 1_000_000, 20_000
LIMIT_SECONDS = 300
_IN_FLIGHT = 200


def run(bench: Bench) -> list[Row]:
    """On stacks of its own: it takes their disks away."""
    count = QUICK_COUNT if bench.quick else COUNT
    rows = []
    for kind, fill in (("packs of 1,000", _fill_packs), ("an extent each", _fill_singles)):
        with running_stack(bench.stack.workers) as stack:
            own = bench.on(stack)
            fill(own, count // 2)
            with_core(stack, lambda core: make_backup(core, BucketPlace(core.payloads)))
            fill(own, count // 2)
            with_core(stack, finish_journal)
            rows += [_row(own, kind, count, "restore", _restore), _row(own, kind, count, "rebuild", _rebuild)]
    return rows


def _row(bench: Bench, kind: str, count: int, name: str, way: Callable[[Stack], int]) -> Row:
    stack = bench.stack
    stack.host.stop()
    stack.tarantool.kill()
    assert stack.tarantool.launch.folder is not None
    shutil.rmtree(stack.tarantool.launch.folder)
    stack.tarantool.launch.folder.mkdir()
    begun = time.perf_counter()
    last = way(stack)
    seconds = time.perf_counter() - begun
    if last < count:
        raise BenchError(f"{last} of {count} messages came back")
    bench.say(f"{name} of {count:,} messages, {kind}: {seconds:.1f} s (the specification allows {LIMIT_SECONDS} s)")
    return Row(
        key=f"{name}-{kind.replace(' ', '-')}",
        measure=f"spec: recovery within 5 minutes; {name} of {count:,} messages, {kind}",
        unit="s",
        value=seconds,
        floor=Floor(LIMIT_SECONDS, at_most=True),
        note=f"{count / seconds:,.0f} messages/s",
    )


def _restore(stack: Stack) -> int:
    async def fetch(core: Core) -> None:
        place = BucketPlace(core.payloads)
        assert stack.tarantool.launch.folder is not None
        await fetch_snapshot(place, await find_backup(place, None), stack.tarantool.launch.folder)

    with_core(stack, fetch)
    stack.tarantool.start()
    return with_core(stack, lambda core: replay_journal(core, rebuild=False)).last_sequence


def _rebuild(stack: Stack) -> int:
    stack.tarantool.start()
    return with_core(stack, lambda core: replay_journal(core, rebuild=True)).last_sequence


def _fill_packs(bench: Bench, count: int) -> None:
    calls = -(-count // MESSAGES)
    bench.say(f"storing {calls * MESSAGES:,} messages in packs")
    for done in range(0, calls, 100):
        bench.once(batch(bench, SUBJECT, 100, 4), min(100, calls - done))


def _fill_singles(bench: Bench, count: int) -> None:
    """Rows as single messages have them; made by the specification's own call, so without payloads to list."""
    bench.say(f"storing {count:,} single messages")
    asyncio.run(_publish_singles(bench.stack, count))


async def _publish_singles(stack: Stack, count: int) -> None:
    host, _, port = stack.tarantool.address.rpartition(":")
    connection = asynctnt.Connection(
        host=host,
        port=int(port),
        username=stack.tarantool.user,
        password=stack.tarantool.password,
        fetch_schema=False,
        auto_refetch_schema=False,
    )
    await connection.connect()
    left = iter(range(count))

    async def publish() -> None:
        for number in left:
            headers = {"source": "bench", "number": str(number), "type": "text/plain"}
            await connection.call("publish_message", [SUBJECT, f"objects/{number:012}", headers])

    await asyncio.gather(*(publish() for _ in range(_IN_FLIGHT)))
    await connection.disconnect()
