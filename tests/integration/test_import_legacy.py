"""Moving house: an installation with the specification's schema becomes ours."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asynctnt
import pytest

from minitoolstream.bootstrap import LegacyPlace, open_import
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MIB
from minitoolstream.services import import_legacy as service
from minitoolstream.services.import_legacy import ImportReport, import_legacy
from minitoolstream.stack.ports import free_port
from minitoolstream.stack.processes import Launch
from tests.fsck import assert_clean
from tests.live import Live, start_live
from tests.servers import Server, tarantool_program

SCRIPT = Path(__file__).parents[1] / "legacy_tarantool.lua"
USER, PASSWORD = "minitoolstream_connector", "changeme"
FIRST = 5_000_000_000  # far above where our own numbers begin


@dataclass
class LegacyServer(Server):
    address: str = ""

    def ready(self) -> bool:
        from minitoolstream.stack.tarantool import login_problem

        return login_problem(self.address, USER, PASSWORD) is None

    def insert(self, space: str, rows: list[list[Any]]) -> None:
        async def run() -> None:
            host, port = self.address.split(":")
            connection = asynctnt.Connection(host=host, port=int(port), username=USER, password=PASSWORD)
            async with connection:
                for row in rows:
                    await connection.insert(space, row)

        asyncio.run(run())

    @property
    def place(self) -> LegacyPlace:
        return LegacyPlace(self.address, USER, PASSWORD, "minitoolstream")


@pytest.fixture
def legacy(tmp_path: Path) -> Iterator[LegacyServer]:
    program, address = tarantool_program(), f"127.0.0.1:{free_port()}"
    folder = tmp_path / "legacy"
    folder.mkdir()
    environ = {**program.environ, "LEGACY_LISTEN": address}
    launch = Launch("legacy", [str(program.path), str(SCRIPT)], tmp_path / "legacy.log", folder=folder, environ=environ)
    server = LegacyServer(launch, address=address)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Live]:
    stack = start_live(tmp_path / "ours")
    yield stack
    stack.stop()


def fill(legacy: LegacyServer, store: Live, bucket: str = "minitoolstream", count: int = 30) -> dict[int, bytes]:
    """Messages of two subjects with their payloads, as the first server leaves them."""
    now, s3, payloads, rows = int(time.time()) - 600, store.minio.s3(), {}, []
    for n in range(count):
        sequence, subject = FIRST + 2 * n, ("orders.created", "logs")[n % 2]
        name, payload = f"{subject}_{sequence}", f"payload {n}".encode()
        s3.put_object(Bucket=bucket, Key=name, Body=payload, ContentType="text/plain")
        rows.append([sequence, {"content-type": "text/plain", "n": str(n)}, name, subject, now + n])
        payloads[sequence] = payload
    legacy.insert("message", rows)
    last = FIRST + 2 * (count - 1)
    legacy.insert("consumers", [["billing", "orders.created", FIRST + 8], ["audit", "logs", last + 500]])
    return payloads


def run(ours: Live, place: LegacyPlace) -> ImportReport:
    async def imported() -> ImportReport:
        parts = await open_import(ours.settings, place)
        try:
            return await import_legacy(parts.core, parts.store, parts.source, payloads=parts.payloads)
        finally:
            await parts.close()

    return asyncio.run(imported())


def test_sequences_times_headers_payloads_and_positions_are_kept(legacy: LegacyServer, ours: Live) -> None:
    payloads = fill(legacy, ours)
    report = run(ours, legacy.place)
    assert (report.messages, report.missing, report.copied, report.positions) == (30, 0, 0, 2)
    assert report.bytes == sum(map(len, payloads.values()))

    found = ours.messages("orders.created") + ours.messages("logs")
    assert {int(message["sequence"]): ours.payload(message) for message in found} == payloads
    first = ours.messages("orders.created")[0]
    assert (first["sequence"], first["object_name"]) == (FIRST, f"orders.created_{FIRST}")
    assert (first["content_type"], first["headers"]["n"]) == ("text/plain", "0")
    assert first["create_at"] < time.time() - 500
    billing = ours.api("GET", "/v1/subjects/orders.created/consumers/billing").json
    assert (billing["last_sequence"], billing["lag"]) == (FIRST + 8, 12)

    last = FIRST + 58 + 500  # a durable had read further than what is left
    assert report.last_sequence == last
    published = ours.publish("orders.created", b"the first of ours")
    assert published.json["sequence"] > last


def test_what_is_imported_is_ours_to_check_and_to_delete(legacy: LegacyServer, ours: Live, tmp_path: Path) -> None:
    fill(legacy, ours)
    run(ours, legacy.place)
    assert_clean(ours, tmp_path)
    ours.api("DELETE", "/v1/subjects/logs")
    assert ours.messages("logs") == []
    assert len(ours.messages("orders.created")) == 15


def test_an_interrupted_import_goes_on_and_takes_nothing_twice(
    legacy: LegacyServer, ours: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = fill(legacy, ours)
    monkeypatch.setattr(service, "PAGE", 7)
    pages = 0
    taken = service._take

    async def dying(*given: Any) -> None:
        nonlocal pages
        pages += 1
        if pages == 3:
            raise KeyboardInterrupt
        await taken(*given)

    monkeypatch.setattr(service, "_take", dying)
    with pytest.raises(KeyboardInterrupt):
        run(ours, legacy.place)
    refused = ours.publish("orders.created", b"too early")
    assert refused.status == 503
    assert "an import is under way" in refused.json["error"]["message"]
    ours.hosts[0].stop()
    ours.tarantool.kill()
    ours.tarantool.start()

    report = run(ours, legacy.place)
    assert (report.messages, report.already) == (30 - 14, 14)
    ours.hosts[0].process = None
    ours.hosts[0].start()
    found = ours.messages("orders.created") + ours.messages("logs")
    assert sorted(int(message["sequence"]) for message in found) == sorted(payloads)
    again = run(ours, legacy.place)
    assert (again.messages, again.already) == (0, 30)
    assert ours.publish("orders.created", b"x").status == 201


DIES = """
import os, signal
from minitoolstream.adapters.tarantool.legacy import TarantoolImport
apply = TarantoolImport.apply
async def dying(self, rows):
    await apply(self, rows)
    os.kill(os.getpid(), signal.SIGKILL)
TarantoolImport.apply = dying
from minitoolstream.cli.main import main
main()
"""


def command(ours: Live, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **ours.environ, "MTS_HOME": str(tmp_path / "home"), "MTS_LEGACY_PASSWORD": PASSWORD}
    return subprocess.run([sys.executable, *arguments], env=environ, capture_output=True, text=True, check=False)


def test_an_import_that_is_killed_behind_a_page_shows_no_lost_payload_as_an_empty_one(
    legacy: LegacyServer, ours: Live, tmp_path: Path
) -> None:
    fill(legacy, ours, count=2)
    legacy.insert("message", [[FIRST + 100, {}, "lost_1", "orders.created", int(time.time())]])
    options = ["import", "legacy", "--tarantool", legacy.address, "--bucket", "minitoolstream"]
    killed = command(ours, tmp_path, "-c", DIES, *options)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    told = [(int(message["sequence"]), message.get("payload_missing")) for message in ours.messages("orders.created")]
    assert told == [(FIRST, None), (FIRST + 100, True)]
    done = command(ours, tmp_path, "-m", "minitoolstream.cli.main", *options)
    assert done.returncode == 0, done.stderr
    assert [message.get("payload_missing") for message in ours.messages("orders.created")] == [None, True]


def test_payloads_of_another_bucket_are_copied(legacy: LegacyServer, ours: Live) -> None:
    ours.minio.s3().create_bucket(Bucket="old-payloads")
    payloads = fill(legacy, ours, bucket="old-payloads", count=4)
    large = b"x" * (17 * MIB)
    ours.minio.s3().put_object(Bucket="old-payloads", Key="films_1", Body=large)
    legacy.insert("message", [[FIRST + 1_000, {}, "films_1", "films", int(time.time())]])
    root = ours.minio.root
    place = LegacyPlace(
        legacy.address, USER, PASSWORD, "old-payloads", ours.minio.endpoint, root.access_key, root.secret_key
    )
    report = run(ours, place)
    assert (report.messages, report.copied) == (5, 5)
    assert ours.payload(ours.messages("films")[0]) == large
    found = ours.messages("orders.created") + ours.messages("logs")
    assert {int(message["sequence"]): ours.payload(message) for message in found} == payloads


def test_what_does_not_fit_is_told_and_does_not_stop_the_others(legacy: LegacyServer, ours: Live) -> None:
    fill(legacy, ours, count=2)
    now = int(time.time())
    many = {f"h{n}": "v" for n in range(100)}
    rows = [
        [FIRST + 100, {}, "lost_1", "orders.created", now],
        [FIRST + 101, {}, "x", "no/subject", now],
        [FIRST + 102, many, f"logs_{FIRST + 2}", "logs", now],
    ]
    legacy.insert("message", rows)
    legacy.insert("consumers", [["no durable!", "logs", 1]])
    report = run(ours, legacy.place)
    assert (report.messages, report.missing, report.headers_dropped) == (4, 1, 1)
    assert dict(report.refused) == {"subject no/subject": 1, "durable no durable! of logs": 1}
    lost = ours.messages("orders.created")[-1]
    assert (lost["sequence"], lost["payload_missing"]) == (FIRST + 100, True)


def test_an_import_needs_an_empty_tarantool_and_the_same_source(legacy: LegacyServer, ours: Live) -> None:
    ours.publish("orders", b"mine")
    with pytest.raises(MtsError, match="begins with an empty one"):
        run(ours, legacy.place)
    assert ours.publish("orders", b"still open").status == 201


def test_the_command_tells_what_it_did(legacy: LegacyServer, ours: Live, tmp_path: Path) -> None:
    fill(legacy, ours, count=3)
    imported = ["-m", "minitoolstream.cli.main", "import", "legacy", "--json"]
    done = command(ours, tmp_path, *imported, "--tarantool", legacy.address, "--bucket", "minitoolstream")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["messages"] == 3
    wrong = command(ours, tmp_path, *imported, "--tarantool", "no where", "--bucket", "b")
    assert wrong.returncode == 2
