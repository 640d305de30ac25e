"""The functions as the host runs them: each `app.py` gets a module name of its own, all are called `app`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from minitoolstream.api.app import Route
from minitoolstream.bundle import bundled
from minitoolstream.domain.errors import MtsError

NAMES = ("publish", "fetch", "on_object_created", "ttl_sweeper", "pipeline", "catalog")

EventHandler = Callable[[Any, Any, str], Awaitable[dict[str, Any]]]
"""Core, event, request id. The event may be anything; what it cannot read, the function records."""


@dataclass(frozen=True, slots=True)
class Functions:
    """Routes by the function they belong to, and the one that takes the object store's events."""

    routes: tuple[tuple[str, Route], ...]
    handle_event: EventHandler


def load_functions(folder: Path | None = None) -> Functions:
    """Import every function; nothing is connected by that."""
    folder = folder or bundled("functions")
    modules = {name: _load(name, folder / name / "app.py") for name in NAMES}
    routes = tuple((name, route) for name, module in modules.items() for route in module.app.api_routes)
    return Functions(routes, modules["on_object_created"].handle_event)


def _load(name: str, path: Path) -> ModuleType:
    spec = spec_from_file_location(f"minitoolstream_function_{name}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise MtsError("not_configured", f"the function `{name}` is missing: install minitoolstream again")
    module = module_from_spec(spec)
    # Before it runs, as `import` does: dataclasses and pickles look a module up by its name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
