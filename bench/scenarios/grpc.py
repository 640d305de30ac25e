"""gRPC: the same publish as over HTTP and as a raw PUT; the specification's floors; a large payload in a stream."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from bench.errors import BenchError
from bench.generator import Grpc, LoadResult, Plan, Request
from bench.measure import Bench, Variant, cpu_microseconds, ratio_row
from bench.processes import Peak, cpu_seconds
from bench.rows import Floor, Row
from bench.scenarios.loads import expect_receipts, inline, raw_put
from bench.scenarios.targets import repeat, target_row
from minitoolstream.connector._stubs import Stub
from minitoolstream.pb import egress_v1_pb2 as egress
from minitoolstream.pb import ingress_v1_pb2 as ingress
from minitoolstream.stack.ports import free_port
from minitoolstream.stack.processes import Launch
from tests.servers import Server

SUBJECT = "bench.grpc"
KB = 1024
GIB = 2**30
_HEALTH: Any = health_pb2.DESCRIPTOR.services_by_name["Health"]


@dataclass
class GrpcServer(Server):
    ingress: str = ""
    egress: str = ""

    def ready(self) -> bool:
        with grpc.insecure_channel(self.egress) as channel:
            try:
                answer = Stub(channel, _HEALTH).Check(health_pb2.HealthCheckRequest(), timeout=2)
            except grpc.RpcError:
                return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


@contextmanager
def running_grpc(bench: Bench) -> Iterator[GrpcServer]:
    ports = free_port(), free_port()
    launch = Launch(
        name="grpc",
        command=[sys.executable, "-m", "minitoolstream.cli.main", "grpc"],
        log=bench.stack.folder / "grpc.log",
        environ={
            "MTS_HOME": str(bench.stack.home),
            "MTS_GRPC_INGRESS_PORT": str(ports[0]),
            "MTS_GRPC_EGRESS_PORT": str(ports[1]),
            "MTS_SERVER_WORKERS": str(bench.stack.workers),
            "MTS_LOGGING_LEVEL": "warning",
        },
    )
    server = GrpcServer(launch, ingress=f"127.0.0.1:{ports[0]}", egress=f"127.0.0.1:{ports[1]}")
    server.start()
    try:
        yield server
    finally:
        server.stop()


def run(bench: Bench) -> list[Row]:
    with running_grpc(bench) as server:
        rows = [row for flight in (1, 16, 64) for row in _against(bench, server, flight)]
        rows += [_publishes(bench, server), _errors(bench, server), _reads(bench, server), _connections(bench, server)]
    with running_grpc(bench) as fresh:  # what a thousand connections took is not what a stream takes
        return [*rows, *_stream(bench, fresh)]


def publish(bench: Bench, server: GrpcServer, size: int, in_flight: int, rate: float = 0) -> Variant:
    message = ingress.PublishRequest(subject=SUBJECT).SerializeToString()
    url = f"http://{server.ingress}/minitoolstream.v1.IngressService/Publish"
    headers = {"authorization": f"Bearer {bench.stack.token}"}
    request = Request("POST", url, headers, size, grpc=Grpc(message, 3))

    def plan(count: int) -> Plan:
        return Plan(in_flight=in_flight, count=count, requests=[request], capture=True, rate=rate)

    return Variant("gRPC", plan, lambda result: expect_receipts(bench, result))


def _against(bench: Bench, server: GrpcServer, flight: int) -> list[Row]:
    size = 10 * KB
    variants = [
        raw_put(bench, size, flight),
        inline(bench, f"{SUBJECT}.http", size, flight),
        publish(bench, server, size, flight),
    ]
    samples = bench.interleaved(f"gRPC, 10 KB, {flight} in flight", variants)
    rows = [
        ratio_row(
            f"grpc-raw-{flight}",
            f"Publish over gRPC, 10 KB, {flight} in flight",
            samples["gRPC"],
            samples["raw PUT"],
            reference={16: "the Go servers of the specification 0.78"}.get(flight, ""),
        ),
        ratio_row(
            f"grpc-http-{flight}",
            f"the same against HTTP inline, {flight} in flight",
            samples["gRPC"],
            samples["inline"],
            unit="http",
        ),
    ]
    if flight == 16:
        rows.append(_cpu(bench, server, variants[2]))
    return rows


def _cpu(bench: Bench, server: GrpcServer, variant: Variant) -> Row:
    costs = []
    for _ in range(bench.rounds):
        before = cpu_seconds(server.pid)
        sample = bench.once(variant, int(500 * max(1.0, bench.seconds)))
        costs.append((cpu_seconds(server.pid) - before) / sample.result.succeeded * 1e6)
    return Row(
        key="grpc-cpu",
        measure="CPU a Publish over gRPC: the gRPC server, 16 in flight",
        unit="us",
        value=statistics.median(costs),
        rounds=costs,
        note=f"Tarantool {statistics.median(cpu_microseconds([sample], 'Tarantool')):,.0f} us",
    )


def _publishes(bench: Bench, server: GrpcServer) -> Row:
    rate = 1000
    samples = repeat(bench, publish(bench, server, 10 * KB, 256, rate), rate)
    return target_row(
        "grpc-target-publish", f"spec: {rate:,} Publish calls a second (10 KB), p95", samples, Floor(50, at_most=True)
    )


def _errors(bench: Bench, server: GrpcServer) -> Row:
    """The one run that a failure does not end: it is what is measured."""
    rate = 1000
    count = int(rate * max(1.0, bench.seconds)) * bench.rounds
    return error_rate(bench.generator.run(publish(bench, server, 10 * KB, 256, rate).plan(count)), rate)


def error_rate(result: LoadResult, rate: int) -> Row:
    """Of all calls that were begun, in percent."""
    failed = result.operations - result.succeeded
    return Row(
        key="grpc-target-errors",
        measure=f"spec: errors among {result.operations:,} Publish calls (10 KB), {rate:,} a second",
        unit="%",
        value=100 * failed / result.operations,
        floor=Floor(0.1, at_most=True),
        rate=result.rate,
        note=f"{failed} failed",
    )


def _reads(bench: Bench, server: GrpcServer) -> Row:
    """A read is a Fetch of one message with its payload."""
    rate = 500
    sample = bench.once(publish(bench, server, 10 * KB, 16), 200)
    sequences = [json.loads(body)["sequence"] for body in sample.result.captured]
    url = f"http://{server.egress}/minitoolstream.v1.EgressService/Fetch"
    headers = {"authorization": f"Bearer {bench.stack.token}"}
    requests = [
        Request(
            "POST",
            url,
            headers,
            grpc=Grpc(egress.FetchRequest(subject=SUBJECT, start_sequence=sequence, limit=1).SerializeToString(), 2),
        )
        for sequence in sequences
    ]

    def check(result: LoadResult) -> None:
        if result.bytes_received < result.succeeded * 10 * KB:
            raise BenchError("a message came back without its payload")

    def plan(count: int) -> Plan:
        return Plan(in_flight=256, count=count, requests=requests, rate=rate)

    samples = repeat(bench, Variant("gRPC read", plan, check), rate)
    return target_row(
        "grpc-target-read",
        f"spec: {rate} Fetch calls a second (10 KB with payload), p95",
        samples,
        Floor(100, at_most=True),
    )


def _connections(bench: Bench, server: GrpcServer) -> Row:
    connections = 1000
    count = connections * (2 if bench.quick else 5)
    samples = [bench.once(publish(bench, server, KB, connections), count) for _ in range(bench.rounds)]
    row = target_row(
        "grpc-connections", f"spec: {connections:,} gRPC connections at once (Publish, 1 KB)", samples, None
    )
    row.unit, row.value, row.floor, row.rounds = "n", connections, Floor(connections), ()
    return row


def _stream(bench: Bench, server: GrpcServer) -> list[Row]:
    """Through one server process and back; its memory is watched."""
    size = GIB // 16 if bench.quick else GIB
    command = [sys.executable, "-m", "bench.grpc_transfer", server.ingress, server.egress, bench.stack.token, str(size)]
    with Peak(server.pid).watching() as peak:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise BenchError(done.stderr.strip() or done.stdout.strip())
    seconds = json.loads(done.stdout)
    bench.say(f"{size >> 20} MiB: {seconds}, peak {peak.bytes >> 20} MiB")
    rows = [
        Row(
            key="grpc-stream-memory",
            measure=f"memory of the gRPC server, {size >> 20} MiB up by PublishStream and down by Download",
            unit="MB",
            value=peak.bytes / 1e6,
            floor=Floor(200, at_most=True),
        )
    ]
    for way, name in (("up", "PublishStream"), ("down", "Download")):
        rows.append(
            Row(
                key=f"grpc-stream-{way}",
                measure=f"{name}, {size >> 20} MiB",
                unit="MB/s",
                value=size / 1e6 / seconds[way],
            )
        )
    return rows
