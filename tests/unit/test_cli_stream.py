"""The stream commands, on a host in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from minitoolstream.cli import stream_commands
from minitoolstream.cli.filenames import safe_filename
from minitoolstream.cli.main import cli
from minitoolstream.client import Client
from minitoolstream.client._subscription_sync import Subscription
from tests.unit.fake_host import HOSTS, TOKEN, FakeHost, answer, api_error

Mts = Callable[..., Result]


@pytest.fixture
def host() -> FakeHost:
    return FakeHost(part_size=1 << 20)


@pytest.fixture
def mts(host: FakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mts:
    monkeypatch.setenv("MTS_URL", HOSTS[0])
    monkeypatch.setenv("MTS_TOKEN", TOKEN)
    monkeypatch.chdir(tmp_path)

    def from_settings(settings: object, *, retry_for: float) -> Client:
        client = Client(HOSTS[0], TOKEN)
        client._client = host.client(tmp_path / "state", seconds=retry_for)
        return client

    monkeypatch.setattr(Client, "from_settings", from_settings)

    def run(*arguments: str, input: bytes | None = None) -> Result:  # noqa: A002  as CliRunner names it
        return CliRunner().invoke(cli, arguments, input=input)

    return run


def test_publish_a_file_and_get_it_back(mts: Mts, host: FakeHost, tmp_path: Path) -> None:
    (tmp_path / "film.mp4").write_bytes(b"a film")
    result = mts("publish", "videos", "film.mp4", "--header", "kind=film", "--header", "note=a=b")
    assert (result.exit_code, result.stdout) == (0, "film.mp4: message 1\n")
    assert host.messages[0].meta["headers"] == {"filename": "film.mp4", "kind": "film", "note": "a=b"}
    assert host.messages[0].meta["content_type"] == "video/mp4"
    result = mts("get", "1", "-o", "copy.mp4")
    assert result.stdout == "message 1 saved as copy.mp4\n"
    assert (tmp_path / "copy.mp4").read_bytes() == b"a film"


@pytest.mark.parametrize("region", ["", "Foo Bar"])
def test_a_region_that_is_none_is_a_usage_error(mts: Mts, region: str) -> None:
    result = mts("fetch", "orders", "--region", region)
    assert result.exit_code == 2
    assert f"{region!r} is not a region; write one like us-east-1" in result.stderr


def test_publish_a_text(mts: Mts, host: FakeHost) -> None:
    result = mts("publish", "orders", "--data", "hello", "--content-type", "text/markdown", "--json")
    assert json.loads(result.stdout) == {"state": "committed", "sequence": 1, "partition": 0, "offset": 0}
    assert host.messages[0].data == b"hello"
    assert host.messages[0].meta["content_type"] == "text/markdown"


def test_a_seqno_that_is_taken_says_that_nothing_was_stored(mts: Mts, host: FakeHost, tmp_path: Path) -> None:
    named = ("--producer-id", "till-7", "--seqno", "1")
    assert mts("publish", "orders", "--data", "first", *named).exit_code == 0
    again = mts("publish", "orders", "--data", "second", *named)
    text = "text: seqno 1 is message 1 already; this time nothing was stored\n"
    assert (again.exit_code, again.stdout) == (0, text)
    assert [message.data for message in host.messages] == [b"first"]


def test_publish_stdin(mts: Mts, host: FakeHost) -> None:
    assert mts("publish", "orders", "-", input=b"from a pipe").exit_code == 0
    assert host.messages[0].data == b"from a pipe"


def test_stdin_is_read_only_when_asked_for(mts: Mts, host: FakeHost) -> None:
    refused = mts("publish", "orders", input=b"of a loop in a shell")
    assert refused.exit_code == 2
    assert "`-` for stdin" in refused.stderr
    assert not host.messages


def test_a_missing_file_among_several_is_told_before_anything_is_published(
    mts: Mts, host: FakeHost, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("a")
    refused = mts("publish", "orders", "a", "missing.txt")
    assert refused.exit_code == 3
    assert "missing.txt: No such file" in refused.stderr
    assert not host.messages


def test_a_large_stdin_takes_the_way_of_a_file(mts: Mts, host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_commands, "_IN_MEMORY", 4)
    assert mts("publish", "orders", "-", input=b"from a pipe").exit_code == 0
    assert host.messages[0].data == b"from a pipe"
    assert host.asked("PUT store")


def test_several_files_are_numbered_and_answered_line_by_line(mts: Mts, host: FakeHost, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name)
    result = mts("publish", "orders", "a", "b", "--producer-id", "till", "--seqno", "7", "--json")
    assert [json.loads(line)["sequence"] for line in result.stdout.splitlines()] == [1, 2]
    assert [message.meta["seqno"] for message in host.messages] == [7, 8]


def test_ctrl_c_says_how_to_go_on(mts: Mts, host: FakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "film.mp4").write_bytes(b"a film")
    monkeypatch.setattr(Client, "publish_file", interrupt)
    result = mts("publish", "videos", "film.mp4")
    assert result.exit_code == 130
    assert "run the same command again to go on where it stopped" in result.stderr
    assert "starts anew" in mts("publish", "videos", "film.mp4", "--no-resume").stderr


def test_ctrl_c_in_the_second_of_three_files_names_the_rest(
    mts: Mts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Client.publish_file

    def interrupt_second(self: Client, subject: str, path: str, **facts: object) -> object:
        if path == "b":
            raise KeyboardInterrupt
        return original(self, subject, path, **facts)  # type: ignore[arg-type]

    for name in "abc":
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(Client, "publish_file", interrupt_second)
    result = mts("publish", "orders", "a", "b", "c")
    assert result.stdout == "a: message 1\n"
    assert "1 of 3 are published" in result.stderr
    assert result.stderr.strip().endswith("b c")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["publish", "orders", "missing.txt"], 3, "No such file"),
        (["publish", "orders", "."], 2, "Is a directory"),
        (["publish", "orders", "--data", "x", "--header", "a=b", "--header", "A=c"], 2, "given twice"),
        (["publish", "bad subject", "--data", "x"], 2, "is not valid"),
        (["publish", "orders", "--data", "x", "--header", "novalue"], 2, "not of the form"),
        (["publish", "orders", "--data", "x", "--seqno", "1"], 2, "belong together"),
        (["publish", "orders", "a", "--data", "x"], 2, "not both"),
        (["publish", "orders", "--data", "\udcff\udcfe"], 2, "not valid UTF-8"),
        (["publish", "orders", "--data", "x", "--header", "a=\udcff"], 2, "not valid UTF-8"),
        (["fetch", "orders", "--start", "soon"], 2, "neither a sequence"),
        (["fetch", "orders", "--limit", "5000"], 2, "1<=x<=1000"),
        (["fetch", "orders", "--start", "9" * 26], 2, "is too large"),
        (["fetch", "orders", "--start", "9" * 5000], 2, "is too large"),
        (["publish", "orders", "--data", "x", "--producer-id", "p", "--seqno", "9" * 26], 2, "is too large"),
        (["get", "9" * 26], 2, "is too large"),
        (["get", "orders"], 2, "'orders' is not a valid sequence"),
        (["get", "7"], 3, "not_found"),
        (["get", "7", "--json", "-o", "-"], 3, "not_found"),
        (["receipt", "nonsense"], 2, "not an upload id"),
        (["abort", "01900000-0000-7000-8000-000000000000"], 3, "not_found"),
    ],
)
def test_wrong_input_gets_a_clear_error(mts: Mts, arguments: list[str], code: int, message: str) -> None:
    result = mts(*arguments)
    assert result.exit_code == code
    assert message in result.output


def test_an_unreachable_host_says_how_to_start_it(mts: Mts, host: FakeHost) -> None:
    host.down.add(HOSTS[0])
    result = mts("latest", "orders")
    assert result.exit_code == 5
    assert "mts up" in result.stderr


def test_tail_ends_when_there_is_no_host(mts: Mts, host: FakeHost) -> None:
    host.down = set(HOSTS)
    refused = mts("tail", "orders")
    assert refused.exit_code == 5
    assert "cannot reach the host" in refused.stderr


def test_ctrl_c_is_how_a_tail_that_follows_ends(mts: Mts, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Subscription, "batches", interrupt)
    ended = mts("tail", "orders", "-f")
    assert (ended.exit_code, ended.output) == (130, "")


def test_a_bad_token_says_where_one_is(mts: Mts, host: FakeHost) -> None:
    host.once("/latest", api_error(401, "unauthorized"))
    result = mts("latest", "orders")
    assert result.exit_code == 2
    assert "mts token" in result.stderr


def test_fetch_is_a_table(mts: Mts, host: FakeHost) -> None:
    mts("publish", "orders", "--data", "hello", "--header", "kind=order")
    mts("publish", "orders", "--data", "x" * 2000)
    result = mts("fetch", "orders", "--limit", "1")
    head, row = result.stdout.splitlines()
    assert head.split() == ["SEQUENCE", "TIME", "SIZE", "TYPE", "HEADERS"]
    assert row.split()[0] == "1"
    assert "5 B" in row
    assert "kind=order" in row
    assert "mts fetch orders --start 2" in result.stderr


def test_fetch_inline_shows_payloads_without_steering_the_terminal(mts: Mts, host: FakeHost) -> None:
    mts("publish", "orders", "--data", "red \x1b[31m alert\nsecond line")
    row = mts("fetch", "orders", "--inline").stdout.splitlines()[1]
    assert "red ·[31m alert·second line" in row
    mts("publish", "orders", "-", input=b"\xff\x00")
    assert "ff 00" in mts("fetch", "orders", "--inline", "--start", "last").stdout


def test_fetch_json_is_the_page_of_the_api(mts: Mts, host: FakeHost) -> None:
    mts("publish", "orders", "--data", "hello")
    page = json.loads(mts("fetch", "orders", "--inline", "--json").stdout)
    assert (page["next_sequence"], page["latest_sequence"]) == (2, 1)
    (message,) = page["messages"]
    assert (message["sequence"], message["data"], message["encoding"]) == (1, "aGVsbG8=", "base64")
    assert message["url"].startswith("http://store/")


def test_fetch_of_nothing_is_3(mts: Mts) -> None:
    result = mts("fetch", "orders")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "there is no subject orders\n"
    mts("publish", "orders", "--data", "x")
    result = mts("fetch", "orders", "--start", "2")
    assert result.stderr == "no messages in orders from 2 on; the latest of orders is 1\n"
    result = mts("fetch", "orders", "--start", "2", "--partition", "9")
    assert "no messages in partition 9 of orders from 2 on" in result.stderr
    result = mts("fetch", "others", "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["messages"] == []


def test_get_writes_the_payload_to_stdout(mts: Mts, host: FakeHost) -> None:
    mts("publish", "orders", "-", input=b"\x00binary")
    assert mts("get", "1").stdout_bytes == b"\x00binary"
    assert mts("get", "1", "-o", "-").stdout_bytes == b"\x00binary"


def test_get_json_is_the_metadata_and_saves_when_told_where(mts: Mts, host: FakeHost, tmp_path: Path) -> None:
    mts("publish", "orders", "--data", "hello")
    assert json.loads(mts("get", "1", "--json").stdout)["size"] == 5
    assert json.loads(mts("get", "1", "--json", "-o", "copy").stdout)["path"] == "copy"
    assert (tmp_path / "copy").read_bytes() == b"hello"
    assert mts("get", "1", "--json", "-o", "-").exit_code == 2


def test_json_has_large_numbers_as_strings_as_the_api_does(mts: Mts, host: FakeHost) -> None:
    large = 2**60
    body = f'{{"state": "committed", "sequence": "{large}", "partition": 0, "offset": "{large}"}}'
    host.once("/messages", answer(201, body.encode()))
    shown = json.loads(mts("publish", "orders", "--data", "x", "--json").stdout)
    assert shown == {"state": "committed", "sequence": str(large), "partition": 0, "offset": str(large)}
    host.once("/latest", answer(200, f'{{"subject": "orders", "latest_sequence": "{large}", "now": 0}}'.encode()))
    assert json.loads(mts("latest", "orders", "--json").stdout)["latest_sequence"] == str(large)


# -- names of files


def test_the_name_of_a_file_goes_along_and_one_that_is_given_wins(mts: Mts, host: FakeHost, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "film.mp4").write_bytes(b"a film")
    mts("publish", "videos", "folder/film.mp4")
    mts("publish", "videos", "folder/film.mp4", "--header", "filename=other.mp4")
    mts("publish", "videos", "-", input=b"no name")
    names = [message.meta["headers"].get("filename") for message in host.messages]
    assert names == ["film.mp4", "other.mp4", None]


def test_a_name_that_is_not_utf8_is_no_obstacle(mts: Mts, host: FakeHost, tmp_path: Path) -> None:
    name = os.fsdecode(b"f\xfclm")
    (tmp_path / name).write_bytes(b"a film")
    assert mts("publish", "videos", name).exit_code == 0
    assert host.messages[0].meta["headers"]["filename"] == "f\ufffdlm"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_commands, "_on_terminal", lambda: True)


@pytest.mark.usefixtures("terminal")
def test_what_a_terminal_cannot_show_is_saved_under_its_name(mts: Mts, tmp_path: Path) -> None:
    (tmp_path / "film.mp4").write_bytes(b"a film")
    mts("publish", "videos", "film.mp4")
    refused = mts("get", "1")
    assert refused.exit_code == 2
    assert "film.mp4 is here already" in refused.stderr
    assert "--force" in refused.stderr
    (tmp_path / "film.mp4").write_bytes(b"another")
    assert mts("get", "1", "--force").stdout == "message 1 saved as film.mp4\n"
    assert (tmp_path / "film.mp4").read_bytes() == b"a film"


@pytest.mark.usefixtures("terminal")
def test_a_link_that_leads_nowhere_is_a_name_that_is_taken(mts: Mts, tmp_path: Path) -> None:
    mts("publish", "videos", "-", "--header", "filename=film", input=b"\x00")
    (tmp_path / "film").symlink_to(tmp_path / "elsewhere")
    assert mts("get", "1").exit_code == 2
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.usefixtures("terminal")
def test_a_text_is_shown_and_binary_without_a_name_is_refused_with_a_hint(mts: Mts) -> None:
    mts("publish", "orders", "--data", "hello", "--header", "filename=hello.txt")
    assert mts("get", "1").stdout == "hello"
    mts("publish", "orders", "-", input=b"\x00")
    refused = mts("get", "2")
    assert refused.exit_code == 2
    assert "mts get 2 -o FILE" in refused.stderr
    assert mts("get", "2", "-o", "-").stdout_bytes == b"\x00"


def test_a_pipe_gets_the_payload_whatever_its_name(mts: Mts, tmp_path: Path) -> None:
    mts("publish", "videos", "-", "--header", "filename=film", input=b"\x00film")
    assert mts("get", "1").stdout_bytes == b"\x00film"
    assert not (tmp_path / "film").exists()


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("film.mp4", "film.mp4"),
        ("Übergröße 2.mp4", "Übergröße 2.mp4"),
        ("../../etc/passwd", "passwd"),
        ("/etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("C:evil", "C_evil"),
        (".bashrc", "bashrc"),
        ("-rf", "rf"),
        ("a\x00b\x1b[31mc\nd\u202ee", "ab[31mcde"),
        ("film.mp4. ", "film.mp4"),
        ("x" * 300 + ".mp4", "x" * 196 + ".mp4"),
        ("ü" * 300, "ü" * 100),
        ("..", None),
        ("folder/", None),
        ("\u202e", None),
        ("", None),
    ],
)
def test_the_name_of_a_message_leads_nowhere_else(given: str, safe: str | None) -> None:
    assert safe_filename({"filename": given}) == safe


def test_a_damaged_payload_is_4(mts: Mts, host: FakeHost, tmp_path: Path) -> None:
    mts("publish", "orders", "--data", "hello")
    host.messages[0].meta["sha256"] = "0" * 64
    result = mts("get", "1", "-o", "copy")
    assert result.exit_code == 4
    assert not (tmp_path / "copy").exists()


def test_a_rejected_upload_is_4(mts: Mts, host: FakeHost, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    host.once("GET host-a/v1/uploads", answer(200, b'{"state": "rejected", "reason": "wrong_size"}'))
    assert mts("publish", "orders", "a").exit_code == 4


def test_the_receipt_of_an_upload_that_failed_is_4(mts: Mts, host: FakeHost) -> None:
    host.once("GET host-a/v1/uploads", answer(200, b'{"state": "aborted"}'))
    assert mts("receipt", "01890a5d-ac96-774b-bcce-b302099a8057").exit_code == 4


def test_latest_receipt_abort_and_reconcile(mts: Mts, host: FakeHost, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    upload_id = json.loads(mts("publish", "orders", "a", "--json").stdout)["upload_id"]
    assert mts("latest", "orders").stdout == "1\n"
    assert json.loads(mts("latest", "orders", "--json").stdout) == {"subject": "orders", "latest_sequence": 1}
    assert mts("receipt", upload_id).stdout == "message 1\n"
    assert json.loads(mts("receipt", upload_id, "--wait", "--json").stdout)["sequence"] == 1
    assert mts("abort", upload_id).exit_code == 2
    assert mts("reconcile").stdout == "committed: 2\nexpired: 1\n"
    assert json.loads(mts("reconcile", "--json").stdout) == {"committed": 2, "expired": 1}


def test_a_stored_receipt_says_what_it_waits_for(mts: Mts, host: FakeHost) -> None:
    host.once("/messages", answer(202, b'{"state": "stored", "upload_id": "u1", "waits_for": "u0"}'))
    assert "visible when the upload u0 has ended" in mts("publish", "orders", "--data", "x").stdout
