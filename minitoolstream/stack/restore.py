"""The stack around a restore: the host and Tarantool stopped, the object store running, and a Tarantool on an address
that nobody else knows."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.stack import tarantool
from minitoolstream.stack.console import Console
from minitoolstream.stack.credentials import load_or_generate
from minitoolstream.stack.get_tarantool import get_tarantool
from minitoolstream.stack.lock import locked
from minitoolstream.stack.places import store_place, tarantool_place
from minitoolstream.stack.ports import free_port
from minitoolstream.stack.private_files import private_folder
from minitoolstream.stack.processes import start, stop, wait_until_ready
from minitoolstream.stack.state import GRPC, HOST, STORES, TARANTOOL, WAITING, load_state
from minitoolstream.stack.supervisor import Supervisor
from minitoolstream.stack.up import Load, Starter, tarantool_folder, tarantool_launch

_UNFINISHED = "restore-unfinished"
_READY_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class BareStack:
    """`folder` is where Tarantool's files go; it is empty."""

    load: Callable[[], Settings]
    folder: Path

    @contextmanager
    def tarantool(self) -> Iterator[Settings]:
        """A Tarantool on this folder that no host finds; yields settings that reach it."""
        settings = self.load()
        address = f"127.0.0.1:{free_port()}"
        user, password = settings["tarantool.user"], settings.secret("tarantool.password")
        launch = tarantool_launch(settings, get_tarantool(settings["tarantool.binary"]), address)
        log_from = launch.log.stat().st_size if launch.log.exists() else 0
        process = start(launch)
        try:
            wait_until_ready(
                process,
                launch,
                lambda: tarantool.login_problem(address, user, password) is None,
                timeout=_READY_SECONDS,
                log_from=log_from,
            )
            yield settings.with_values(tarantool__address=address)
        finally:
            stop(process)


@contextmanager
def bare_stack(
    load: Load, console: Console, *, replace: bool, look_first: Callable[[], object] = lambda: None
) -> Iterator[BareStack]:
    """Starts the object store, stops the host and Tarantool, and makes room for what is restored. Data that is there
    is moved aside with `replace`, else it is an error. `look_first()` may refuse while nothing has been stopped. What
    is left of a restore that failed is removed, and the data is back in its place."""
    home = load().home
    _must_have_a_store(load())
    private_folder(home)
    with locked(home / "lock", waiting=lambda: console.say(WAITING)):
        state = load_state(home)
        if not tarantool_place(load(), state).managed:
            raise MtsError(
                "bad_config",
                "this Tarantool is not one that `mts up` starts, so it cannot be stopped and filled from here",
                {"hint": "`mts restore --files DIR` gets the snapshot; start with it, then `mts restore --replay`"},
            )
        supervisor = Supervisor(home, state)
        supervisor.save()
        folder = tarantool_folder(home)
        _must_be_free(folder, replace=replace)
        Starter(load, console, supervisor, load_or_generate(home)).run_store()
        try:
            look_first()
        except BaseException:
            supervisor.undo()
            raise
        for part in (GRPC, HOST, TARANTOOL):
            supervisor.stop(part)
        aside = _make_room(folder)
        if aside:
            console.say(f"  what was there is kept in {aside}")
        unfinished = folder / _UNFINISHED
        unfinished.touch()
        try:
            yield BareStack(load, folder)
        except BaseException:
            shutil.rmtree(folder)
            if aside:
                aside.rename(folder)
                console.say("  what was there is back in its place; `mts up` starts it again")
            raise
        unfinished.unlink()


def _must_have_a_store(settings: Settings) -> None:
    """Before one is made, or even built, that could only be empty."""
    kept = any((settings.home / "data" / kind).is_dir() for kind in STORES)
    if not kept and store_place(settings, load_state(settings.home)).managed:
        raise MtsError(
            "not_found",
            f"there is nothing to restore from: {settings.home} holds no object store",
            {"hint": "run it in the folder where `mts up` ran, or set MTS_HOME to its `.mts`"},
        )


def _must_be_free(folder: Path, *, replace: bool) -> None:
    if _has_data(folder) and not replace:
        raise MtsError(
            "recovery_conflict",
            f"there is data in {folder}",
            {"hint": "--replace moves it aside and restores in its place"},
        )


def _has_data(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir()) and not (folder / _UNFINISHED).exists()


def _make_room(folder: Path) -> Path | None:
    aside = None
    if _has_data(folder):
        aside = folder.with_name(f"{folder.name}.{time.strftime('%Y%m%d-%H%M%S')}")
        folder.rename(aside)
    elif folder.exists():
        shutil.rmtree(folder)
    private_folder(folder)
    return aside
