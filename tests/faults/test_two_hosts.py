"""Two hosts on one Tarantool: one dies under load, and producers that know both see no error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from minitoolstream.client import AsyncClient
from tests.faults.audit import check_stream, settle
from tests.faults.load import payload_of
from tests.faults.test_kill import HASTY, kill_host
from tests.live import Live, eventually, start_live

ROUNDS = 2


async def _publish_through_kills(live: Live, client: AsyncClient, folder: Path) -> dict[str, dict[str, int]]:
    """Acknowledged sequences by subject and name. Any error the SDK shows ends the test."""
    acknowledged: dict[str, dict[str, int]] = {"small": {}, "large": {}}
    done = asyncio.Event()

    async def inline(name: str) -> int | None:
        return (await client.publish("small", payload_of(name))).sequence

    async def upload(name: str) -> int | None:
        path = folder / name
        path.write_bytes(payload_of(name))
        return (await client.publish_file("large", path, producer_id=name, seqno=1, resume=False)).sequence

    async def producer(subject: str, publish: Callable[[str], Awaitable[int | None]], name: str) -> None:
        number = 0
        while not done.is_set():
            number += 1
            sequence = await publish(f"{name}-{number}")
            assert sequence is not None
            acknowledged[subject][f"{name}-{number}"] = sequence

    async def more(subject: str, count: int) -> None:
        target = len(acknowledged[subject]) + count
        await asyncio.to_thread(eventually, lambda: len(acknowledged[subject]) >= target, 60)

    async def kills() -> None:
        for number in range(ROUNDS):
            await more("small", 40)
            await more("large", 6)
            victim = live.hosts[number % 2]
            kill_host(victim)
            await more("small", 40)
            await more("large", 6)
            await asyncio.to_thread(victim.start)
        done.set()

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(producer("small", inline, f"inline{number}"))
        for number in range(3):
            group.create_task(producer("large", upload, f"file{number}"))
        group.create_task(kills())
    return acknowledged


def test_a_producer_that_knows_both_hosts_sees_no_error_when_one_is_killed(tmp_path: Path) -> None:
    live = start_live(tmp_path, hosts=2, extra_env=HASTY)

    async def run() -> dict[str, dict[str, int]]:
        async with AsyncClient([host.url for host in live.hosts], live.token) as client:
            return await _publish_through_kills(live, client, tmp_path)

    acknowledged = asyncio.run(run())

    check_stream(live, "small", acknowledged["small"])
    check_stream(live, "large", acknowledged["large"])
    settle(live)
    live.stop()
