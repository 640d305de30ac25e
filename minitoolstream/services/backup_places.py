"""Where backups lie: in the bucket, or in a folder."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.keys import BACKUP_PREFIX
from minitoolstream.ports import PayloadStore
from minitoolstream.services.put_once import put_once
from minitoolstream.services.system_objects import list_all


class BackupPlace(Protocol):
    """Files by names like `<backup>/<file>`."""

    async def put(self, name: str, content: bytes) -> None: ...

    async def get(self, name: str) -> bytes:
        """MtsError `not_found` when it is missing."""

    async def names(self) -> list[str]: ...

    async def delete(self, names: Sequence[str]) -> None: ...


class BucketPlace:
    def __init__(self, payloads: PayloadStore) -> None:
        self._payloads = payloads

    async def put(self, name: str, content: bytes) -> None:
        await put_once(self._payloads, BACKUP_PREFIX + name, content, content_type="application/octet-stream")

    async def get(self, name: str) -> bytes:
        found = await self._payloads.find(BACKUP_PREFIX + name)
        if found is None:
            raise MtsError("not_found", f"the bucket has no {BACKUP_PREFIX}{name}")
        return await self._payloads.get_range(found.name, 0, found.size - 1) if found.size else b""

    async def names(self) -> list[str]:
        listed = await list_all(self._payloads, BACKUP_PREFIX)
        return [found.name.removeprefix(BACKUP_PREFIX) for found in listed]

    async def delete(self, names: Sequence[str]) -> None:
        await self._payloads.delete_many([BACKUP_PREFIX + name for name in names])


class FolderPlace:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, name: str, content: bytes) -> None:
        await asyncio.to_thread(self._write, self._folder / name, content)

    def _write(self, path: Path, content: bytes) -> None:
        """Whole or not at all."""
        unfinished = path.with_name(f"{path.name}.part")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with unfinished.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except OSError as error:
            raise MtsError("cannot_write", f"cannot write {path}: {error.strerror}", {"path": str(path)}) from None

    async def get(self, name: str) -> bytes:
        try:
            return await asyncio.to_thread((self._folder / name).read_bytes)
        except FileNotFoundError:
            raise MtsError("not_found", f"there is no {self._folder / name}") from None

    async def names(self) -> list[str]:
        return sorted(str(path.relative_to(self._folder)) for path in self._folder.glob("*/*") if path.is_file())

    async def delete(self, names: Sequence[str]) -> None:
        for backup in {name.partition("/")[0] for name in names}:
            await asyncio.to_thread(shutil.rmtree, self._folder / backup)
