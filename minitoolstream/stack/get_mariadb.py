"""Find MariaDB on this machine, or get it: for tests, and for whoever tries the pipeline with a server of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

from minitoolstream.domain.errors import MtsError
from minitoolstream.stack import apt
from minitoolstream.stack.commands import Update, ignore
from minitoolstream.stack.lock import locked
from minitoolstream.stack.program import Program

_PACKAGE = "mariadb-server"
_FOLDERS = "/usr/sbin:/usr/libexec"  # where servers are, and PATH of ordinary users does not lead


def find_mariadb() -> Program | None:
    """What is here already: one that was installed, or one that we unpacked earlier."""
    installed = shutil.which("mariadbd") or shutil.which("mariadbd", path=_FOLDERS)
    if installed and (shutil.which("mariadb-install-db")):
        return Program(Path(installed), "installed")
    return apt.unpacked("mariadbd", _PACKAGE, folder="sbin")


def get_mariadb(*, update: Update = ignore) -> Program:
    """What is here, else Debian's package, unpacked under our cache. It is never installed, not even by root: that
    would start a server of the system's."""
    found = find_mariadb()
    if found:
        return found
    if not shutil.which("apt-get"):
        raise MtsError("dependency_missing", "MariaDB is not installed, and there is no apt-get to get it with")
    lock = apt.root_of(_PACKAGE).with_suffix(".lock")
    with locked(lock, waiting=lambda: update("waiting for another mts to get MariaDB")):
        if not find_mariadb():
            apt.unpack(_PACKAGE, update=update)
    found = find_mariadb()
    if not found:
        raise MtsError("dependency_missing", f"the package {_PACKAGE} did not bring the program mariadbd")
    return found
