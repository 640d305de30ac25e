"""What is replayed, and the raw downloader that replays are compared with."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import urllib3

from minitoolstream.adapters.s3.signer import S3Signer
from minitoolstream.client import Client
from minitoolstream.config import Settings
from minitoolstream.ports import GetRequest
from minitoolstream.services.core import Core
from spark_emr.reader.core import with_core
from spark_emr.reader.options import ReadOptions
from spark_emr.reader.rows import find_bounds, tarantool_rows

_AT_ONCE = 1000
_THREADS = 8
_BLOCK = 1 << 20


def publish_packed(client: Client, subject: str, count: int, size: int) -> None:
    """Messages in packs of 1,000."""
    payload = bytes(range(256)) * (size // 256 + 1)
    for first in range(0, count, _AT_ONCE):
        items = [payload[n % 256 : n % 256 + size] for n in range(min(_AT_ONCE, count - first))]
        for result in client.publish_batch(subject, items):
            result.unwrap()


def publish_files(client: Client, subject: str, count: int, size: int, folder: Path) -> None:
    path = folder / "payload"
    for number in range(count):
        path.write_bytes(bytes([number]) * size)
        client.publish_file(subject, path, resume=False)


def add_single_rows(settings: Settings, subject: str, count: int) -> None:
    """Rows of single messages, by the specification's own function: a plan does not look at payloads."""

    async def add(core: Core) -> None:
        await core.metadata.check()
        call = core.metadata.connection._connection.call  # type: ignore[attr-defined]
        for first in range(0, count, _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, count))
            await asyncio.gather(*(call("publish_message", [subject, f"legacy/{n}", {"n": str(n)}]) for n in numbers))

    with_core(settings, add)


def objects_of(settings: Settings, subject: str) -> dict[str, int]:
    """Names and sizes, from the store, of the objects with a subject's payloads."""

    async def find(core: Core) -> dict[str, int]:
        options = ReadOptions(subject)
        names: dict[str, int] = {}
        async for page in tarantool_rows(core, options, await find_bounds(core, options)):
            for row in page:
                if row.object_name not in names:
                    found = await core.payloads.find(row.object_name)
                    names[row.object_name] = found.size if found else 0
        return names

    return with_core(settings, find)


def download(settings: Settings, names: Iterable[str], *, checksum: bool = False) -> float:
    """Seconds that threads with presigned URLs take to get objects; nothing is looked at, but for their SHA-256."""
    requests = [GetRequest(name, "application/octet-stream") for name in names]
    urls = S3Signer.from_settings(settings).get_many(requests, expires_in=3600)
    pool = urllib3.PoolManager(maxsize=_THREADS)

    def get(url: str) -> int:
        response = pool.request("GET", url, preload_content=False)
        size, digest = 0, hashlib.sha256()
        while block := response.read(_BLOCK):
            size += len(block)
            if checksum:
                digest.update(block)
        response.release_conn()
        return size

    started = time.monotonic()
    with ThreadPoolExecutor(_THREADS) as threads:
        total = sum(threads.map(get, urls))
    assert total, "nothing was downloaded"
    return time.monotonic() - started


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
