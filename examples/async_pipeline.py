"""asyncio: many producers share one buffered publisher, a reader follows with the payloads."""

import asyncio

from minitoolstream.client import AsyncClient


async def main() -> None:
    async with AsyncClient() as client:
        start = await client.latest("events") + 1

        async with client.buffered("events", linger=0.02) as events:

            async def produce(name: str) -> None:
                for number in range(100):
                    await events.publish(f"{name} {number}", headers={"producer": name})

            await asyncio.gather(*(produce(name) for name in ("ann", "bob", "eve")))

        counts: dict[str, int] = {}
        async for message in client.read("events", start=start):
            name = message.headers["producer"]
            counts[name] = counts.get(name, 0) + 1
        print(counts)


if __name__ == "__main__":
    asyncio.run(main())
