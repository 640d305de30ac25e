"""`mts consumer`, `mts subject`, `mts tail` and `mts dlq` as a user types them, on real servers."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from minitoolstream.cli.main import cli
from minitoolstream.client import Client
from tests.integration.test_cli import Mts as MtsProcess
from tests.live import Live, eventually


class Mts:
    """Runs `mts` within this process: starting Python for each of many commands takes long."""

    def __init__(self, live: Live) -> None:
        self._environ = {"MTS_URL": live.url, "MTS_TOKEN": live.token}

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments, env=self._environ, prog_name="mts")

    def lines(self, *arguments: str) -> list[str]:
        done = self(*arguments)
        assert done.exit_code == 0, done.stderr
        return done.stdout.splitlines()

    def json(self, *arguments: str) -> dict[str, Any]:
        (line,) = self.lines(*arguments, "--json")
        found = json.loads(line)
        assert isinstance(found, dict)
        return found


@pytest.fixture
def mts(live: Live) -> Mts:
    return Mts(live)


@pytest.fixture
def process(live: Live, tmp_path: Path) -> MtsProcess:
    return MtsProcess(live, tmp_path)


@pytest.fixture
def client(live: Live) -> Iterator[Client]:
    with Client(live.url, live.token) as client:
        yield client


def test_tail_shows_what_is_there_and_a_durable_goes_on_behind_it(mts: Mts, subject: str) -> None:
    assert mts("tail", subject).exit_code == 3
    for number in range(3):
        mts("publish", subject, "--data", f"text {number}", "--header", f"n={number}", "--codec", "zstd")
    assert [line.split()[-1] for line in mts.lines("tail", subject, "--start", "first")] == ["0", "1", "2"]
    assert "n=2  text 2" in mts.lines("tail", subject)[0]
    (shown,) = mts.lines("tail", subject, "--start", "first", "--filter", "n=1", "--json")
    message = json.loads(shown)
    assert (base64.b64decode(message["data"]), message["codec"]) == (b"text 1", "zstd")
    assert len(mts.lines("tail", subject, "--durable", "d")) == 3
    assert mts("tail", subject, "--durable", "d").exit_code == 3
    assert mts("tail", subject, "--start", "yesterday").exit_code == 2
    assert mts("tail", subject, "--filter", "n").exit_code == 2


def test_tail_follows_until_it_is_interrupted_and_acks_what_it_showed(
    process: MtsProcess, client: Client, subject: str
) -> None:
    following = subprocess.Popen(
        [*process.command, "tail", subject, "-f", "--durable", "d", "--json"],
        cwd=process.folder,
        env=process.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert following.stdout
    sequences = [client.publish(subject, str(number)).sequence for number in range(3)]
    assert [json.loads(following.stdout.readline())["sequence"] for _ in range(3)] == sequences
    eventually(lambda: client.consumers.get(subject, "d").lag == 0)
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=30)
    assert following.returncode == 130


def test_durables_are_listed_described_moved_and_deleted(mts: Mts, client: Client, subject: str) -> None:
    assert mts("consumer", "ls", subject).exit_code == 3
    sequences = [client.publish(subject, str(number)).sequence or 0 for number in range(3)]
    mts("tail", subject, "--durable", "billing")
    client.consumers.put(subject, "work", mode="shared", max_deliver=7)
    head, billing, work = mts.lines("consumer", "ls", subject)
    assert head.split() == ["DURABLE", "MODE", "ACKED", "LAG", "LEASED", "SESSIONS"]
    assert billing.split()[:2] + billing.split()[3:4] == ["billing", "ordered", "0"]
    assert work.split()[:2] + work.split()[3:4] == ["work", "shared", "3"]
    shown = "\n".join(mts.lines("consumer", "info", subject, "work"))
    assert "tries at most       7" in shown
    assert f"{subject}.dlq" in shown
    moved = mts.json("consumer", "seek", subject, "billing", str(sequences[1]))
    assert moved["lag"] == 2
    assert "its lag is 3" in mts.lines("consumer", "seek", subject, "billing", "2020-01-01T00:00")[0]
    assert mts("consumer", "seek", subject, "nobody", "first").exit_code == 3
    refused = mts("consumer", "rm", subject, "billing")
    assert refused.exit_code == 2
    assert "--yes billing" in refused.stderr
    assert mts("consumer", "rm", subject, "billing", "--yes", "work").exit_code == 2
    assert mts.lines("consumer", "rm", subject, "billing", "--yes", "billing") == ["billing is deleted"]
    assert len(mts.json("consumer", "alter", subject, "work", "--filter", "n=1")["filter"]) == 1
    assert mts("consumer", "alter", subject, "work", "--filter", "n=1", "--no-filter").exit_code == 2
    assert "filter" not in mts.json("consumer", "alter", subject, "work", "--no-filter")
    missing = mts("consumer", "info", subject, "billing")
    assert missing.exit_code == 3
    assert "mts consumer ls" in missing.stderr


def test_subjects_are_made_altered_listed_and_deleted(mts: Mts, subject: str) -> None:
    assert mts("subject", "info", subject).exit_code == 3
    assert mts("subject", "alter", subject, "--partitions", "2").exit_code == 3
    made = mts.json("subject", "create", subject, "--partitions", "2", "--codec", "raw", "--quota-rate", "1000")
    assert len(made["partitions"]) == 2
    assert made["settings"]["codecs"] == ["raw"]
    assert mts("subject", "create", subject).exit_code == 2
    assert mts("publish", subject, "--data", "x", "--codec", "gzip").exit_code == 2
    assert mts("publish", subject, "--data", "x", "--group", "g").exit_code == 0
    quotas = ("--quota-rate", "9", "--quota-messages", "50", "--quota-bytes", "2048")
    assert "1 of 50 messages, 1 B of 2.0 KiB, 9 messages/s" in "".join(mts.lines("subject", "alter", subject, *quotas))
    assert mts.json("subject", "info", subject)["used"] == {"messages": 1, "bytes": 1}
    shown = "\n".join(mts.lines("subject", "alter", subject, "--partitions", "3", "--quota-rate", "0"))
    assert "messages/s" not in shown
    assert shown.count("active") == 3
    assert mts("subject", "alter", subject).exit_code == 2
    listed = mts.lines("subject", "ls", "--prefix", subject)
    assert listed[1].split()[:3] == [subject, "3", "1"]
    assert mts("subject", "ls", "--prefix", "no-such-").exit_code == 3
    refused = mts("subject", "rm", subject)
    assert refused.exit_code == 2
    assert "1 messages" in refused.stderr
    assert mts("subject", "rm", subject, "--yes", "other").exit_code == 2
    assert mts.lines("subject", "rm", subject, "--yes", subject) == [f"{subject} is deleted"]
    assert mts("subject", "info", subject).exit_code == 3


def test_dead_letters_are_listed_replayed_and_purged(mts: Mts, client: Client, subject: str) -> None:
    assert mts("dlq", "list", subject).exit_code == 3
    client.consumers.put(subject, "work", mode="shared", max_deliver=1)
    client.publish_batch(subject, [b"one", b"two", b"three"])
    with client.subscribe(subject, durable="work", mode="shared", ack="manual", idle=0) as work:
        for delivery in work:
            delivery.nack()
    page = mts.json("dlq", "list", subject)
    assert [message["headers"]["mts-dlq-durable"] for message in page["messages"]] == ["work"] * 3
    assert len(mts.lines("dlq", "list", subject)) == 4
    first = str(page["messages"][0]["sequence"])
    assert mts.lines("dlq", "replay", subject, first) == ["replayed: 1"]
    assert mts("dlq", "purge", subject).exit_code == 2
    assert mts.lines("dlq", "purge", subject, "--yes", subject) == ["purged: 2"]
    assert client.payload(client.latest(subject)) == b"one"


def test_commands_of_groups_complete(process: MtsProcess) -> None:
    asked = process(_MTS_COMPLETE="bash_complete", COMP_WORDS="mts consumer ", COMP_CWORD="2")
    offered = {line.partition(b",")[2] for line in asked.stdout.split()}
    assert offered == {b"alter", b"create", b"info", b"ls", b"rm", b"seek"}


def test_a_subject_that_is_not_there_is_called_so(mts: Mts, subject: str) -> None:
    for command in (("fetch", subject), ("consumer", "ls", subject), ("dlq", "replay", subject)):
        refused = mts(*command)
        assert refused.exit_code == 3
        assert f"there is no subject {subject}" in refused.stderr
    assert "it is made, too" in mts("consumer", "create", subject, "d1").stderr
    assert "it is made, too" not in mts("consumer", "create", subject, "d2").stderr
    assert mts("subject", "info", subject).exit_code == 0
    assert "the last sequence is" in mts("consumer", "seek", subject, "d1", "999999999999").stderr
