"""A reconciler in a process of its own, on real stores, to be killed: it prints a line at each of its writes of rows,
which are few at a time, and at each of its claims."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from minitoolstream.adapters.catalog.peers import S3Peers
from minitoolstream.config import load_settings
from minitoolstream.services import write_together
from minitoolstream.services.core import utc_now
from minitoolstream.services.reconcile_copies import reconcile_copies
from tests.catalog_kit import CatalogKit, catalog_kit

ORIGIN = "origin"


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


def open_kit(environ: Mapping[str, str], folder: Path) -> CatalogKit:
    """Its peers are those of the settings, but for `origin`: that is the messages' bucket."""
    settings = load_settings(environ, cwd=folder)
    peers = [one for one in settings["catalog.peers"] if one.id != ORIGIN]
    kit = catalog_kit(folder, settings=settings)
    kit.core.peers, kit.core.payloads = (
        S3Peers(settings.with_values(catalog__peers=peers)),
        S3Peers(settings).payloads(ORIGIN),
    )
    return kit


async def main(folder: Path, days: int) -> None:
    kit = open_kit(os.environ, folder)
    kit.now = utc_now() + timedelta(days=days)
    kit.core.catalog = Telling(kit.store)
    write_together._LONGEST_REST, write_together._MOST = 0, 5
    await reconcile_copies(kit.core)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
