"""What the tests of recovery share: a stack whose Tarantool loses its disk, and the way back."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from minitoolstream.bootstrap import open_core
from minitoolstream.domain.backup import Manifest
from minitoolstream.services.backup_places import BucketPlace
from minitoolstream.services.core import Core
from minitoolstream.services.make_backup import make_backup
from minitoolstream.services.restore_backup import Restored, fetch_snapshot, find_backup, replay_journal
from tests.live import Live

T = TypeVar("T")


def with_core(live: Live, work: Callable[[Core], Awaitable[T]]) -> T:
    async def run() -> T:
        core = await open_core(live.settings)
        try:
            return await work(core)
        finally:
            await core.close()

    return asyncio.run(run())


def backup(live: Live) -> Manifest:
    return with_core(live, lambda core: make_backup(core, BucketPlace(core.payloads)))


def write_journal(live: Live) -> Any:
    answer = live.api("POST", "/v1/journal")
    assert answer.status == 200, answer.body
    return answer.json


def data_folder(live: Live) -> Path:
    folder = live.tarantool.launch.folder
    assert folder is not None
    return folder


def lose_disk(live: Live) -> None:
    """Tarantool and its data are gone; then the hosts are stopped, as an operator would do."""
    live.tarantool.kill()
    for host in live.hosts:
        host.stop()
    shutil.rmtree(data_folder(live))
    data_folder(live).mkdir()


def restore(live: Live, *, skip_damaged: bool = False) -> Restored:
    """The newest backup, and the journal on top of it; the hosts stay stopped."""

    async def fetch(core: Core) -> None:
        place = BucketPlace(core.payloads)
        await fetch_snapshot(place, await find_backup(place, None), data_folder(live))

    with_core(live, fetch)
    live.tarantool.start()
    return replay(live, rebuild=False, skip_damaged=skip_damaged)


def rebuild(live: Live) -> Restored:
    live.tarantool.start()
    return replay(live, rebuild=True)


def replay(live: Live, *, rebuild: bool, skip_damaged: bool = False) -> Restored:
    return with_core(live, lambda core: replay_journal(core, rebuild=rebuild, skip_damaged=skip_damaged))


def start_hosts(live: Live) -> None:
    for host in live.hosts:
        host.start()
