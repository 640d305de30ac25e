"""Where the files are that are not Python: Lua, functions, the web page."""

from __future__ import annotations

from pathlib import Path

from minitoolstream.domain.errors import MtsError

_PACKAGE = Path(__file__).resolve().parent


def bundled(name: str) -> Path:
    """The folder `catalog`, `tarantool`, `functions`, `db` or `web`: inside an installed wheel, or in the checkout."""
    for folder in (_PACKAGE / "_bundled" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise MtsError("not_configured", f"the folder `{name}` is missing: install minitoolstream again")
