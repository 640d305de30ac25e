"""Where an export lies: a folder here, or whatever else can keep named files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Protocol

from minitoolstream.domain.errors import MtsError


class Place(Protocol):
    """Named files. `put` makes a file appear whole or not at all; failures are MtsErrors. As text, it is what people
    call it."""

    def scratch(self) -> Path:
        """A folder for files in the making."""

    def names(self) -> list[str]: ...

    def put(self, name: str, file: Path) -> None:
        """Moves or copies a finished file there, and removes it."""

    def get(self, name: str) -> Path:
        """The file, here; the caller may read it until `done` with it."""

    def done(self, file: Path) -> None: ...


def place_of(given: str | os.PathLike[str] | Place) -> Place:
    """A path means a folder."""
    return Folder(given) if isinstance(given, str | os.PathLike) else given


class Folder:
    """A directory on this machine."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def __str__(self) -> str:
        return str(self._path)

    def scratch(self) -> Path:
        try:
            self._path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._not_written(error) from None
        return self._path

    def names(self) -> list[str]:
        try:
            return sorted(entry.name for entry in self._path.iterdir() if entry.is_file())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise MtsError("cannot_read", f"cannot read {self._path}: {error.strerror}") from None

    def put(self, name: str, file: Path) -> None:
        try:
            with file.open("rb") as written:
                os.fsync(written.fileno())
            shutil.move(file, self._path / name)
        except OSError as error:
            raise self._not_written(error) from None

    def get(self, name: str) -> Path:
        path = self._path / name
        if not path.is_file():
            raise MtsError("checksum_mismatch", f"{name} of the export is missing")
        return path

    def done(self, file: Path) -> None: ...

    def _not_written(self, error: OSError) -> MtsError:
        path = str(self._path)
        return MtsError("cannot_write", f"cannot write {path}: {error.strerror}", {"path": path})
