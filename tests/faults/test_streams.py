"""Streams of events under restarts: a reader that reconnects with the last id misses nothing and sees nothing twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.durables import fill
from tests.integration.test_event_stream import stream
from tests.live import Live, eventually, start_live

READERS = 20


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Live]:
    live = start_live(tmp_path, webhook=False)
    yield live
    live.stop()


class Reader(threading.Thread):
    """As the protocol has it: connects again, and says what it has seen."""

    def __init__(self, live: Live, subject: str) -> None:
        super().__init__(daemon=True)
        self.live, self.subject = live, subject
        self.seen: list[int] = []
        self.last_id = "0"
        self.connected = threading.Event()
        self.stop = False

    def run(self) -> None:
        while not self.stop:
            try:
                with stream(self.live, self.subject, last_event_id=self.last_id) as events:
                    if events.status != 200:
                        continue
                    for block in events.blocks():
                        self.connected.set()
                        if block.get("event") == "message":
                            self.seen.append(int(block["id"]))
                        self.last_id = block.get("id", self.last_id)
            except (OSError, ValueError, IndexError):
                continue


@pytest.mark.parametrize("part", ["tarantool", "host"])
def test_streams_miss_nothing_when_a_part_is_killed_and_comes_back(own: Live, subject: str, part: str) -> None:
    readers = [Reader(own, subject) for _ in range(READERS)]
    for reader in readers:
        reader.start()
        assert reader.connected.wait(30)
    given = fill(own, subject, "a", "b")
    eventually(lambda: all(reader.seen == given for reader in readers))
    server = own.tarantool if part == "tarantool" else own.hosts[0]
    server.kill()
    server.start()
    eventually(own.hosts[0].ready)
    given += fill(own, subject, "c", "d")
    eventually(lambda: all(len(reader.seen) >= len(given) for reader in readers))
    for reader in readers:
        reader.stop = True
    assert [reader.seen for reader in readers] == [given] * READERS
