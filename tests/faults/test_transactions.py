"""Transactions under `kill -9` of every part: all of one, or nothing of it, and nothing is left over (rule 20)."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.faults.audit import objects_in_bucket, settle
from tests.faults.test_kill import kill_host
from tests.live import Live, eventually, start_live

EXAMPLE = Path(__file__).parents[2] / "examples" / "consume_transform_produce.py"
HASTY = {
    "MTS_UPLOADS_TICKET_LIFE": "4s",
    "MTS_UPLOADS_PRODUCER_TICKET_LIFE": "6s",
    "MTS_UPLOADS_PUT_GRACE": "1s",
    "MTS_UPLOADS_FIRST_LOOK": "1s",
    "MTS_PACKS_GRACE": "8s",
}


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    stack = start_live(tmp_path_factory.mktemp("hasty"), extra_env=HASTY)
    yield stack
    stack.stop()


def begin(live: Live, timeout: float = 60) -> str:
    return str(live.api("POST", "/v1/transactions", {"timeout": timeout}).json["transaction_id"])


def end(live: Live, transaction_id: str, how: str = "commit") -> Any:
    return live.api("POST", f"/v1/transactions/{transaction_id}/{how}")


def fill(live: Live, transaction_id: str, subject: str) -> None:
    """Some of everything: inline, a batch of a producer, a finished upload, one that was only announced."""
    headers = {"x-mts-transaction-id": transaction_id, "content-type": "application/x-ndjson"}
    batch = b"\n".join(json.dumps({"data": "b", "producer_id": "p", "seqno": n}).encode() for n in range(1, 4))
    assert live.publish(subject, b"inline", x_mts_transaction_id=transaction_id).status == 202
    assert live.api("POST", f"/v1/subjects/{subject}/messages/batch", batch, headers).status == 200
    for payload in (b"upload", None):
        ticket = live.ticket(subject, 6, transaction_id=transaction_id)
        if payload:
            assert live.put(ticket, payload).status == 200
            assert live.receipt(ticket["upload_id"])["state"] == "stored"


def test_abort_and_timeout_leave_nothing(hasty: Live, subject: str) -> None:
    aborted, forgotten = begin(hasty), begin(hasty, timeout=1)
    fill(hasty, aborted, subject)
    fill(hasty, forgotten, f"{subject}-forgotten")
    assert objects_in_bucket(hasty)
    assert end(hasty, aborted, "abort").json["state"] == "aborted"

    def is_ended() -> bool:
        hasty.reconcile()
        return bool(hasty.api("GET", f"/v1/transactions/{forgotten}").json["state"] == "aborted")

    eventually(is_ended)
    settle(hasty)
    assert objects_in_bucket(hasty) == set()
    assert hasty.messages(subject) == []
    again = hasty.publish(subject, b"x", x_mts_producer_id="p", x_mts_seqno="1")
    assert again.status == 201, "its producer is free, and its seqnos were never stored"


def test_a_transaction_survives_a_kill_of_tarantool(tmp_path: Path) -> None:
    live = start_live(tmp_path, extra_env=HASTY)
    committed, opened = begin(live), begin(live)
    for transaction_id, subject in ((committed, "before"), (opened, "after")):
        live.publish(subject, b"x", x_mts_transaction_id=transaction_id)
    first = end(live, committed)
    live.tarantool.kill()
    live.tarantool.start()
    eventually(lambda: live.api("GET", f"/v1/transactions/{committed}").status == 200)

    assert end(live, committed).json == first.json
    assert end(live, opened).json["state"] == "committed"
    assert len(live.messages("before")) == len(live.messages("after")) == 1
    settle(live)
    live.stop()


LEDGERS = tuple(f"ledger-{number}" for number in range(4))


def prepared(live: Live) -> str:
    """Open, with two messages in each of several subjects: they say which transaction they are of."""
    transaction_id = begin(live, timeout=900)
    for subject in LEDGERS * 2:
        assert live.publish(subject, transaction_id.encode(), x_mts_transaction_id=transaction_id).status == 202
    return transaction_id


def seen(live: Live) -> dict[str, list[int]]:
    """How many messages of each transaction are in each of the subjects."""
    found: dict[str, list[int]] = {}
    for place, subject in enumerate(LEDGERS):
        for message in live.messages(subject, inline="true"):
            found.setdefault(base64.b64decode(message["data"]).decode(), [0] * len(LEDGERS))[place] += 1
    return found


def test_commits_that_meet_a_kill_are_all_or_nothing(tmp_path: Path) -> None:
    live = start_live(tmp_path, extra_env=HASTY)
    chance, cut_short = random.Random(4), 0
    begun: list[str] = []
    for _ in range(6):
        with ThreadPoolExecutor(4) as threads:
            opened = list(threads.map(lambda _: prepared(live), range(24)))
            begun += opened
            commits = [threads.submit(end, live, transaction_id) for transaction_id in opened]
            with contextlib.suppress(TimeoutError):
                commits[chance.randint(0, 15)].result(30)
                commits[-1].result(chance.random() / 50)
            live.tarantool.kill()
            live.tarantool.start()
        answered = {one for one, commit in zip(opened, commits, strict=True) if commit.result().status == 200}
        cut_short += len(opened) - len(answered)
        eventually(lambda: live.api("GET", "/readyz").status == 200)
        visible = seen(live)
        assert all(counts == [2] * len(LEDGERS) for counts in visible.values()), "all of one, or nothing"
        assert answered <= set(visible), "what was answered is there"
        for transaction_id in opened:
            state = live.api("GET", f"/v1/transactions/{transaction_id}").json["state"]
            assert state == ("committed" if transaction_id in visible else "open")
            assert end(live, transaction_id).status == 200, "and the rest can be committed still"

    assert cut_short > 0, "no kill met a commit"
    assert seen(live) == dict.fromkeys(begun, [2] * len(LEDGERS))
    settle(live)
    live.stop()


def totals(live: Live) -> list[list[int]]:
    """The orders that each total counts."""
    messages = live.messages("shop-totals", inline="true")
    return [json.loads(base64.b64decode(message["data"]))["orders"] for message in messages]


def test_a_worker_killed_at_random_points_counts_every_order_once(tmp_path: Path) -> None:
    live = start_live(tmp_path, extra_env=HASTY)
    environ = {**os.environ, "MTS_URL": live.url, "MTS_TOKEN": live.token, "XDG_STATE_HOME": str(tmp_path)}
    environ["PYTHONPATH"] = str(EXAMPLE.parents[1])
    seeds, killed = itertools.count(20), 0

    def start(*command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *command], env=environ, cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )

    for turn in itertools.count():
        if sum(map(len, totals(live))) >= 500:
            break
        # Two at once count the same orders: one gets through.
        workers = [start("-m", "tests.faults.dying", str(EXAMPLE), str(next(seeds))) for _ in range(1 + turn % 2)]
        if turn == 4:
            kill_host(live.hosts[0])
            live.hosts[0].start()
        for worker in workers:
            worker.communicate(timeout=120)
            killed += worker.returncode == -signal.SIGKILL
    last = start(str(EXAMPLE))
    shown, _ = last.communicate(timeout=120)

    assert killed > 10, "each of them counts a few dozen orders at most"
    assert last.returncode == 0
    assert "500 orders counted, 3001 in all" in shown
    assert Counter(number for counted in totals(live) for number in counted) == Counter(range(1, 501))
    settle(live, within=120)
    live.stop()
