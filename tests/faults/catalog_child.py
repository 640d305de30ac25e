"""A reconciler in a process of its own, to be killed: it prints a line at each of its writes."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from minitoolstream.config import load_settings
from minitoolstream.domain.cid import cid_of
from minitoolstream.services.core import utc_now
from minitoolstream.services.reconcile_copies import reconcile_copies
from tests.catalog_kit import catalog_kit


class Telling:
    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not name.startswith(("write", "put", "delete", "add")):
            return method

        async def call(*args: Any, **more: Any) -> Any:
            print(name, flush=True)  # noqa: T201
            return await method(*args, **more)

        return call


async def main(database: str, folder: Path, days: int) -> None:
    settings = load_settings({"MTS_HOME": str(folder), "MTS_CATALOG_DATABASE": database}, cwd=folder)
    kit = catalog_kit(folder, "eu", "us", "asia", settings=settings)
    for number in range(8):
        body = f"killed {number}".encode()
        kit.peers.stores["eu"].client_put(f"cid/{cid_of(body)}", body)
    kit.now = utc_now() + timedelta(days=days)
    kit.core.catalog = Telling(kit.store)
    await reconcile_copies(kit.core)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
