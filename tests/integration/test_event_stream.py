"""Server-Sent Events over a plain socket: what a reader of the protocol sees."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.durables import Durable, fill
from tests.live import Live, eventually, start_live


class Stream:
    """Reads chunks of one answer, and events out of them."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._file = connection.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.headers: dict[str, str] = {}
        while line := self._file.readline().strip():
            name, _, value = line.decode().partition(":")
            self.headers[name.lower()] = value.strip()
        self._text = b""
        self.last_id: str | None = None

    def close(self) -> None:
        self._file.close()  # it would keep the connection open

    def _chunk(self) -> bytes:
        size = int(self._file.readline() or b"0", 16)
        chunk = self._file.read(size)
        self._file.readline()
        return chunk

    def blocks(self) -> Iterator[dict[str, str]]:
        """Blocks between blank lines, until the stream ends."""
        while True:
            while b"\n\n" not in self._text:
                chunk = self._chunk()
                if not chunk:
                    return
                self._text += chunk
            block, _, self._text = self._text.partition(b"\n\n")
            fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if ": " in line)
            if "id" in fields:
                self.last_id = fields["id"]
            yield fields

    def events(self, count: int) -> list[Any]:
        found: list[Any] = []
        for block in self.blocks():
            if "data" in block:
                found.append(json.loads(block["data"]))
            if len(found) == count:
                break
        return found


@contextmanager
def asked(live: Live, subject: str, query: str = "start=first", **headers: str) -> Iterator[socket.socket]:
    """The request is sent; its answer may take."""
    url = urlsplit(live.url)
    sent = {
        "host": url.netloc,
        "authorization": f"Bearer {live.token}",
        "accept": "text/event-stream",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    with socket.create_connection((url.hostname or "", url.port or 0), timeout=30) as connection:
        connection.sendall(f"GET /v1/subjects/{subject}/subscribe?{query} HTTP/1.1\r\n{head}\r\n".encode())
        yield connection


@contextmanager
def stream(live: Live, subject: str, query: str = "start=first", **headers: str) -> Iterator[Stream]:
    with asked(live, subject, query, **headers) as connection:
        opened = Stream(connection)
        try:
            yield opened
        finally:
            opened.close()


def sequences(events: list[Any]) -> list[int]:
    return [event["sequence"] for event in events]


def open_streams(live: Live) -> float:
    lines = live.api("GET", "/metrics").body.decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("minitoolstream_egress_open_streams "))


def test_messages_come_as_they_are_committed(live: Live, subject: str) -> None:
    given = fill(live, subject, "a", "b")
    with stream(live, subject) as events:
        assert (events.status, events.headers["content-type"]) == (200, "text/event-stream")
        assert sequences(events.events(2)) == given
        for body in ("c", "d"):
            (sequence,) = fill(live, subject, body)
            assert sequences(events.events(1)) == [sequence]
            assert events.last_id == str(sequence)


def test_an_interrupted_stream_goes_on_behind_the_last_event(live: Live, subject: str) -> None:
    given = fill(live, subject, "a", "b", "c")
    with stream(live, subject) as events:
        events.events(1)
        seen = events.last_id
    with stream(live, subject, last_event_id=str(seen)) as events:
        assert sequences(events.events(2)) == given[1:]


def test_a_stream_from_new_resumes_also_before_its_first_message(live: Live, subject: str) -> None:
    fill(live, subject, "old")
    with stream(live, subject, "start=new") as events:
        next(events.blocks())
        seen = events.last_id
    (sequence,) = fill(live, subject, "between")
    with stream(live, subject, "start=new", last_event_id=str(seen)) as events:
        assert sequences(events.events(1)) == [sequence]


def test_a_durable_streams_from_its_position_and_follows_a_seek(live: Live, subject: str) -> None:
    given = fill(live, subject, "a", "b")
    durable = Durable(live, subject)
    durable.put(last_sequence=given[0])
    with stream(live, subject, "durable=billing&filter=") as refused:
        assert refused.status == 400
    with stream(live, subject, "durable=billing") as events:
        assert sequences(events.events(1)) == given[1:]
        durable.put(seek="first")
        assert sequences(events.events(2)) == given
    assert durable.now["lag"] == 2, "reading acks nothing"


def test_a_stream_that_was_cut_off_before_a_seek_goes_on_where_the_seek_leads(live: Live, subject: str) -> None:
    given = fill(live, subject, *"abcde")
    durable = Durable(live, subject)
    durable.put()
    with stream(live, subject, "durable=billing") as events:
        events.events(2)
        seen = str(events.last_id)
    sequence, fence = seen.split(":")
    assert durable.post("ack", sequence=sequence, fence=int(fence)).status == 200
    with stream(live, subject, "durable=billing", last_event_id=seen) as events:
        assert sequences(events.events(3)) == given[2:], "nothing was moved yet"
    durable.put(seek="first")
    assert durable.post("ack", sequence=sequence, fence=int(fence)).code == "position_moved"
    for query in ("durable=billing", "durable=billing&start=new"):
        with stream(live, subject, query, last_event_id=seen) as events:
            assert sequences(events.events(3)) == given[:3]
    with stream(live, subject, "durable=billing", last_event_id=sequence) as events:
        assert sequences(events.events(3)) == given[2:], "an id without a fence says nothing of a seek"


def test_a_changed_filter_reaches_an_open_stream(live: Live, subject: str) -> None:
    durable = Durable(live, subject)
    durable.put(filter=[{"header": "kind", "equals": "a"}])
    (first,) = fill(live, subject, "1", kind="a")
    with stream(live, subject, "durable=billing") as events:
        assert sequences(events.events(1)) == [first]
        durable.put(filter=[{"header": "kind", "equals": "b"}])
        fill(live, subject, "2", kind="a")
        (third,) = fill(live, subject, "3", kind="b")
        assert sequences(events.events(1)) == [third]


@pytest.mark.parametrize(
    ("query", "status"), [("start=soon", 400), ("durable=nobody", 404), ("durable=a&session=b&epoch=1", 400)]
)
def test_what_is_wrong_is_said_with_a_status(live: Live, subject: str, query: str, status: int) -> None:
    with stream(live, subject, query) as refused:
        assert (refused.status, refused.headers["content-type"]) == (status, "application/json")


def test_a_stream_whose_client_left_is_closed(live: Live, subject: str) -> None:
    eventually(lambda: open_streams(live) == 0)
    with stream(live, subject) as events:
        next(events.blocks())
        eventually(lambda: open_streams(live) == 1)
    eventually(lambda: open_streams(live) == 0)


def test_a_host_that_stops_ends_its_streams_and_long_polls(tmp_path: Path, subject: str) -> None:
    live = start_live(tmp_path, webhook=False)
    try:
        (sequence,) = fill(live, subject, "a")
        with stream(live, subject) as events, asked(live, subject, "start=new&wait=25", accept="*/*") as waiting:
            assert sequences(events.events(1)) == [sequence]
            live.api("GET", "/healthz")  # answered behind it: the poll has begun
            live.hosts[0].stop()
            assert events.events(1) == []
            assert Stream(waiting).status == 200
    finally:
        live.stop()
