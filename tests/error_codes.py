"""The error codes that our source raises, to compare with what is written about them."""

from __future__ import annotations

import re
from pathlib import Path

from minitoolstream.domain.upload import State

_PACKAGE = Path(__file__).parents[1] / "minitoolstream"
_PLAIN = re.compile(r'MtsError\(\s*"([a-z_]+)"')
_BY_STATE = 'MtsError(f"upload_{receipt.state}"'


def raised_by(*layers: str) -> set[str]:
    """Codes in the modules of these layers; without any, of the whole package."""
    codes: set[str] = set()
    for path in _PACKAGE.rglob("*.py"):
        if layers and path.relative_to(_PACKAGE).parts[0].removesuffix(".py") not in layers:
            continue
        source = path.read_text("utf-8")
        codes |= set(_PLAIN.findall(source))
        if _BY_STATE in source:
            codes |= {f"upload_{state}" for state in State if state.final and state is not State.COMMITTED}
    return codes
