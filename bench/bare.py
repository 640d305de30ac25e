"""A bare Tarantool with the same rows: what fetches are measured against, as PUTs are against the bare store."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asynctnt
import msgspec

from bench.errors import BenchError
from bench.generator import LoadResult, Plan, Request
from bench.measure import Variant
from bench.stack import Stack
from minitoolstream.stack.ports import free_port, split_address
from minitoolstream.stack.processes import Launch
from tests.servers import Server, TarantoolServer, tarantool_program

_SPACE, _SUBJECT_SEQUENCE = 512, 1
_SELECT, _GREATER_OR_EQUAL = 1, 5


@dataclass
class BareTarantool(Server):
    """It listens when it has all rows, and not before."""

    address: str = ""

    def ready(self) -> bool:
        try:
            with socket.create_connection(split_address(self.address, 3301), timeout=1):
                return True
        except OSError:
            return False

    def select(self, subject: str, starts: Sequence[int], rows: int, in_flight: int) -> Variant:
        """IPROTO_SELECTs of `rows` rows of a subject from each of `starts`. They are read, and not decoded."""
        url = f"tarantool://{self.address}"
        requests = [Request("SELECT", url, frame=_select(subject, start, rows)) for start in starts]

        def check(result: LoadResult) -> None:
            if result.bytes_received < rows * result.succeeded * len("a row"):
                raise BenchError("the bare Tarantool gave no rows")

        def plan(count: int) -> Plan:
            return Plan(in_flight=in_flight, count=count, requests=requests)

        return Variant("select", plan, check, warm_up=1000, most=200_000)


def _select(subject: str, start: int, rows: int) -> bytes:
    head = msgspec.msgpack.encode({0x00: _SELECT, 0x01: 0})
    body = msgspec.msgpack.encode(
        {
            0x10: _SPACE,
            0x11: _SUBJECT_SEQUENCE,
            0x12: rows,
            0x13: 0,
            0x14: _GREATER_OR_EQUAL,
            0x20: [subject, start],
        }
    )
    return struct.pack(">BI", 0xCE, len(head) + len(body)) + head + body


@contextmanager
def bare_tarantool(stack: Stack, subjects: Sequence[str]) -> Iterator[BareTarantool]:
    """A second Tarantool with copies of the subjects' rows, two of their indexes, and none of our code."""
    folder = stack.folder / f"bare-{'-'.join(subjects)}"
    folder.mkdir()
    rows = asyncio.run(_rows(stack.tarantool, subjects))
    (folder / "rows").write_bytes(msgspec.msgpack.encode(rows))
    address = f"127.0.0.1:{free_port()}"
    program = tarantool_program()
    launch = Launch(
        name="bare Tarantool",
        command=[str(program.path), str(Path(__file__).parent / "bare.lua")],
        log=folder / "log",
        folder=folder,
        environ={
            **program.environ,
            "BARE_SPACE": str(_SPACE),
            "BARE_ROWS": str(folder / "rows"),
            "BARE_LISTEN": address,
        },
    )
    server = BareTarantool(launch, address=address)
    try:
        server.start()
        yield server
    finally:
        server.kill()


async def _rows(tarantool: TarantoolServer, subjects: Sequence[str]) -> list[list[Any]]:
    """As they stand in our Tarantool."""
    host, port = split_address(tarantool.address, 3301)
    connection = asynctnt.Connection(
        host=host,
        port=port,
        username=tarantool.user,
        password=tarantool.password,
        fetch_schema=False,
        auto_refetch_schema=False,
    )
    found: list[list[Any]] = []
    async with connection:
        for subject in subjects:
            start, whole = 0, True
            while True:
                (page,) = (await connection.call("messages_get", ["-", subject, start, 1000, None, whole])).body
                if not page["rows"]:
                    break
                found += page["rows"]
                start = page["next_sequence"]
    return found
