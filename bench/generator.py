"""The load generator: a small Go program, built once, that takes a plan and says what came back."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.errors import BenchError
from minitoolstream.stack.commands import run
from minitoolstream.stack.get_minio import get_go
from minitoolstream.stack.program import cache_folder

_SOURCE = Path(__file__).parent / "loadgen"


class Grpc(msgspec.Struct):
    """One gRPC call: `message`, and behind it field 2 with the request's bytes. `status_field` is that of the answer's
    `status_code`."""

    message: bytes
    status_field: int


class Request(msgspec.Struct, omit_defaults=True):
    """One request; its body is `size` pseudo-random bytes, or a file's content."""

    method: str
    url: str
    headers: dict[str, str] = {}
    size: int = 0
    body_file: str = ""
    frame: bytes | None = None
    """A packet for Tarantool; the URL is tarantool://address then."""
    grpc: Grpc | None = None
    """A gRPC call; the headers are its metadata, in the place of a body comes field 2."""


class Publish(msgspec.Struct):
    """Ticket, PUT and receipt as one operation."""

    ticket_url: str
    receipt_url: str
    headers: dict[str, str]
    size: int


class Step(msgspec.Struct, omit_defaults=True):
    """One call of an operation of several. `<name>` stands for what `take` took from answers before.

    `take` is {name: field}: its first value in the answer, with `field[-1]` the last one, with `field[]` all of them,
    which count as messages. `<slot>` is the number of the operation slot.
    """

    method: str
    url: str
    headers: dict[str, str] = {}
    body: str = ""
    size: int = 0
    take: dict[str, str] = {}


class Readers(msgspec.Struct, omit_defaults=True):
    """Connections that wait for messages: streams of events, or one long poll after the other.

    With `expect`, the run fails unless each of them sees every message that is published in it, once and in order.
    """

    count: int
    url: str
    headers: dict[str, str]
    stream: bool = False
    expect: bool = False


class Plan(msgspec.Struct, omit_defaults=True):
    """One load: `count` operations, `in_flight` at a time, over `requests` again and again, or `steps` in turn."""

    in_flight: int
    count: int
    requests: Sequence[Request] = ()
    publish: Publish | None = None
    steps: Sequence[Step] = ()
    readers: Sequence[Readers] = ()
    settle: float = 0
    seconds: float = 120
    rate: float = 0
    seed: int = 1
    capture: bool = False


class Delivered(msgspec.Struct):
    """What readers got. `latency_ms` counts from the publisher's answer, `whole_ms` from its request."""

    readers: int
    events: int
    seconds: float
    rate: float
    latency_ms: dict[str, float]
    whole_ms: dict[str, float]


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
    messages: int = 0
    captured: list[str] = []
    delivered: Delivered | None = None

    def must_have_succeeded(self, count: int) -> None:
        """Every one of `count` operations was answered 2xx; a rate of failures measures nothing."""
        if self.succeeded != count:
            example = next((body[:300] for body in self.captured if '"error"' in body), "")
            raise BenchError(
                f"{self.succeeded} of {count} operations succeeded: {self.statuses} {self.errors} {example}"
            )


class LoadGenerator:
    def __init__(self, program: Path) -> None:
        self.program = program

    def run(self, plan: Plan) -> LoadResult:
        done = subprocess.run(
            [self.program],
            input=msgspec.json.encode(plan),
            capture_output=True,
            timeout=plan.seconds + 120,
            check=False,
        )
        return _result(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def running(self, plan: Plan) -> Iterator[list[LoadResult]]:
        """The load beside the block, begun when the block begins and ended with it; then the list has its result."""
        results: list[LoadResult] = []
        with subprocess.Popen(
            [self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdin
            assert process.stderr
            try:
                process.stdin.write(msgspec.json.encode(plan))
                process.stdin.close()
                first = process.stderr.readline()
                if first.strip() != b"started":
                    raise BenchError(first.decode("utf-8", "replace").strip())
                yield results
                process.send_signal(signal.SIGINT)
                # Popen's own `communicate` would write to the closed input.
                process.stdin = None
                output, problem = process.communicate(timeout=120)
                results.append(_result(process.returncode, output, problem))
            finally:
                process.kill()


def _result(code: int, output: bytes, problem: bytes) -> LoadResult:
    if code:
        raise BenchError(problem.decode("utf-8", "replace").removeprefix("started").strip())
    return msgspec.json.decode(output, type=LoadResult)


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
