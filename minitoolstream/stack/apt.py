"""Debian packages: installed where we may, else downloaded and unpacked under our cache."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from minitoolstream.domain.errors import MtsError
from minitoolstream.stack.commands import Update, ignore, output, prepended, run
from minitoolstream.stack.lock import locked
from minitoolstream.stack.program import Program, cache_folder, on_path

_LISTS = Path("/var/lib/apt/lists")
_QUIET = {"DEBIAN_FRONTEND": "noninteractive"}


def get_program(name: str, package: str, *, folder: str = "bin", update: Update = ignore) -> Program:
    """The program `name`, from PATH, from the package, or from the package unpacked without root: there it lies in
    this folder of `/usr`."""
    found = on_path(name) or unpacked(name, package, folder=folder)
    if found:
        return found
    if not shutil.which("apt-get"):
        raise MtsError("dependency_missing", f"{name} is not installed, and there is no apt-get to get it with")
    lock = root_of(package).with_suffix(".lock")
    with locked(lock, waiting=lambda: update(f"waiting for another mts to get {name}")):
        found = on_path(name) or unpacked(name, package, folder=folder) or _get(name, package, folder, update)
    if not found:
        raise MtsError("dependency_missing", f"the package {package} did not bring the program {name}")
    return found


def _get(name: str, package: str, folder: str, update: Update) -> Program | None:
    prefix = root_prefix()
    if prefix is None:
        unpack(package, update=update)
        return unpacked(name, package, folder=folder)
    install(package, prefix, update=update)
    installed = on_path(name)
    return Program(installed.path, "Debian's package, installed") if installed else None


def root_prefix() -> list[str] | None:
    """What makes a command run as root without asking for a password; None when nothing does."""
    if os.geteuid() == 0:
        return []
    return ["sudo", "-n"] if output(["sudo", "-n", "true"]) is not None else None


def install(package: str, prefix: Sequence[str], *, update: Update = ignore) -> None:
    update(f"installing Debian's {package}")
    log = _log()
    command = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]
    try:
        run([*command, "install", "-y", "--no-install-recommends", package], log=log)
    except MtsError:
        # Fresh images come without package lists, old ones with lists of files that are gone.
        update("reading Debian's package lists")
        run([*command, "update"], log=log)
        update(f"installing Debian's {package}")
        run([*command, "install", "-y", "--no-install-recommends", package], log=log)


def unpacked(name: str, package: str, *, folder: str = "bin") -> Program | None:
    """A program that `unpack` brought in an earlier run, with the search paths it needs."""
    root = root_of(package)
    program = root / "usr" / folder / name
    if not program.exists():
        return None
    libraries = _library_folders(root)
    lua = root / "usr" / "share" / "lua" / "5.1"
    environ = {
        "PATH": prepended("PATH", [root / "usr" / "bin"]),
        "LD_LIBRARY_PATH": prepended("LD_LIBRARY_PATH", libraries),
    }
    if lua.is_dir():
        environ["LUA_PATH"] = f"{lua}/?.lua;{lua}/?/init.lua;;"
        environ["LUA_CPATH"] = ";".join([*(f"{folder}/lua/5.1/?.so" for folder in libraries), ";"])
    return Program(program, f"Debian's package, unpacked under {root}", environ)


def _library_folders(root: Path) -> list[Path]:
    """Where shared libraries lie; some packages keep theirs one folder deeper."""
    folders = [*root.glob("usr/lib/*-linux-gnu*"), *root.glob("lib/*-linux-gnu*")]
    deeper = {library.parent for folder in folders for library in folder.glob("*/lib*.so*")}
    return [*folders, *sorted(deeper)]


def unpack(package: str, *, update: Update = ignore) -> None:
    """Download and unpack a package and what it needs and this machine lacks. Works without root."""
    if any(_LISTS.glob("*Packages*")):
        with contextlib.suppress(MtsError):  # old lists name files that are gone
            _unpack(package, _options(), update)
            return
    _unpack(package, _fresh_lists(update), update)


def _unpack(package: str, options: Sequence[str], update: Update) -> None:
    needed = _needed(package, options)
    root = root_of(package)
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent) as temporary:
        folder, target = Path(temporary), Path(temporary) / "root"
        update(f"downloading {len(needed)} Debian packages for {package}")
        run(["apt-get", "-q", *options, "download", *needed], log=_log(), folder=folder, environ=_QUIET)
        for archive in sorted(folder.glob("*.deb")):
            update(f"unpacking: {archive.name.split('_')[0]}")
            run(["dpkg-deb", "-x", str(archive), str(target)], log=_log())
        lead_inside(target)
        if root.exists():
            shutil.rmtree(root)
        # In one step, so that an interrupted run leaves nothing that looks complete.
        target.rename(root)


def lead_inside(root: Path) -> None:
    """Links of packages to absolute places: what was unpacked is below `root`."""
    for link in [path for path in root.rglob("*") if path.is_symlink()]:
        aim = str(link.readlink())
        inside = root / aim.lstrip("/")
        if aim.startswith("/") and os.path.lexists(inside):
            link.unlink()
            link.symlink_to(os.path.relpath(inside, link.parent))


def _needed(package: str, options: Sequence[str]) -> list[str]:
    listed = output(["apt-get", "-s", *options, "install", "--no-install-recommends", package], environ=_QUIET)
    if listed is None:
        raise MtsError("dependency_missing", f"Debian's package lists do not know {package}")
    names = re.findall(r"^Inst (\S+)", listed, re.MULTILINE)
    # Installed, yet its program is not on PATH: the package itself is all we need.
    return names or [package]


def _options() -> list[str]:
    """Options for apt-get that need no root."""
    return ["-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=" + _user()]


def _fresh_lists(update: Update) -> list[str]:
    """Options for apt-get, with package lists of our own, fetched now."""
    state, cache = cache_folder() / "apt" / "state", cache_folder() / "apt" / "cache"
    for folder in (state / "lists" / "partial", cache / "archives" / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    options = [*_options(), "-o", f"Dir::State={state}", "-o", "Dir::State::status=/var/lib/dpkg/status"]
    options += ["-o", f"Dir::Cache={cache}"]
    update("reading Debian's package lists")
    run(["apt-get", "-q", *options, "update"], log=_log(), environ=_QUIET)
    return options


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "root"


def root_of(package: str) -> Path:
    return cache_folder() / "debian" / package


def _log() -> Path:
    return cache_folder() / "logs" / "apt.log"
