"""`mts` as a user types it, on real servers."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from minitoolstream.domain.limits import MIB
from minitoolstream.stack.ports import free_port
from tests.live import Live, eventually


class Mts:
    """Runs `mts` in a folder of its own, with the address and token in the environment."""

    def __init__(self, live: Live, folder: Path) -> None:
        self.folder = folder
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MTS_")},
            "MTS_URL": live.url,
            "MTS_TOKEN": live.token,
            "XDG_STATE_HOME": str(folder / "state"),
        }
        self.command = [sys.executable, "-m", "minitoolstream.cli.main"]

    def __call__(self, *arguments: str, input: bytes = b"", **environ: str) -> subprocess.CompletedProcess[bytes]:  # noqa: A002
        return subprocess.run(
            [*self.command, *arguments],
            cwd=self.folder,
            env={**self.environ, **environ},
            input=input,
            capture_output=True,
            timeout=120,
        )

    def json(self, *arguments: str) -> object:
        done = self(*arguments, "--json")
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)


@pytest.fixture
def mts(live: Live, tmp_path: Path) -> Mts:
    return Mts(live, tmp_path)


def test_a_file_goes_in_and_comes_out(mts: Mts, subject: str) -> None:
    (mts.folder / "film.mp4").write_bytes(os.urandom(12 * MIB))
    done = mts("publish", subject, "film.mp4", "--header", "kind=film")
    assert (done.returncode, done.stderr) == (0, b"")
    sequence = done.stdout.decode().removeprefix("film.mp4: message ").strip()
    table = mts("fetch", subject).stdout.decode().splitlines()
    assert table[1].split()[0] == sequence
    assert "12.0 MiB" in table[1]
    assert "kind=film" in table[1]
    assert mts("get", sequence, "-o", "copy.mp4").returncode == 0
    assert (mts.folder / "copy.mp4").read_bytes() == (mts.folder / "film.mp4").read_bytes()
    assert mts("latest", subject).stdout.decode().strip() == sequence


def test_status_is_about_the_host_that_is_named(mts: Mts, live: Live) -> None:
    report = mts.json("status")
    assert isinstance(report, dict)
    assert (report["state"], report["http"], report["given_by"]) == ("running", live.url, "MTS_URL")
    shown = mts("status").stdout.decode()
    assert f"host at {live.url}, from MTS_URL; not the stack of this folder" in shown
    assert "token" not in shown


@pytest.mark.parametrize(("token", "words"), [("wrong", "refused the token from MTS_TOKEN"), ("", "no token is set")])
def test_status_says_that_a_token_is_refused(mts: Mts, token: str, words: str) -> None:
    assert words in mts("status", MTS_TOKEN=token).stdout.decode()


def test_status_of_a_host_that_is_not_there_says_so(mts: Mts) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    shown = mts("status", MTS_URL=f"{url}/").stdout.decode()
    assert shown.startswith(f"state: unreachable\nhost at {url}, from MTS_URL")


def test_text_and_pipes_round_trip(mts: Mts, subject: str) -> None:
    receipt = mts.json("publish", subject, "--data", "grüße", "--header", "Größe=übergroß")
    assert isinstance(receipt, dict)
    assert mts("get", str(receipt["sequence"])).stdout.decode() == "grüße"
    piped = mts("publish", subject, "-", "--json", input=b"\x00\xff")
    assert mts("get", str(json.loads(piped.stdout)["sequence"]), "-o", "-").stdout == b"\x00\xff"
    page = mts.json("fetch", subject, "--inline")
    assert isinstance(page, dict)
    assert page["messages"][0]["headers"] == {"Größe": "übergroß"}


def test_a_large_pipe_takes_the_way_of_a_file(mts: Mts, subject: str) -> None:
    data = os.urandom(6 * MIB)
    piped = mts("publish", subject, "-", "--json", input=data)
    assert mts("get", str(json.loads(piped.stdout)["sequence"])).stdout == data


def test_ctrl_c_and_the_same_command_again(mts: Mts, live: Live, subject: str) -> None:
    (mts.folder / "film.mp4").write_bytes(os.urandom(64 * MIB))
    state = mts.folder / "state" / "minitoolstream"
    process = subprocess.Popen(
        [*mts.command, "publish", subject, "film.mp4"], cwd=mts.folder, env=mts.environ, stderr=subprocess.PIPE
    )
    try:
        eventually(lambda: any(file.stat().st_size for file in state.glob("*.json")), pause=0.002)
        assert process.poll() is None
        os.kill(live.minio.pid, signal.SIGSTOP)  # so that it cannot be faster than Ctrl-C
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    finally:
        os.kill(live.minio.pid, signal.SIGCONT)
        process.kill()
    assert process.returncode == 130
    assert b"run the same command again to go on where it stopped" in stderr
    upload_id = json.loads(next(state.glob("*.json")).read_bytes())["upload_id"]

    receipt = mts.json("publish", subject, "film.mp4")
    assert isinstance(receipt, dict)
    assert receipt["upload_id"] == upload_id
    assert mts("get", str(receipt["sequence"])).stdout == (mts.folder / "film.mp4").read_bytes()


def test_progress_is_shown_on_a_terminal(mts: Mts, subject: str) -> None:
    (mts.folder / "film.mp4").write_bytes(os.urandom(12 * MIB))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*mts.command, "publish", subject, "film.mp4"],
        cwd=mts.folder,
        env=mts.environ,
        stderr=theirs,
        stdout=subprocess.PIPE,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
    stdout, _ = process.communicate(timeout=60)
    os.close(ours)
    assert "film.mp4  12.0 MiB / 12.0 MiB  100%" in shown.decode()
    assert stdout.startswith(b"film.mp4: message ")


def test_what_cannot_be_reached_or_is_not_there(mts: Mts, subject: str) -> None:
    down = mts("latest", subject, MTS_URL="http://127.0.0.1:1")
    assert down.returncode == 5
    assert b"mts up" in down.stderr
    assert mts("latest", subject, MTS_TOKEN="wrong").returncode == 2
    assert mts("fetch", subject).returncode == 3
    assert mts("get", str(2**60)).returncode == 3
    assert mts("publish", subject, "missing.txt").returncode == 3
    assert mts("publish", "no/subject", "--data", "x").returncode == 2


def test_receipts_abort_and_reconcile(mts: Mts, live: Live, subject: str) -> None:
    upload_id = live.ticket(subject, 3)["upload_id"]
    assert mts("receipt", upload_id).stdout == b"open\n"
    assert mts("abort", upload_id).stdout == b"aborted: aborted by the producer\n"
    counts = mts.json("reconcile")
    assert isinstance(counts, dict)
    assert {"committed", "expired"} <= counts.keys()
