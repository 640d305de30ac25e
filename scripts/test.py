"""`make test`: gets what is missing, then the static checks, the Lua tests and the Python tests with coverage.

Ends with one line of counts. Arguments go to pytest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from minitoolstream.config import load_settings
from minitoolstream.stack.apt import get_program
from minitoolstream.stack.commands import Update
from minitoolstream.stack.console import Console
from minitoolstream.stack.get_cassandra import get_cassandra
from minitoolstream.stack.get_java import get_java
from minitoolstream.stack.get_mariadb import get_mariadb
from minitoolstream.stack.get_minio import get_minio
from minitoolstream.stack.get_spark import get_spark
from minitoolstream.stack.get_tarantool import get_tarantool
from minitoolstream.stack.ministack import get_ministack
from minitoolstream.stack.program import Program
from scripts import check, tools
from scripts.checkov import get_checkov
from tests.localstack import get_localstack

_BUILD = tools.ROOT / "build"
_LUA_TIMEOUT = 300


@dataclass(frozen=True, slots=True)
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def main(arguments: list[str]) -> int:
    console = Console()
    luacheck = check.get_luacheck(console)
    # Beside MinIO's build, which leaves a core free while it downloads and while it links.
    with ThreadPoolExecutor(max_workers=2) as two:
        checks = check.begin(luacheck, two)
        tarantool = _get_servers(console)
        if check.outcome(checks):
            return 1
    lua = _lua_tests(tarantool)
    python, code = _python_tests(arguments)
    covered = _coverage_is_enough() if not arguments else True
    print(lua + python)
    return 1 if code or lua.failed or not covered else 0


def _get_servers(console: Console) -> Program:
    """All that is missing; Tarantool is what is returned. MinIO is built, which takes minutes of CPU; what is only
    downloaded comes meanwhile, one after the other since apt lets nobody else in."""
    downloads: dict[str, Callable[[], Program]] = {
        "Tarantool": partial(get_tarantool, load_settings()["tarantool.binary"]),
        "ministack": get_ministack,
        "MariaDB": get_mariadb,
        "Chromium": partial(get_program, "chromium", "chromium"),
        "Java": get_java,
        "Cassandra": get_cassandra,
        "Spark": get_spark,
        "checkov": get_checkov,
        "LocalStack": get_localstack,
    }
    with ThreadPoolExecutor(max_workers=1) as lane:
        coming = {name: lane.submit(getter) for name, getter in downloads.items()}
        tools.get(console, "MinIO", get_minio)
        got = {name: tools.get(console, name, partial(_await, download)) for name, download in coming.items()}
    return got["Tarantool"]


def _await(download: Future[Program], *, update: Update) -> Program:
    update("getting it")
    return download.result()


def _lua_tests(tarantool: Program) -> Counts:
    files = sorted((tools.ROOT / "tarantool" / "tests").glob("*_test.lua"))
    with ThreadPoolExecutor(os.cpu_count()) as lanes:
        return sum(lanes.map(partial(_lua_test, tarantool), files), Counts())


def _lua_test(tarantool: Program, file: Path) -> Counts:
    done = subprocess.run(
        [str(tarantool.path), str(file)],
        cwd=tools.ROOT,
        env=tools.environ(tarantool),
        capture_output=True,
        text=True,
        timeout=_LUA_TIMEOUT,
        check=False,
    )
    counts = tap_counts(done.stdout, done.returncode)
    said = done.stdout + done.stderr if counts.failed else ""
    print(f"{'✗' if counts.failed else '✓'} {file.name}: {counts}\n{said}", end="", flush=True)
    return counts


def tap_counts(output: str, code: int) -> Counts:
    """Counts of TAP output; a program that dies, or stops before its plan, counts as one more failure."""
    results = re.findall(r"^(ok|not ok)\b(.*)$", output, re.MULTILINE)
    plan = re.search(r"^1\.\.(\d+)", output, re.MULTILINE)
    skipped = sum(1 for state, rest in results if state == "ok" and re.search(r"#\s*skip", rest, re.IGNORECASE))
    failed = sum(1 for state, _ in results if state == "not ok")
    if not failed and (code or plan is None or int(plan[1]) != len(results)):
        failed = 1
    return Counts(sum(1 for state, _ in results if state == "ok") - skipped, failed, skipped)


def _python_tests(arguments: list[str]) -> tuple[Counts, int]:
    _BUILD.mkdir(exist_ok=True)
    for old in _BUILD.glob(".coverage*"):
        old.unlink()
    report = _BUILD / "pytest.xml"
    report.unlink(missing_ok=True)
    # Tests that share one dear thing, as a Spark session, name a group and run in one worker. Many wait for a server or
    # for time to pass: there is one worker more than cores.
    workers = ["-n", os.environ.get("WORKERS") or str((os.cpu_count() or 1) + 1), "--dist", "loadgroup"]
    command = ["-m", "coverage", "run", "-m", "pytest", "-q", *workers, f"--junitxml={report}", *arguments]
    done = subprocess.run([sys.executable, *command], cwd=tools.ROOT, env=_environ(), check=False)
    return (_junit_counts(report) if report.exists() else Counts(failed=1)), done.returncode


def _junit_counts(report: Path) -> Counts:
    suites = ElementTree.parse(report).getroot().iter("testsuite")
    total = Counts()
    for suite in suites:
        tests, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        total += Counts(tests - failed - skipped, failed, skipped)
    return total


def _coverage_is_enough() -> bool:
    least = os.environ.get("COVERAGE_MIN", "0")
    report = ["report", "--skip-covered", "--skip-empty", f"--fail-under={least}"]
    for command in (["combine", "--quiet"], report):
        coverage = [sys.executable, "-m", "coverage", *command]
        if subprocess.run(coverage, cwd=tools.ROOT, env=_environ(), check=False).returncode:
            print(f"coverage of minitoolstream/ could not be told, or is below {least} %", file=sys.stderr)
            return False
    return True


def _environ() -> dict[str, str]:
    # Where Python may keep no bytecode, each of the hundreds of programs that tests start compiles itself anew.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # Absolute, since hosts that tests start in other folders are measured too.
    return {**kept, "COVERAGE_FILE": str(_BUILD / ".coverage")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
