"""The programs that the checks and tests need, got when they are missing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from minitoolstream.stack.console import Console
from minitoolstream.stack.program import Program

ROOT = Path(__file__).resolve().parent.parent


def get(console: Console, title: str, getter: Callable[..., Program]) -> Program:
    """What the getter gives; it tells `update` how far it is."""
    with console.step(title) as step:
        program = getter(update=step.update)
        step.done(program.origin)
    return program


def environ(program: Program) -> dict[str, str]:
    return {**os.environ, **program.environ}
