"""The programs that the checks and tests need, got when they are missing."""

from __future__ import annotations

import os
from pathlib import Path

from minitoolstream.config import load_settings
from minitoolstream.stack.apt import get_program
from minitoolstream.stack.console import Console
from minitoolstream.stack.get_minio import get_minio
from minitoolstream.stack.get_tarantool import get_tarantool
from minitoolstream.stack.ministack import get_ministack
from minitoolstream.stack.program import Program

ROOT = Path(__file__).resolve().parent.parent


def luacheck(console: Console) -> Program:
    with console.step("luacheck") as step:
        program = get_program("luacheck", "lua-check", update=step.update)
        step.done(program.origin)
    return program


def tarantool(console: Console) -> Program:
    with console.step("Tarantool") as step:
        program = get_tarantool(load_settings()["tarantool.binary"], update=step.update)
        step.done(program.origin)
    return program


def minio(console: Console) -> Program:
    with console.step("MinIO") as step:
        program = get_minio(update=step.update)
        step.done(program.origin)
    return program


def chromium(console: Console) -> Program:
    with console.step("Chromium") as step:
        program = get_program("chromium", "chromium", update=step.update)
        step.done(program.origin)
    return program


def ministack(console: Console) -> Program:
    with console.step("ministack") as step:
        program = get_ministack(update=step.update)
        step.done(program.origin)
    return program


def environ(program: Program) -> dict[str, str]:
    return {**os.environ, **program.environ}
