"""A replay into a subject, killed around each of its calls: the next run ends with each message once, in order."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.client import Client, Item
from minitoolstream.client._transport import Transport
from minitoolstream.config import Settings, load_settings
from spark_emr.reader import plan_read, read_options, read_stretches
from spark_emr.sinks import subject as sink
from spark_emr.sinks.subject import Published, publish_lane
from tests.live import Live

MESSAGES = 10
LARGE = b"too large for a batch" * 100
_send = Transport.send


class KilledError(BaseException):
    """`kill -9` here: nothing of the replay reaches the host from now on."""


class Killer:
    """Around the nth call of a host; 0: never."""

    def __init__(self, call: int = 0, *, behind: bool = False) -> None:
        self.calls = 0
        self._call, self._behind = call, behind

    async def send(self, transport: Transport, *given: Any, **named: Any) -> Any:
        self.calls += 1
        if self._call and self.calls >= self._call:
            if self._behind and self.calls == self._call:
                await _send(transport, *given, **named)
            raise KilledError
        return await _send(transport, *given, **named)


@pytest.fixture
def source(live: Live, monkeypatch: pytest.MonkeyPatch) -> str:
    """Messages that go in several batches, with a large one between them."""
    monkeypatch.setattr(sink, "_AT_ONCE", 4)
    subject = f"s-{uuid.uuid4().hex[:12]}"
    with Client(live.url, live.token) as client:
        half = [Item(b"message %d" % n, headers={"n": str(n)}) for n in range(MESSAGES // 2)]
        for items in (half, [Item(LARGE)], half):
            for result in client.publish_batch(subject, items):
                result.unwrap()
    return subject


@pytest.fixture
def replay(
    live: Live, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, Killer], Published]:
    environ = {**live.environ, "MTS_URL": live.url, "MTS_HOME": str(tmp_path)}
    settings: Settings = load_settings(environ, cwd=tmp_path)
    options = read_options({"subject": source, "payload": "true", "largeBytes": "1000"})

    def run(target: str, killer: Killer) -> Published:
        async def send(transport: Transport, *given: Any, **named: Any) -> Any:
            return await killer.send(transport, *given, **named)

        (partition,) = plan_read(settings, options).partitions
        with (
            closing(read_stretches(settings, options, partition, in_order=True)) as stretches,
            monkeypatch.context() as patched,
        ):
            patched.setattr(Transport, "send", send)
            return publish_lane(settings, target, f"replay-{source}/0", stretches)

    return run


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
def test_killed_around_any_call_the_next_run_ends_with_each_message_once(
    live: Live, source: str, replay: Callable[[str, Killer], Published], behind: bool
) -> None:
    whole = Killer()
    done = replay(f"{source}-whole", whole)
    assert (done.messages, done.already, done.skipped) == (MESSAGES + 1, 0, 0)
    assert whole.calls > 5
    with Client(live.url, live.token) as client:
        expected = [(message.data, message.headers) for message in client.read(source)]
        for call in range(1, whole.calls + 1):
            target = f"{source}-{call}"
            with pytest.raises(KilledError):
                replay(target, Killer(call, behind=behind))
            done = replay(target, Killer())
            assert done.messages + done.already == MESSAGES + 1, f"killed at call {call}"
            found = [(message.data, message.headers) for message in client.read(target)]
            assert found == expected, f"killed at call {call}"


def test_two_runs_at_a_time_publish_each_message_once(
    live: Live, source: str, replay: Callable[[str, Killer], Published]
) -> None:
    """The one that began earlier is fenced by the other, and says so."""
    target = f"{source}-twice"
    with pytest.raises(KilledError):
        replay(target, Killer(3))
    with Client(live.url, live.token) as client:
        old = client.start_producer(target, f"replay-{source}/0")
        done = replay(target, Killer())
        assert done.messages + done.already == MESSAGES + 1
        late = Item(b"late", producer_id=f"replay-{source}/0", seqno=10**9, epoch=old.epoch)
        (result,) = client.publish_batch(target, [late])
        assert not result.ok
        assert len(list(client.read(target))) == MESSAGES + 1
