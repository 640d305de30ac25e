"""Tarantool out of memory: what cannot be stored is refused as something to try again, and what is stored stays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from minitoolstream.domain.limits import MIB
from tests.live import Answer, Live, start_live

SMALLEST = 32 * MIB
HEADERS = {"padding": "x" * 15_000}
AT_ONCE = 50


@pytest.fixture
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    stack = start_live(tmp_path_factory.mktemp("full-memory"))
    stack.tarantool.stop()
    launch = stack.tarantool.launch
    stack.tarantool.launch = replace(launch, environ={**launch.environ, "MTS_TARANTOOL_MEMORY": str(SMALLEST)})
    stack.tarantool.start()
    yield stack
    stack.stop()


def announce(live: Live, subject: str) -> Answer:
    uploads = [{"size": 1, "headers": HEADERS}] * AT_ONCE
    return live.api("POST", f"/v1/subjects/{subject}/uploads", {"uploads": uploads})


def test_a_tarantool_out_of_memory_is_a_503_and_goes_on_reading(live: Live, subject: str) -> None:
    sequence = live.publish(subject, b"before").json["sequence"]

    most = SMALLEST // (AT_ONCE * len(HEADERS["padding"])) + 1
    refused = next(answer for answer in (announce(live, subject) for _ in range(most)) if answer.status != 201)

    assert (refused.status, refused.code) == (503, "unavailable")
    assert refused.headers["retry-after"]
    assert "out of memory; raise tarantool.memory" in refused.json["error"]["message"]
    (message,) = live.messages(subject)
    assert (message["sequence"], live.payload(message)) == (sequence, b"before")
