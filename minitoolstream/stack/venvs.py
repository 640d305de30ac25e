"""Virtualenvs in our cache, for programs from PyPI that must not mix with the user's packages."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import sys
from pathlib import Path

from minitoolstream.domain.errors import MtsError
from minitoolstream.stack.commands import Update, ignore, run
from minitoolstream.stack.lock import locked
from minitoolstream.stack.program import cache_folder

_LOCKS = Path(__file__).parent / "locks"


def private_venv(name: str, *, update: Update = ignore) -> Path:
    """The folder of a virtualenv with exactly what `locks/<name>.txt` pins; built once."""
    lock, folder = _LOCKS / f"{name}.txt", _folder(name)
    with locked(folder.with_suffix(".lock"), waiting=lambda: update(f"waiting for another installation of {name}")):
        if not (folder / "complete").exists():
            _build(folder, name, lock, update)
    return folder


def find_venv(name: str) -> Path | None:
    """The same, when it is there already."""
    folder = _folder(name)
    return folder if (folder / "complete").exists() else None


def _folder(name: str) -> Path:
    lock = _LOCKS / f"{name}.txt"
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:12]
    return cache_folder() / "venvs" / f"{name}-{digest}"


def _build(folder: Path, name: str, lock: Path, update: Update) -> None:
    if importlib.util.find_spec("ensurepip") is None:
        raise MtsError("dependency_missing", "Python's venv module is missing: run `sudo apt-get install python3-venv`")
    log = cache_folder() / "logs" / f"{name}.log"
    # A virtualenv cannot be moved, so it is built in place and marked when it is complete.
    shutil.rmtree(folder, ignore_errors=True)
    update(f"making a virtualenv for {name}")
    run([sys.executable, "-m", "venv", str(folder)], log=log)
    update(f"installing {name} from PyPI")
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    run([*pip, "--require-hashes", "-r", str(lock)], log=log)
    (folder / "complete").touch()
