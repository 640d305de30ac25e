"""`make package`: each function as the zip that Lambda takes, in dist/functions/. The same sources give the same bytes.

It holds what `chalice package` would put in (app.py, Chalice's runtime, what requirements.txt pins, what vendor/ links
to), without what a function never imports, and compiled: Lambda's disk is read-only, so each start would compile anew.
"""

from __future__ import annotations

import compileall
import hashlib
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import chalice.app

from minitoolstream.stack.lock import locked
from minitoolstream.stack.program import cache_folder
from scripts import tools
from scripts.gen_functions import FUNCTIONS

FOLDER = tools.ROOT / "functions"
NAMES = tuple(sorted(FUNCTIONS))
PYTHON = "3.11"
"""What Lambda runs them with, and so what builds them: compiled code is of one version."""
LIMIT = 30 * 2**20
_UNUSED = ("cli", "client", "connector", "grpc", "host", "pb", "pipeline", "stack", "_bundled", "memory")
_NOTES = {"__pycache__", "tests", "RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
_SOURCES = {".pyx", ".pxd", ".pxi", ".c", ".h", ".pyi"}
_TIME = (1980, 1, 1, 0, 0, 0)  # the first that a zip can say
_PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-compile"]
_FOR_LAMBDA = [
    *("--no-deps", "--require-hashes", "--only-binary", ":all:", "--implementation", "cp"),
    *("--platform", "manylinux2014_x86_64", "--python-version", PYTHON, "--abi", f"cp{PYTHON.replace('.', '')}"),
]


def build(target: Path, names: tuple[str, ...] = NAMES) -> dict[str, Path]:
    """The zip of each function."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" != PYTHON:
        raise SystemExit(f"functions are built with the Python that Lambda runs them with: {PYTHON}")
    target.mkdir(parents=True, exist_ok=True)
    return {name: _build(name, target / f"{name}.zip") for name in names}


def _build(name: str, archive: Path) -> Path:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for source in sorted(_site_packages(FOLDER / name / "requirements.txt").iterdir()):
            _copy(source, folder / source.name)
        runtime = Path(chalice.app.__file__).parent
        (folder / "chalice").mkdir()
        for file in ("__init__.py", "app.py"):
            shutil.copyfile(runtime / file, folder / "chalice" / file)
        shutil.copyfile(FOLDER / name / "app.py", folder / "app.py")
        for linked in sorted((FOLDER / name / "vendor").iterdir()):
            _copy(linked.resolve(), folder / linked.name)
        _compile(folder)
        _zip(folder, archive)
    return archive


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=_ours if source.name == "minitoolstream" else _theirs)
    else:
        shutil.copyfile(source, target)


def _ours(_folder: str, names: list[str]) -> set[str]:
    return {"__pycache__", *_UNUSED} & set(names)


def _theirs(_folder: str, names: list[str]) -> set[str]:
    """What matters only to who builds or installs them; pip's notes differ with how it was called."""
    return {name for name in names if name in _NOTES or Path(name).suffix in _SOURCES}


def _site_packages(lock: Path) -> Path:
    """What a function's requirements.txt pins, for Lambda's Linux; got once and kept."""
    digest = hashlib.sha256(lock.read_bytes() + PYTHON.encode()).hexdigest()[:12]
    folder = cache_folder() / "functions" / digest
    with locked(folder.with_suffix(".lock"), waiting=lambda: None):
        if not folder.is_dir():
            part = folder.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            subprocess.run([*_PIP, *_FOR_LAMBDA, "--target", str(part), "-r", str(lock)], check=True)
            shutil.rmtree(part / "bin", ignore_errors=True)
            part.replace(folder)
    return folder


def _compile(folder: Path) -> None:
    """Not checked against the sources when they are loaded: their times are not those of the build."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    if not compileall.compile_dir(
        folder, quiet=1, stripdir=str(folder), prependdir="/var/task", invalidation_mode=mode, workers=1
    ):
        raise SystemExit("a file of the package cannot be compiled")


def _zip(folder: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                about = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _TIME)
                about.compress_type = zipfile.ZIP_DEFLATED
                about.create_system = 3
                about.external_attr = (0o755 if os.access(path, os.X_OK) else 0o644) << 16
                packed.writestr(about, path.read_bytes())


if __name__ == "__main__":
    for made in build(tools.ROOT / "dist" / "functions").values():
        digest = hashlib.sha256(made.read_bytes()).hexdigest()
        print(f"{made.relative_to(tools.ROOT)}  {made.stat().st_size / 2**20:.1f} MiB  sha256 {digest[:16]}")
