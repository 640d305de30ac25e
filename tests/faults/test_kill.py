"""`kill -9` of every part, under load: nothing acknowledged is lost, nothing is stored twice, nothing is left over."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.faults import load
from tests.faults.audit import check_stream, settle
from tests.faults.load import Producers, Reader
from tests.live import HostServer, Live, eventually, start_live
from tests.servers import Server

HASTY = {
    "MTS_UPLOADS_PRODUCER_TICKET_LIFE": "6s",
    "MTS_UPLOADS_PUT_GRACE": "1s",
    "MTS_UPLOADS_FIRST_LOOK": "1s",
    "MTS_PACKS_GRACE": "8s",
}


def kill_host(host: HostServer) -> None:
    """The supervisor and its workers in one stroke, as an out-of-memory kill of the whole unit would."""
    os.killpg(host.pid, signal.SIGKILL)
    host.kill()


def part_of(live: Live, name: str) -> Server:
    return {"host": live.hosts[0], "tarantool": live.tarantool, "store": live.minio}[name]


def kill(part: Server) -> None:
    if isinstance(part, HostServer):
        kill_host(part)
    else:
        part.kill()


@pytest.mark.parametrize("name", ["host", "tarantool", "store"])
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, name: str) -> None:
    live = start_live(tmp_path, extra_env=HASTY)
    part = part_of(live, name)
    small = Producers(load.inline(live, "small"), "key", 6)
    large = Producers(load.uploads(live, "large"), "producer", 4)
    reader = Reader(live, "small")

    with reader, small, large:
        small.wait_for_more(60)
        large.wait_for_more(20)
        kill(part)
        part.start()
        small.wait_for_more(60)
        # Frozen first, so that the second kill surely meets requests that are under way.
        os.killpg(part.pid, signal.SIGSTOP)
        eventually(lambda: small.stands_still() and large.stands_still())
        kill(part)
        part.start()
        small.wait_for_more(30)
        large.wait_for_more(10)

    assert small.repeated + large.repeated > 0, "nothing was under way when it died"
    messages = check_stream(live, "small", small.acknowledged)
    check_stream(live, "large", large.acknowledged)
    assert reader.read_to_the_end() == [message["sequence"] for message in messages]
    settle(live)
    live.stop()


def test_a_killed_worker_is_replaced_and_nobody_notices(tmp_path: Path) -> None:
    live = start_live(tmp_path, extra_env=HASTY)
    producers = Producers(load.inline(live, "small"), "key", 4)

    with producers:
        for _ in range(3):
            producers.wait_for_more(20)
            children = Path(f"/proc/{live.hosts[0].pid}/task/{live.hosts[0].pid}/children")
            os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
        producers.wait_for_more(20)

    check_stream(live, "small", producers.acknowledged)
    live.stop()
