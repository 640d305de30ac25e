"""A reader's process is killed in the middle of a message: that one comes again, and nothing before it is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.durables import Durable, fill
from tests.live import Live, eventually

MESSAGES, IN_HAND = 12, 5
READER = """
import json, sys
from minitoolstream.client import Client

url, token, subject, options, stop_at = sys.argv[1:]
with Client(url, token) as client, client.subscribe(subject, durable="work", **json.loads(options)) as work:
    for number, delivery in enumerate(work, 1):
        print(delivery.sequence, flush=True)
        if number == int(stop_at):
            sys.stdin.read()
            break
"""
KINDS: dict[str, dict[str, Any]] = {
    "ordered": {},
    "session": {"session": "reader"},
    "shared": {"mode": "shared", "lease": 2},
}


def read(live: Live, subject: str, options: dict[str, Any], count: int) -> tuple[subprocess.Popen[str], list[int]]:
    """A process that has so many messages, the last of them still in its hands; and their sequences."""
    command = [sys.executable, "-c", READER, live.url, live.token, subject, json.dumps(options), str(count)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, [int(process.stdout.readline()) for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_in_the_hands_of_a_killed_reader_comes_again(live: Live, subject: str, kind: str) -> None:
    given = fill(live, subject, *map(str, range(MESSAGES)))
    durable = Durable(live, subject, "work")
    process, before = read(live, subject, KINDS[kind], IN_HAND)
    process.kill()
    process.communicate()
    assert before == given[:IN_HAND]
    acked = MESSAGES - durable.now["lag"]
    assert acked < IN_HAND, "the one in its hands was not acked"

    process, after = read(live, subject, KINDS[kind], MESSAGES - acked)
    process.communicate()  # its input ends: it stops as it should
    if kind == "shared":
        assert sorted(after) == given[acked:]
    else:
        assert after == given[acked:]
    eventually(lambda: durable.now["lag"] == 0)
