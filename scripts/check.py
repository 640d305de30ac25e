"""The static checks: ruff, mypy, luacheck, bandit, buf. All run, also after one has failed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from minitoolstream.stack.apt import get_program
from minitoolstream.stack.console import Console
from minitoolstream.stack.program import Program
from scripts import proto, tools

_BIN = Path(sys.executable).parent
_PYTHON_FOLDERS = ("minitoolstream", "functions", "spark_emr", "tests", "scripts", "bench", "examples")
Check = tuple[str, Future[subprocess.CompletedProcess[str]]]


def main() -> int:
    with ThreadPoolExecutor(max_workers=2) as two:
        return outcome(begin(get_luacheck(Console()), two))


def get_luacheck(console: Console) -> Program:
    return tools.get(console, "luacheck", partial(get_program, "luacheck", "lua-check"))


def begin(luacheck: Program, lanes: Executor) -> list[Check]:
    folders = [name for name in _PYTHON_FOLDERS if any((tools.ROOT / name).rglob("*.py"))]
    checks: list[tuple[str, list[str | Path], Mapping[str, str]]] = [
        # First, since it takes longest: the others run beside it. Module names come from the folders: there is an `app`
        # in each function.
        ("mypy", [_BIN / "mypy", "--strict", "--explicit-package-bases", *folders], os.environ),
        ("ruff", [_BIN / "ruff", "check", "--quiet", "."], os.environ),
        ("ruff format", [_BIN / "ruff", "format", "--check", "--quiet", "."], os.environ),
        ("luacheck", [luacheck.path, "--quiet", "tarantool"], tools.environ(luacheck)),
        ("bandit", [_BIN / "bandit", "--quiet", "-c", "pyproject.toml", "-r", *_shipped()], os.environ),
        ("buf lint", [_BIN / "buf", "lint"], os.environ),
        ("buf format", [_BIN / "buf", "format", "--diff", "--exit-code"], os.environ),
        ("buf breaking", [_BIN / "buf", "breaking", "--against", proto.PUBLISHED], os.environ),
    ]
    return [(name, lanes.submit(_run, command, environ)) for name, command, environ in checks]


def outcome(checks: Sequence[Check]) -> int:
    """Tells of each, once all before it have ended."""
    failed = []
    for name, running in checks:
        done = running.result()
        print(f"{'✗' if done.returncode else '✓'} {name}", flush=True)
        if done.returncode:
            failed.append(name)
            print(done.stdout + done.stderr, flush=True)
    if failed:
        print(f"static checks failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _shipped() -> list[str]:
    return [name for name in ("minitoolstream", "functions", "spark_emr") if (tools.ROOT / name).is_dir()]


def _run(command: Sequence[str | Path], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)), cwd=tools.ROOT, env=dict(environ), capture_output=True, text=True, check=False
    )


if __name__ == "__main__":
    sys.exit(main())
