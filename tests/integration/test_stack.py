"""`mts up`, `status`, `down` as a user runs them, on real servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.client import Client
from minitoolstream.config import load_settings
from minitoolstream.connector import PublisherBuilder, StringMessagePreparer
from minitoolstream.stack import bucket as buckets
from minitoolstream.stack.minio import Credentials
from minitoolstream.stack.processes import send, wait_gone
from minitoolstream.stack.state import load_state
from minitoolstream.stack.status import status as look
from tests.servers import MinioServer, TarantoolServer, minio_program, tarantool_program

_MTS = [sys.executable, "-m", "minitoolstream.cli.main"]
_FREE_PORTS = {"MTS_GRPC_INGRESS_PORT": "0", "MTS_GRPC_EGRESS_PORT": "0"}  # the usual ones are for one stack alone
_PARTS = {"tarantool", "object-store", "host", "grpc"}


class Stack:
    """A stack of its own under a temporary folder, driven through the command line."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        self.home = folder / ".mts"
        # Nothing of the developer's own settings may leak in.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MTS_")}
        self.environ = {**kept, "MTS_HOME": str(self.home), "MTS_SERVER_WORKERS": "1", **_FREE_PORTS, **environ}

    def command(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*_MTS, *arguments],
            cwd=self.folder,
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def mts(self, *arguments: str, **environ: str) -> str:
        done = self.command(*arguments, **environ)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout + done.stderr

    def shell(self, script: str) -> str:
        """Commands as a page of the docs shows them."""
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        mts = self.folder / "bin" / "mts"
        mts.parent.mkdir(exist_ok=True)
        mts.write_text(f'#!/bin/sh\nexec {sys.executable} -m minitoolstream.cli.main "$@"\n')
        mts.chmod(0o755)
        url = self.status()["http"] or ""
        done = subprocess.run(
            ["bash", "-euc", script],
            cwd=self.folder,
            env={**self.environ, "PATH": path, "url": url},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout + done.stderr

    def status(self) -> dict[str, Any]:
        return look(load_settings(self.environ, cwd=self.folder))

    def pids(self) -> dict[str, int]:
        return {part: about["pid"] for part, about in self.status()["processes"].items() if "pid" in about}

    def kill(self, part: str) -> None:
        process = load_state(self.home).processes[part].process
        assert send(process, signal.SIGKILL)
        assert wait_gone(process, 30)

    def client(self) -> Client:
        return Client.from_settings(load_settings(self.environ, cwd=self.folder))


@pytest.fixture(scope="module")
def new_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Stack]]:
    made: list[Stack] = []

    def new(**environ: str) -> Stack:
        made.append(Stack(tmp_path_factory.mktemp("stack"), **environ))
        return made[-1]

    yield new
    for stack in made:
        stack.command("down")


@pytest.fixture(scope="module")
def running(new_stack: Callable[..., Stack]) -> Stack:
    """One with MinIO that tests share; they leave it running."""
    minio_program()
    tarantool_program()
    stack = new_stack(MTS_OBJECT_STORE="minio")
    stack.mts("up")
    return stack


def test_up_starts_everything_and_status_says_where(running: Stack) -> None:
    report = json.loads(running.command("status", "--json").stdout)
    again = running.status()
    del report["retention"]["time"], again["retention"]["time"]
    assert report == again
    assert report["state"] == "running"
    assert report["ready"] is True
    assert report["object_store"]["kind"] == "minio"
    assert report["object_store"]["bucket"] == "minitoolstream"
    assert set(running.pids()) == _PARTS
    assert report["rejected_events"] == []
    assert Path(report["token_file"]).read_text() == running.command("token").stdout.strip()


def test_status_says_that_a_token_is_refused(running: Stack) -> None:
    shown = running.mts("status", MTS_TOKEN="wrong")
    assert "state: running" in shown
    assert "the host refused the token from MTS_TOKEN" in shown
    assert json.loads(running.command("status", "--json", MTS_TOKEN="wrong").stdout)["token_refused"] == "MTS_TOKEN"
    assert "refused" not in running.mts("status")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("MTS_TARANTOOL_MEMORY", "1KiB", "'1KiB' is not between 32MiB and 1TiB"),
        ("MTS_MINIO_BUCKET", "No_Bucket", "'No_Bucket' is no name for a bucket"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_before_anything_is_touched(
    running: Stack, name: str, value: str, words: str
) -> None:
    before = running.pids()
    for command in (("up",), ("serve",), ("config", "show")):
        refused = running.command(*command, **{name: value})
        assert refused.returncode == 2
        assert words in refused.stderr
    assert running.pids() == before


def test_a_message_goes_through_it(running: Stack) -> None:
    with running.client() as client:
        receipt = client.publish("orders", b"one")
        assert client.payload(int(receipt.sequence or 0)) == b"one"


def test_the_status_says_where_grpc_is_and_the_connector_finds_the_token(running: Stack) -> None:
    addresses = json.loads(running.command("status", "--json").stdout)["grpc"]
    token = running.command("token").stdout.strip()
    with PublisherBuilder(addresses["ingress"]).with_token(token).build() as publisher:
        result = publisher.publish(StringMessagePreparer("by-grpc", "hello"))
    with running.client() as client:
        assert client.payload(result.sequence) == b"hello"
    assert set(addresses) == {"ingress", "egress"}


def test_a_second_up_starts_nothing(running: Stack) -> None:
    before = running.pids()
    said = running.mts("up")
    assert running.pids() == before
    assert said.count("already runs") == len(_PARTS)


def test_two_at_once_start_one_stack(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack()
    both = [
        subprocess.Popen([*_MTS, "up", "--json"], cwd=stack.folder, env=stack.environ, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    answers = [json.loads(process.communicate(timeout=120)[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert answers[0]["processes"] == answers[1]["processes"]


@pytest.mark.parametrize("part", sorted(_PARTS))
def test_a_crashed_part_is_seen_and_started_again_while_the_others_go_on(running: Stack, part: str) -> None:
    before = running.pids()
    running.kill(part)
    crashed = running.status()
    assert crashed["state"] == "partial"
    assert crashed["processes"][part]["state"] == "crashed"
    assert "started again" in running.mts("up")
    after = running.pids()
    assert running.status()["state"] == "running"
    assert {name for name in _PARTS if after[name] != before[name]} == {part}


def test_a_changed_setting_restarts_what_it_concerns(running: Stack) -> None:
    before = running.pids()
    assert "restarted" in running.mts("up", MTS_LOGGING_LEVEL="warning")
    after = running.pids()
    assert {part for part in _PARTS if after[part] != before[part]} == {"host", "grpc"}


def test_only_the_owner_can_read_what_lies_under_the_stack_s_folder(running: Stack) -> None:
    assert running.home.stat().st_mode & 0o777 == 0o700
    for name in ("secrets.json", "state.json", "token", "tarantool-password", "logs/host.log"):
        assert (running.home / name).stat().st_mode & 0o777 == 0o600, name


def test_nothing_listens_for_other_machines(running: Stack) -> None:
    listening = _listening(set(running.pids().values()))
    loopback = {"0100007F", "00000000000000000000000001000000"}
    assert len(listening) >= len(_PARTS)
    assert set(listening) <= loopback


def test_the_host_does_not_get_the_object_store_s_root_credentials(running: Stack) -> None:
    settings = load_settings(running.environ, cwd=running.folder)
    user = Credentials(settings["minio.access_key"], settings["minio.secret_key"])
    s3 = buckets.client("s3", settings["minio.endpoint"], user, settings["minio.region"])
    s3.put_object(Bucket="minitoolstream", Key="_mts/probe", Body=b"x")
    s3.delete_object(Bucket="minitoolstream", Key="_mts/probe")
    forbidden_calls: list[Callable[[], object]] = [
        lambda: s3.create_bucket(Bucket="another"),
        lambda: s3.delete_bucket(Bucket="minitoolstream"),
        lambda: s3.put_bucket_notification_configuration(Bucket="minitoolstream", NotificationConfiguration={}),
    ]
    for forbidden in forbidden_calls:
        with pytest.raises(s3.exceptions.ClientError, match="AccessDenied"):
            forbidden()


def test_down_keeps_data_and_ports(running: Stack) -> None:
    with running.client() as client:
        sequence = int(client.publish("kept", b"still there").sequence or 0)
    address = running.status()["http"]
    running.mts("down")
    assert running.status()["state"] == "stopped"
    assert "nothing was running" in running.mts("down")
    running.mts("up")
    assert running.status()["http"] == address
    with running.client() as client:
        assert client.payload(sequence) == b"still there"


def test_logs_show_every_part(running: Stack) -> None:
    shown = json.loads(running.command("logs", "--json", "-n", "5").stdout)
    assert set(shown) == _PARTS
    assert running.command("logs", "tarantool", "-n", "1").stdout.strip() == shown["tarantool"][-1]


def test_demo_messages_are_published_once(running: Stack) -> None:
    running.mts("up", "--demo")
    with running.client() as client:
        latest = client.latest("demo")
    running.mts("up", "--demo")
    with running.client() as client:
        assert client.latest("demo") == latest > 0


def test_quick_takes_the_emulator_and_messages_go_through_it(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack(MTS_UPLOADS_PART_SIZE="5MiB")
    said = stack.mts("up", "--quick")
    assert "for trying out" in said
    assert stack.status()["object_store"]["kind"] == "ministack"
    large = os.urandom(6 * 2**20)
    file = stack.folder / "large"
    file.write_bytes(large)
    with stack.client() as client:
        small = int(client.publish("orders", b"small").sequence or 0)
        parts = int(client.publish_file("orders", file).sequence or 0)
    # Each event is deleted when it was handled; the first is the store's own test of the way.
    assert "the queue cannot be read" not in (stack.folder / ".mts" / "logs" / "host.log").read_text()
    stack.kill("object-store")
    # It stays with the store that has the data, quick or not.
    stack.mts("up")
    assert stack.status()["object_store"]["kind"] == "ministack"
    with stack.client() as client:
        assert client.payload(small) == b"small"
        assert client.payload(parts) == large


def test_a_stack_with_data_in_one_store_refuses_another(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack()
    stack.mts("up", "--quick")
    refused = stack.command("up", MTS_OBJECT_STORE="minio")
    assert refused.returncode == 2
    assert "stored in ministack" in refused.stderr


def test_servers_of_the_user_are_used_not_started(
    new_stack: Callable[..., Stack], tarantool_server: TarantoolServer, minio_server: MinioServer
) -> None:
    stack = new_stack(
        MTS_TARANTOOL_ADDRESS=tarantool_server.address,
        MTS_TARANTOOL_PASSWORD=tarantool_server.password,
        MTS_MINIO_ENDPOINT=minio_server.endpoint,
        MTS_MINIO_ACCESS_KEY=minio_server.access_key,
        MTS_MINIO_SECRET_KEY=minio_server.secret_key,
    )
    said = stack.mts("up")
    assert said.count("yours at") == 2
    assert "events do not reach the host" in said
    assert set(stack.pids()) == {"host", "grpc"}
    assert stack.status()["state"] == "running"
    with stack.client() as client:
        assert client.publish("external", b"payload").sequence
    stack.mts("down")
    assert tarantool_server.ready()
    assert minio_server.ready()


def test_a_failing_part_takes_back_what_was_started_and_shows_its_log(
    new_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    stack = new_stack()
    broken = tmp_path / "minio"
    broken.write_text("#!/bin/sh\necho the disk is on fire\nexit 1\n")
    broken.chmod(0o755)
    failed = stack.command("up", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert failed.returncode == 5
    assert "the disk is on fire" in failed.stderr
    assert "hint:" in failed.stderr
    assert "stopped again: object-store, tarantool" in failed.stderr
    assert stack.status()["state"] == "stopped"
    assert load_state(stack.home).processes == {}


def test_a_tarantool_that_is_down_or_refuses_the_login_is_a_clear_error(
    new_stack: Callable[..., Stack], tarantool_server: TarantoolServer
) -> None:
    stack = new_stack(MTS_TARANTOOL_ADDRESS=tarantool_server.address, MTS_TARANTOOL_PASSWORD="wrong")
    refused = stack.command("up", "--json")
    assert refused.returncode == 5
    error = json.loads(refused.stdout)["error"]
    assert tarantool_server.address in error["message"]
    assert "MTS_TARANTOOL_PASSWORD" in error["hint"]


def test_purge_asks_first_and_deletes_everything(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack()
    stack.mts("up", "--quick")
    assert stack.command("down", "--purge").returncode == 2
    assert stack.status()["state"] == "running"
    stack.mts("down", "--purge", "--yes")
    assert not stack.home.exists()
    assert stack.status()["state"] == "stopped"


def _listening(pids: set[int]) -> list[str]:
    """Addresses on which these processes listen, as the kernel writes them (hexadecimal)."""
    sockets = {str(handle.readlink()) for pid in pids for handle in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return [row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]
