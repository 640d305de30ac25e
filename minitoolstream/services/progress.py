"""How long work tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str], None]


def silent(_text: str) -> None:
    """For those who show nothing."""
