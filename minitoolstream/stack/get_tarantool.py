"""Find Tarantool on this machine, or get it."""

from __future__ import annotations

import shutil
from pathlib import Path

from minitoolstream.domain.errors import MtsError
from minitoolstream.stack import apt
from minitoolstream.stack.commands import Update, ignore
from minitoolstream.stack.program import Program, on_path

_PACKAGE = "tarantool"


def find_tarantool(configured: str | None = None) -> Program | None:
    """What is here already: the configured one, one on PATH, one we unpacked earlier."""
    if configured:
        path = shutil.which(configured)
        if not path:
            raise MtsError("bad_config", f"MTS_TARANTOOL names {configured}, which is not a program")
        return Program(Path(path), "MTS_TARANTOOL")
    return on_path("tarantool") or apt.unpacked("tarantool", _PACKAGE)


def get_tarantool(configured: str | None = None, *, update: Update = ignore) -> Program:
    """What is here, else Debian's package: installed with root or sudo, unpacked under our cache without."""
    found = find_tarantool(configured)
    if found:
        return found
    try:
        return apt.get_program("tarantool", _PACKAGE, update=update)
    except MtsError as error:
        raise MtsError(
            "dependency_missing",
            f"Tarantool is not here and could not be got ({error.message}). Install it with "
            "`sudo apt-get install tarantool`, or set MTS_TARANTOOL to a tarantool of 2.6 or newer.",
            error.details,
        ) from error
