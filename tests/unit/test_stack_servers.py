"""Which server is taken, and what is decided before one is started."""

from __future__ import annotations

import importlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from minitoolstream.config import Settings, load_settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.stack import apt, get_minio, get_tarantool, minio, object_store, tarantool
from minitoolstream.stack.commands import ignore, output, run
from minitoolstream.stack.get_minio import is_new_enough
from minitoolstream.stack.minio import Credentials, Webhook
from minitoolstream.stack.ministack_server import HEALTH, allowed, gate
from minitoolstream.stack.object_store import check_bucket, choose
from minitoolstream.stack.ports import free_port
from minitoolstream.stack.processes import Launch
from minitoolstream.stack.program import Program
from minitoolstream.stack.state import State

_PROGRAM = Program(Path("/bin/true"), "for a test")


def settings(tmp_path: Path, **environ: str) -> Settings:
    return load_settings({"MTS_HOME": str(tmp_path), **environ}, cwd=tmp_path)


@pytest.fixture
def got(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records which object stores were got; getting one costs nothing here."""
    kinds: list[str] = []

    def record(kind: str, _update: object) -> Program:
        kinds.append(kind)
        return _PROGRAM

    monkeypatch.setattr(object_store, "_get", record)
    return kinds


@pytest.mark.usefixtures("got")
class TestChoiceOfTheObjectStore:
    def test_minio_comes_first(self, tmp_path: Path) -> None:
        assert choose(settings(tmp_path), State(), quick=False, update=ignore).kind == "minio"

    def test_quick_takes_the_emulator_at_once(self, tmp_path: Path, got: list[str]) -> None:
        assert choose(settings(tmp_path), State(), quick=True, update=ignore).kind == "ministack"
        assert got == ["ministack"]

    def test_without_minio_it_is_the_emulator_and_the_reason_is_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def get(kind: str, _update: object) -> Program:
            if kind == "minio":
                raise MtsError("dependency_missing", "no Go to be had")
            return _PROGRAM

        monkeypatch.setattr(object_store, "_get", get)
        choice = choose(settings(tmp_path), State(), quick=False, update=ignore)
        assert choice.kind == "ministack"
        assert "no Go to be had" in choice.remark
        for state, is_quick in ((State(), True), (State({"object_store.kind": "minio"}), False)):
            with pytest.raises(MtsError, match="no Go to be had") as caught:
                choose(settings(tmp_path, MTS_OBJECT_STORE="minio"), state, quick=False, update=ignore)
            assert ("--quick" in caught.value.details["hint"]) is is_quick

    def test_the_store_that_has_the_data_stays(self, tmp_path: Path) -> None:
        kept = State({"object_store.kind": "minio"})
        assert choose(settings(tmp_path), kept, quick=False, update=ignore).kind == "minio"
        choice = choose(settings(tmp_path), kept, quick=True, update=ignore)
        assert (choice.kind, "no effect" in choice.remark) == ("minio", True)

    def test_another_store_than_the_one_with_the_data_is_refused(self, tmp_path: Path) -> None:
        kept = State({"object_store.kind": "minio"})
        with pytest.raises(MtsError, match="stored in minio"):
            choose(settings(tmp_path, MTS_OBJECT_STORE="ministack"), kept, quick=False, update=ignore)

    def test_another_bucket_than_the_one_with_the_data_is_refused(self, tmp_path: Path) -> None:
        other = settings(tmp_path, MTS_MINIO_BUCKET="other")
        check_bucket(other, State())
        check_bucket(other, State(bucket="other"))
        with pytest.raises(MtsError, match="in the bucket first") as caught:
            check_bucket(other, State(bucket="first"))
        assert "--purge" in caught.value.details["hint"]

    def test_an_unknown_kind_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(MtsError, match="auto, minio, ministack"):
            settings(tmp_path, MTS_OBJECT_STORE="floppy")


@pytest.mark.parametrize(
    ("version", "enough"),
    [("go1.26.3", True), ("go1.24", True), ("go1.19.8", False), ("go2.0", True), ("", False), (None, False)],
)
def test_an_old_go_is_not_used(version: str | None, enough: bool) -> None:
    assert is_new_enough(version) is enough


def test_a_build_without_room_on_the_disk_is_refused_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get_minio, "_DISK_NEEDED", 2**80)
    monkeypatch.setattr(get_minio, "cache_folder", lambda: tmp_path)
    with pytest.raises(MtsError, match="needs"):
        get_minio.build_minio()


def test_a_build_removes_what_a_killed_one_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / "bin" / "build-killed" / "modules"
    left.mkdir(parents=True)
    (tmp_path / "bin" / "minio-other").touch()
    monkeypatch.setattr(get_minio, "_DISK_NEEDED", 2**80)
    monkeypatch.setattr(get_minio, "cache_folder", lambda: tmp_path)
    with pytest.raises(MtsError, match="needs"):
        get_minio.build_minio()
    assert [path.name for path in (tmp_path / "bin").iterdir()] == ["minio-other"]


def test_a_build_shows_how_far_it_is() -> None:
    said: list[str] = []
    count = get_minio._Counter(said.append)
    for line in ("go: downloading example.org/x v1.0.0", "internal/abi", "github.com/minio/minio"):
        count(line)
    assert "1 modules downloaded, 2 packages compiled, 0:00" in said[-1]


class TestTarantool:
    def test_a_configured_one_comes_first(self) -> None:
        found = get_tarantool.find_tarantool("/bin/true")
        assert found
        assert found.path == Path("/bin/true")

    def test_a_configured_one_that_is_not_there_is_a_clear_error(self) -> None:
        with pytest.raises(MtsError, match="/no/tarantool"):
            get_tarantool.find_tarantool("/no/tarantool")

    def test_where_none_can_be_got_the_command_to_run_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_arguments: object, **_options: object) -> Program:
            raise MtsError("dependency_missing", "no apt-get")

        monkeypatch.setattr(get_tarantool, "find_tarantool", lambda _configured: None)
        monkeypatch.setattr(apt, "get_program", fail)
        with pytest.raises(MtsError, match="sudo apt-get install tarantool"):
            get_tarantool.get_tarantool()

    def test_its_password_goes_by_a_file(self, tmp_path: Path) -> None:
        launch = tarantool.launch(
            _PROGRAM,
            address="127.0.0.1:1",
            data=tmp_path / "data",
            log=tmp_path / "log",
            user="mts",
            password_file=tmp_path / "password",
        )
        assert launch.environ["MTS_TARANTOOL_PASSWORD_FILE"] == str(tmp_path / "password")
        assert "MTS_TARANTOOL_PASSWORD" not in launch.environ


class TestMinio:
    def test_it_looks_for_certificates_beside_its_data_and_not_in_the_home_of_the_user(self, tmp_path: Path) -> None:
        launch = self._launch(tmp_path)
        assert launch.folder is not None
        own = launch.folder.with_name("minio-config")
        for option, folder in (("--config-dir", own), ("--certs-dir", own / "certs")):
            assert launch.command[launch.command.index(option) + 1] == str(folder)

    def test_credentials_are_not_on_its_command_line(self, tmp_path: Path) -> None:
        launch = self._launch(tmp_path)
        assert "hush" not in " ".join(launch.command)
        assert launch.environ["MINIO_ROOT_PASSWORD"] == "hush"

    def test_events_are_synchronous_and_not_queued(self, tmp_path: Path) -> None:
        environ = self._launch(tmp_path).environ
        assert environ["MINIO_API_SYNC_EVENTS"] == "on"
        assert environ["MINIO_NOTIFY_WEBHOOK_ENDPOINT_MTS"] == "http://h/hooks"
        assert not [name for name in environ if "QUEUE_DIR" in name]

    def test_parts_outlive_the_longest_ticket(self, tmp_path: Path) -> None:
        expiry = self._launch(tmp_path).environ["MINIO_API_STALE_UPLOADS_EXPIRY"]
        assert int(expiry.removesuffix("h")) * 3600 > settings(tmp_path)["uploads.max_life"]

    def test_the_host_s_policy_names_its_bucket_only(self) -> None:
        statements = minio.bucket_policy("b")["Statement"]
        assert {name for statement in statements for name in statement["Resource"]} == {
            "arn:aws:s3:::b",
            "arn:aws:s3:::b/*",
        }
        assert not any("*" in action for statement in statements for action in statement["Action"])

    @staticmethod
    def _launch(tmp_path: Path) -> Launch:
        return minio.launch(
            _PROGRAM,
            port=1,
            data=tmp_path / "data",
            log=tmp_path / "log",
            root=Credentials("root", "hush"),
            webhook=Webhook("http://h/hooks", "token"),
        )


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path in {"/minio/health/ready", HEALTH} else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.mark.parametrize("kind", ["minio", "ministack"])
def test_a_proxy_of_the_environment_does_not_stand_between_us_and_the_store(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        assert object_store.is_ready(kind, endpoint)
        assert not object_store.is_ready(kind, f"{endpoint}/other")
        server.shutdown()
    assert not object_store.is_ready(kind, endpoint)


class TestGateOfTheEmulator:
    SIGNED = b"AWS4-HMAC-SHA256 Credential=AKIA123/20260101/us-east-1/s3/aws4_request, SignedHeaders=host"

    def test_a_request_with_a_key_of_a_user_passes(self) -> None:
        assert allowed("PUT", "/bucket/key", b"", self.SIGNED)

    def test_a_presigned_url_passes(self) -> None:
        assert allowed("GET", "/bucket/key", b"X-Amz-Credential=AKIA123%2F20260101%2Fus-east-1", b"")

    def test_a_preflight_and_the_health_check_pass(self) -> None:
        assert allowed("OPTIONS", "/bucket/key", b"", b"")
        assert allowed("GET", "/_ministack/health", b"", b"")

    @pytest.mark.parametrize("key", [b"test", b"000000000000", b"123456789012"])
    def test_the_emulator_s_open_keys_are_refused(self, key: bytes) -> None:
        assert not allowed("GET", "/", b"", self.SIGNED.replace(b"AKIA123", key))
        assert not allowed("GET", "/", b"X-Amz-Credential=" + key + b"%2F20260101", b"")

    def test_a_request_without_a_key_is_refused(self) -> None:
        assert not allowed("GET", "/bucket/key", b"", b"")
        assert not allowed("POST", "/bucket", b"AWSAccessKeyId=test&Signature=x", b"")

    def test_a_web_page_cannot_reset_it(self) -> None:
        assert not allowed("POST", "/_ministack/reset", b"", b"")
        assert not allowed("POST", "/_ministack/reset", b"", self.SIGNED)

    def test_an_open_key_behind_a_good_one_is_refused(self) -> None:
        both = self.SIGNED + b", Credential=test/20260101"
        assert not allowed("GET", "/", b"", both)
        assert not allowed("GET", "/", b"X-Amz-Credential=test%2F1", self.SIGNED)

    async def test_a_refused_request_never_reaches_the_emulator(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reached: list[str] = []
        sent: list[dict[str, object]] = []

        async def emulator(scope: dict[str, object], _receive: object, _send: object) -> None:
            reached.append(str(scope.get("path", scope["type"])))

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        async def receive() -> None:
            return None

        monkeypatch.setattr(importlib, "import_module", lambda _name: SimpleNamespace(app=emulator))
        request = {"type": "http", "method": "PUT", "query_string": b"", "headers": []}
        await gate({**request, "path": "/open"}, receive, send)
        await gate({**request, "path": "/signed", "headers": [(b"authorization", self.SIGNED)]}, receive, send)
        await gate({"type": "websocket", "path": "/socket"}, receive, send)
        await gate({"type": "lifespan"}, receive, send)
        assert reached == ["/signed", "lifespan"]
        assert [message.get("status") for message in sent] == [403, None, None]


def test_a_failing_command_is_an_error_with_the_end_of_its_output(tmp_path: Path) -> None:
    lines: list[str] = []
    with pytest.raises(MtsError, match="ended with 3") as caught:
        run(["sh", "-c", "echo working; echo no luck >&2; exit 3"], log=tmp_path / "log", each_line=lines.append)
    assert caught.value.code == "start_failed"
    assert caught.value.details["log_tail"][-1] == "no luck"
    assert sorted(lines) == ["no luck", "working"]


def test_a_missing_command_has_no_output() -> None:
    assert output(["/no/such/program"]) is None
    assert output(["false"]) is None
    assert output(["echo", "hi"]) == "hi\n"
