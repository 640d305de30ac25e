"""The load generator: a small Go program, built once, that takes a plan and says what came back."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.errors import BenchError
from minitoolstream.stack.commands import run
from minitoolstream.stack.get_minio import get_go
from minitoolstream.stack.program import cache_folder

_SOURCE = Path(__file__).parent / "loadgen"


class Request(msgspec.Struct, omit_defaults=True):
    """One request; its body is `size` pseudo-random bytes, or a file's content."""

    method: str
    url: str
    headers: dict[str, str] = {}
    size: int = 0
    body_file: str = ""


class Publish(msgspec.Struct):
    """Ticket, PUT and receipt as one operation."""

    ticket_url: str
    receipt_url: str
    headers: dict[str, str]
    size: int


class Plan(msgspec.Struct, omit_defaults=True):
    """One load: `count` operations, `in_flight` at a time, over `requests` again and again."""

    in_flight: int
    count: int
    requests: Sequence[Request] = ()
    publish: Publish | None = None
    seconds: float = 120
    rate: float = 0
    seed: int = 1
    capture: bool = False


class LoadResult(msgspec.Struct):
    """What the generator saw; rate and latencies are of operations answered 2xx."""

    operations: int
    succeeded: int
    seconds: float
    rate: float
    statuses: dict[str, int]
    errors: dict[str, int]
    latency_ms: dict[str, float]
    per_second: list[int]
    bytes_sent: int
    bytes_received: int
    cpu_seconds: float
    captured: list[str] = []

    def must_have_succeeded(self, count: int) -> None:
        """Every one of `count` operations was answered 2xx; a rate of failures measures nothing."""
        if self.succeeded != count:
            example = next((body[:300] for body in self.captured if '"error"' in body), "")
            raise BenchError(
                f"{self.succeeded} of {count} operations succeeded: {self.statuses} {self.errors} {example}"
            )


class LoadGenerator:
    def __init__(self, program: Path) -> None:
        self._program = program

    def run(self, plan: Plan) -> LoadResult:
        done = subprocess.run(
            [self._program],
            input=msgspec.json.encode(plan),
            capture_output=True,
            timeout=plan.seconds + 120,
            check=False,
        )
        if done.returncode:
            raise BenchError(done.stderr.decode("utf-8", "replace").strip())
        return msgspec.json.decode(done.stdout, type=LoadResult)


def build() -> LoadGenerator:
    """The generator of exactly these sources: from the cache, or built with Go."""
    digest = hashlib.sha256()
    for file in sorted(_SOURCE.glob("*.go")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    program = cache_folder() / "bin" / f"loadgen-{digest.hexdigest()[:12]}"
    if not program.exists():
        _build(program)
    return LoadGenerator(program)


def _build(program: Path) -> None:
    print("building the load generator (once)", file=sys.stderr)
    program.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, so that the program appears there in one step.
    with tempfile.TemporaryDirectory(dir=program.parent, prefix="build-") as scratch:
        environ = {
            "GOCACHE": f"{scratch}/cache",
            "GOTOOLCHAIN": "local",
            "GOFLAGS": "",
            "CGO_ENABLED": "0",
        }
        built = Path(scratch) / "loadgen"
        command = [str(get_go()), "build", "-trimpath", "-o", str(built), "."]
        run(command, log=cache_folder() / "logs" / "loadgen-build.log", environ=environ, folder=_SOURCE)
        built.replace(program)
