"""The commands of the stack where nothing runs, and what they show."""

from __future__ import annotations

import errno
import io
import json
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from minitoolstream.cli.main import cli
from minitoolstream.config import load_settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.stack import console as consoles
from minitoolstream.stack import object_store
from minitoolstream.stack.commands import ignore
from minitoolstream.stack.console import Console
from minitoolstream.stack.demo import Samples
from minitoolstream.stack.http import Answer, ask
from minitoolstream.stack.logs import follow, last_lines
from minitoolstream.stack.ports import free_port
from minitoolstream.stack.private_files import private_folder
from minitoolstream.stack.processes import ProcessId
from minitoolstream.stack.program import Program
from minitoolstream.stack.state import Running, State, log_file, save_state
from minitoolstream.stack.status import _seen_by_host, status


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / ".mts"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MTS_HOME", str(folder))
    return folder


def mts(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


@pytest.mark.usefixtures("home")
def test_status_where_nothing_was_ever_started_is_stopped() -> None:
    report = json.loads(mts("status", "--json").stdout)
    assert (report["state"], report["http"], report["processes"]) == ("stopped", None, {})
    assert mts("status").stdout == "state: stopped\n`mts up` starts it\n"


def test_down_where_nothing_was_ever_started_changes_nothing(home: Path) -> None:
    assert json.loads(mts("down", "--json").stdout) == {"stopped": [], "purged": False}
    assert not home.exists()


@pytest.mark.usefixtures("home")
def test_logs_where_nothing_was_ever_started_are_not_found() -> None:
    refused = mts("logs")
    assert refused.exit_code == 3
    assert "no stack here" in refused.stderr


@pytest.mark.parametrize("command", ["restore", "rebuild"])
def test_there_is_nothing_to_restore_where_nothing_was_ever_started(home: Path, command: str) -> None:
    refused = mts(command)
    assert refused.exit_code == 3
    assert "holds no object store" in refused.stderr
    assert not home.exists()


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1", "http://127.0.0.1:99999"])
def test_an_address_that_is_none_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("MTS_URL", url)
    for command in (["status"], ["fetch", "orders"]):
        refused = mts(*command)
        assert refused.exit_code == 2
        assert "is not an address such as" in refused.stderr


@pytest.mark.usefixtures("home")
def test_a_missing_password_is_named_without_talk_of_a_host() -> None:
    refused = mts("backup")
    assert refused.exit_code == 2
    assert "MTS_TARANTOOL_PASSWORD" in refused.stderr
    assert "MTS_URL" not in refused.stderr


def test_purge_leaves_a_folder_alone_that_never_held_a_stack(home: Path) -> None:
    (home / "data").mkdir(parents=True)
    refused = mts("down", "--purge", "-y", "--json")
    assert refused.exit_code == 2
    assert "nothing was deleted" in json.loads(refused.stdout)["error"]["message"]
    assert [path.name for path in home.iterdir()] == ["data"]


def test_purge_deletes_what_up_made_and_nothing_else(home: Path) -> None:
    data = ("minio/b/o", "minio-config/certs/x", "tarantool/x.snap", "tarantool.20260131-120000/x.snap", "mine")
    for name in (*(f"data/{name}" for name in data), "logs/host.log", "token", ".token.half"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("")
    save_state(home, State())
    assert "what `mts up` made" in mts("down", "--purge", "-y").stdout
    assert [path for path in home.rglob("*") if path.is_file()] == [home / "data" / "mine"]
    (home / "data" / "mine").unlink()
    save_state(home, State())
    assert f"{home} is deleted" in mts("down", "--purge", "-y").stdout
    assert not home.exists()


def test_a_typo_in_the_file_blocks_neither_down_nor_logs_nor_status(home: Path) -> None:
    (home.parent / "mts.yaml").write_text("server: {prot: 1}\n")
    save_state(private_folder(home), State())
    assert [mts(command).exit_code for command in ("down", "logs")] == [0, 0]
    for command in (("status",), ("status", "--json")):
        shown = mts(*command)
        assert shown.exit_code == 3
        assert "did you mean `server.port`?" in shown.stderr
    assert "server.prot" in json.loads(mts("status", "--json").stdout)["problems"][0]
    assert mts("token").exit_code == 2


def test_config_show_tells_what_is_wrong_beside_the_keys_there_are(home: Path) -> None:
    (home.parent / "mts.yaml").write_text("server: {prot: 1}\n")
    shown = mts("config", "show")
    assert shown.exit_code == 2
    assert "server.port " in shown.stdout
    assert "did you mean `server.port`?" in shown.stderr


@pytest.mark.parametrize("command", [["up"], ["down", "--purge", "-y"], ["status"], ["logs"], ["token"]])
def test_a_stack_of_another_user_is_left_alone(home: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    save_state(private_folder(home), State())
    monkeypatch.setattr("os.getuid", lambda: home.stat().st_uid + 1)
    refused = mts(*command, "--json")
    assert refused.exit_code == 2
    error = json.loads(refused.stdout)["error"]
    assert (error["code"], "belongs to" in error["message"]) == ("no_permission", True)
    assert [path.name for path in home.iterdir()] == ["state.json"]


@pytest.mark.usefixtures("home")
def test_up_where_nothing_may_be_written_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> Path:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    # Not by a file mode: root may write everywhere.
    monkeypatch.setattr("minitoolstream.stack.up.private_folder", refuse)
    refused = mts("up")
    assert refused.exit_code == 2
    assert "Traceback" not in refused.stderr
    assert "MTS_HOME" in refused.stderr


@pytest.mark.usefixtures("home")
def test_token_without_a_stack_says_how_to_get_one() -> None:
    refused = mts("token")
    assert refused.exit_code == 2
    assert "mts up" in refused.stderr


def test_a_process_that_is_gone_shows_as_crashed_not_as_running(home: Path) -> None:
    home.mkdir()
    gone = Running(ProcessId(2**22 + 1, 1, "boot"), "mark")
    save_state(home, State({"server.urls": [f"http://127.0.0.1:{free_port()}"]}, {"host": gone}))
    report = status(load_settings())
    assert report["state"] == "stopped"
    assert report["processes"]["host"]["state"] == "crashed"
    shown = mts("status")
    assert shown.exit_code == 5
    assert "`mts up` starts it again" in shown.stdout


def running(home: Path) -> dict[str, Any]:
    """What `status` tells of a stack."""
    return {
        "state": "running",
        "http": "http://127.0.0.1:8080",
        "token_file": str(home / "token"),
        "object_store": {"kind": "minio", "endpoint": "http://127.0.0.1:9000", "bucket": "b"},
        "tarantool": {"address": "127.0.0.1:3301"},
        "catalog": {"database": "sqlite"},
        "processes": {},
    }


def test_a_part_that_does_not_answer_has_a_plain_line_and_the_exit_code_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = {
        **running(home),
        "state": "partial",
        "processes": {"host": {"state": "running", "pid": 7}, "tarantool": {"state": "crashed"}},
        "ready": False,
        "readiness": {"status": "unavailable", "parts": {"tarantool": "cannot be reached", "object_store": "ok"}},
        "uploads": 3,
    }
    monkeypatch.setattr("minitoolstream.stack.status.status", lambda _settings: report)
    shown = mts("status")
    assert shown.exit_code == 5
    assert "! tarantool: cannot be reached\n" in shown.stdout
    assert "finished lately: 3" in shown.stdout
    assert "`mts up` starts it again" in shown.stdout
    assert "{" not in shown.stdout


def test_a_catalog_that_cannot_be_used_is_told_with_the_reason(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "http://h/v1/status": Answer(200, {}),
        "http://h/v1/catalog/peers": Answer(503, {"error": {"code": "unavailable", "message": "its database is away"}}),
    }
    monkeypatch.setattr("minitoolstream.stack.status.ask", lambda url, **_: answers[url])
    seen = _seen_by_host("http://h", load_settings({"MTS_HOME": str(home)}, cwd=home.parent))
    monkeypatch.setattr("minitoolstream.stack.status.status", lambda _settings: {**running(home), **seen})
    assert "! the content catalog cannot be used: its database is away\n" in mts("status").stdout


def test_what_did_not_fit_is_shown_with_its_time_and_cannot_steer_the_terminal(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = {"at": 1_700_000_000, "object_name": "a\x1b[2J\nb", "reason": "foreign\robject"}
    report = {**running(home), "rejected_events": [event]}
    monkeypatch.setattr("minitoolstream.stack.status.status", lambda _settings: report)
    when = f"{datetime.fromtimestamp(1_700_000_000, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
    assert mts("status").stdout.endswith(f"\nrejected: {when} a·[2J·b: foreign·object\n")


def test_up_that_could_not_build_minio_names_the_log_and_other_ways(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "minio-build.log"

    def fail(**_options: object) -> Program:
        raise MtsError("start_failed", "`go install` ended with 1", {"log": str(log), "log_tail": ["no route to host"]})

    monkeypatch.setenv("MTS_OBJECT_STORE", "minio")
    monkeypatch.setattr("minitoolstream.stack.object_store.get_minio", fail)
    monkeypatch.setattr(
        "minitoolstream.stack.up.up",
        lambda load, _console, **_options: object_store.choose(load(), State(), quick=False, update=ignore),
    )
    shown = mts("up")
    assert shown.exit_code == 5
    assert f"The end of {log}:\n    no route to host\n" in shown.stderr
    for way in ("`mts up --quick`", "`minio` on PATH", "MTS_MINIO_ENDPOINT"):
        assert way in shown.stderr.splitlines()[-1]
    assert not home.exists()


@pytest.fixture
def started(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mts up` starts nothing, and finds all running."""
    monkeypatch.setattr("minitoolstream.stack.up.up", lambda *_arguments, **_options: None)
    monkeypatch.setattr("minitoolstream.stack.status.status", lambda _settings: running(home))


@pytest.mark.usefixtures("started")
def test_up_ends_with_the_address_of_the_page_and_without_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTS_TOKEN", "hush-hush")
    shown = mts("up")
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[-1].strip() == "http://127.0.0.1:8080/"
    assert "mts token" in shown.stdout
    assert "hush-hush" not in shown.output


@pytest.mark.usefixtures("started")
def test_up_with_samples_names_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = Samples(41, "3 messages")
    monkeypatch.setattr("minitoolstream.stack.demo.publish_samples", lambda _settings: samples)
    shown = mts("up", "--demo").stdout
    assert "fetch demo\n" in shown
    assert "get 41\n" in shown


@pytest.mark.usefixtures("started")
def test_up_for_other_machines_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTS_SERVER_HOST", "0.0.0.0")
    assert "put TLS in front" in mts("up").stderr


def test_config_show_names_sources_and_hides_secrets(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTS_TOKEN", "hush-hush")
    (home.parent / "mts.yaml").write_text("server:\n  workers: 7\n")
    shown = mts("config", "show", "--json")
    rows = json.loads(shown.stdout)
    assert rows["server.workers"]["value"] == 7
    assert rows["server.workers"]["source"].endswith("mts.yaml")
    assert rows["server.token"] == {"value": "set", "source": "MTS_TOKEN", "about": "bearer token of the API"}
    assert rows["tarantool.password"]["value"] == "not set"
    assert "hush-hush" not in shown.output + mts("config", "show").output


def test_logs_show_the_last_lines_of_each_part(home: Path) -> None:
    for part in ("host", "tarantool"):
        log = log_file(home, part)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("".join(f"{part} {number}\n" for number in range(9)))
    assert last_lines(home, ["host"], 2) == {"host": ["host 7", "host 8"]}
    assert mts("logs", "-n", "1").stdout.split("\n")[:2] == ["tarantool     tarantool 8", "host          host 8"]
    assert mts("logs", "host", "-n", "1").stdout == "host 8\n"


def test_following_a_log_gives_whole_lines_and_waits_for_logs_to_come(home: Path) -> None:
    log = log_file(home, "host")
    log.parent.mkdir(parents=True)
    lines = follow(home, ["host"])

    def write() -> None:
        with log.open("w") as file:
            for piece in ("first ", "line\nsecond line\n"):
                file.write(piece)
                file.flush()

    writer = threading.Timer(0.05, write)
    writer.start()
    assert next(lines) == ("host", "first line")
    assert next(lines) == ("host", "second line")
    lines.close()  # type: ignore[attr-defined]


def test_nobody_there_is_no_exception() -> None:
    answer = ask(f"http://127.0.0.1:{free_port()}/readyz")
    assert (answer.status, answer.body) == (0, None)


def test_steps_on_a_pipe_are_plain_lines() -> None:
    stream = io.StringIO()
    console = Console(stream)
    with console.step("MinIO") as step:
        step.done("started")
    with pytest.raises(ValueError, match="boom"), console.step("host"):
        raise ValueError("boom")
    assert stream.getvalue().splitlines() == ["✓ MinIO          started", "✗ host           failed"]


def test_a_long_step_on_a_pipe_says_now_and_then_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consoles, "_TELL_EVERY", 0.01)
    stream = io.StringIO()
    with Console(stream).step("MinIO") as step:
        step.update("building MinIO: 3 packages")
        while "3 packages" not in stream.getvalue():
            threading.Event().wait(0.01)
    assert "  MinIO          building MinIO: 3 packages [0:00]" in stream.getvalue()


def test_a_step_on_a_terminal_is_one_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    with Console(stream).step("MinIO") as step:
        step.update("starting")
        while "starting" not in stream.getvalue():
            threading.Event().wait(0.01)
    *_, last = stream.getvalue().split("\r\x1b[2K")
    assert last == "✓ MinIO          done\n"


def test_a_catalog_without_its_driver_is_refused_before_anything_starts(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitoolstream.stack.cassandra.find_spec", lambda _name: None)
    result = mts("up", "--catalog")
    assert result.exit_code != 0
    assert "pip install 'minitoolstream[catalog]'" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (home / "data").exists()


def test_a_database_whose_driver_is_missing_is_told_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTS_CATALOG_DATABASE", "cql://127.0.0.1:1/x")
    for module in ("cassandra", "cassandra.query"):
        monkeypatch.setitem(sys.modules, module, None)
    result = mts("catalog", "status")
    assert result.exit_code != 0
    assert "pip install 'minitoolstream[catalog]'" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("kind", ["pin", "unpin"])
def test_a_batch_of_nothing_is_told_so(home: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "ids").write_text("\n")
    result = mts("catalog", "batch", kind, "ids")
    assert (result.exit_code, result.stderr) == (2, "error: ids names no content: write one id a line\n")
