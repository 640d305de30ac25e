"""Subscribers of the SDK while hosts and Tarantool come and go: nothing lost, order kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

from minitoolstream.client import AsyncClient, AsyncDelivery
from tests.faults.test_kill import HASTY
from tests.live import Live, start_live

READERS = 200
MESSAGES = 60


async def _read_through(live: Live, subject: str) -> None:
    """Readers of every kind see all messages; the host and then Tarantool restart while they read."""
    seen: dict[str, list[int]] = {}
    published: list[int] = []

    async with AsyncClient(live.url, live.token, retry_for=60) as client:

        async def ordered(name: str, **options: object) -> None:
            seen[name] = []
            async with client.subscribe(subject, **options) as subscription:  # type: ignore[arg-type]
                async for delivery in subscription:
                    seen[name].append(delivery.sequence)
                    if len(set(seen[name])) == MESSAGES:
                        return

        async def shared() -> None:
            seen["shared"] = []
            subscription = client.subscribe(subject, durable="shared", mode="shared", lease=5)

            async def handle(delivery: AsyncDelivery) -> None:
                seen["shared"].append(delivery.sequence)
                if len(set(seen["shared"])) == MESSAGES:
                    subscription.stop()

            await subscription.run(handle, concurrency=4)

        async def publish(count: int) -> None:
            for _ in range(count):
                published.append((await client.publish(subject, b"x")).sequence or 0)

        async def faults() -> None:
            await publish(MESSAGES // 3)
            await asyncio.to_thread(live.hosts[0].stop)
            await asyncio.to_thread(live.hosts[0].start)
            await publish(MESSAGES // 3)
            await asyncio.to_thread(live.tarantool.kill)
            await asyncio.to_thread(live.tarantool.start)
            await publish(MESSAGES - 2 * (MESSAGES // 3))

        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            for number in range(READERS):
                group.create_task(ordered(f"durable-{number}", durable=f"durable-{number}"))
            group.create_task(ordered("ephemeral", start="first"))
            group.create_task(ordered("session", durable="sessions", session="one"))
            group.create_task(shared())
            group.create_task(faults())
        for name, sequences in seen.items():
            assert set(sequences) == set(published), name
            if name not in {"shared", "session"}:
                assert sequences == published, name
        for number in range(READERS):
            assert (await client.consumers.get(subject, f"durable-{number}")).lag == 0


def test_subscribers_live_through_restarts_of_the_host_and_of_tarantool(tmp_path: Path) -> None:
    live = start_live(tmp_path, extra_env=HASTY)
    asyncio.run(_read_through(live, "orders"))
    live.stop()
