"""A host's memory does not grow by what passes through it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from bench.processes import resident_bytes
from minitoolstream.domain.limits import MIB
from tests.live import HostServer, Live

_BATCH = b"".join(b'{"data": "message %d", "headers": {"number": "%d"}}\n' % (number, number) for number in range(1000))


@pytest.fixture
def alone(live: Live) -> Iterator[tuple[Live, HostServer]]:
    """The shared stack by a host with one worker, which nobody else uses."""
    own = replace(live, environ={**live.environ, "MTS_SERVER_WORKERS": "1", "MTS_LOGGING_LEVEL": "info"}, hosts=[])
    host = own.add_host()
    yield own, host
    host.stop()


def test_what_passes_through_a_host_does_not_stay_in_it(alone: tuple[Live, HostServer], subject: str) -> None:
    own, host = alone
    assert host.process

    def both(_: int) -> None:
        kind = {"content-type": "application/x-ndjson"}
        batch = own.api("POST", f"/v1/subjects/{subject}/messages/batch", _BATCH, kind).json
        assert batch["committed"] == 1000
        start = batch["results"][0]["sequence"]
        assert len(own.api("GET", f"/v1/subjects/{subject}/messages?limit=1000&start={start}").json["messages"]) == 1000

    with ThreadPoolExecutor(4) as four:
        list(four.map(both, range(40)))
        before = resident_bytes(host.process.pid)
        list(four.map(both, range(150)))
    grown = resident_bytes(host.process.pid) - before
    assert grown < 20 * MIB
