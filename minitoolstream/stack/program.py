"""A server's program on this machine, and the cache in which we keep those we got ourselves."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from minitoolstream.config import user_cache_dir


class Program(msgspec.Struct, frozen=True):
    """An executable with the environment it needs, and a word on where it came from."""

    path: Path
    origin: str
    environ: Mapping[str, str] = {}


def cache_folder() -> Path:
    return user_cache_dir()


def on_path(name: str) -> Program | None:
    found = shutil.which(name)
    return Program(Path(found), "on PATH") if found else None
