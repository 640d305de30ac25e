"""A reconciler on a catalog in SQLite and real stores, to be killed: it prints a line at each of its writes."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path

from minitoolstream.adapters.catalog.peers import S3Peers
from minitoolstream.config import load_settings
from minitoolstream.services.core import utc_now
from minitoolstream.services.reconcile_copies import reconcile_copies
from tests.catalog_kit import CatalogKit, catalog_kit
from tests.faults.catalog_child import Telling

ORIGIN = "origin"


def open_kit(environ: dict[str, str], folder: Path) -> CatalogKit:
    """Its peers are those of the settings, but for `origin`: that is the messages' bucket."""
    settings = load_settings(environ, cwd=folder)
    places = settings["catalog.peers"]
    peers = S3Peers(settings.with_values(catalog__peers=[one for one in places if one.id != ORIGIN]))
    kit = catalog_kit(folder, settings=settings)
    kit.core.peers, kit.core.payloads = peers, S3Peers(settings).payloads(ORIGIN)
    return kit


async def main(folder: Path, days: int) -> None:
    kit = open_kit(dict(os.environ), folder)
    kit.now = utc_now() + timedelta(days=days)
    kit.core.catalog = Telling(kit.store)
    await reconcile_copies(kit.core)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
