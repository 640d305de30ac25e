"""The connector on real servers, by gRPC and by HTTP; and the example programs of the specification."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.connector import (
    ByteMessagePreparer,
    FileMessagePreparer,
    Message,
    MtsError,
    Publisher,
    PublisherBuilder,
    StringMessagePreparer,
    Subscriber,
    SubscriberBuilder,
)
from minitoolstream.domain.limits import MIB
from tests.grpc_kit import GrpcProcess, start_grpc
from tests.live import Live, eventually

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def server(live: Live) -> Iterator[GrpcProcess]:
    process = start_grpc(live)
    yield process
    process.stop()


@pytest.fixture(params=["grpc", "http"])
def addresses(request: pytest.FixtureRequest, live: Live, server: GrpcProcess) -> tuple[str, str]:
    return (server.ingress, server.egress) if request.param == "grpc" else (live.url, live.url)


def publisher_of(live: Live, address: str, **more: Any) -> Publisher:
    builder = PublisherBuilder(address).with_token(live.token).with_timeout(20)
    for name, value in more.items():
        builder = getattr(builder, f"with_{name}")(value)
    return builder.build()


def subscriber_of(live: Live, address: str, durable: str, **more: Any) -> Subscriber:
    builder = SubscriberBuilder(address, durable).with_token(live.token).with_poll_interval(0.1)
    for name, value in more.items():
        builder = getattr(builder, f"with_{name}")(value)
    return builder.build()


class Results:
    def __init__(self) -> None:
        self.published: list[tuple[int, str]] = []
        self.failed: list[MtsError] = []

    def on_success(self, sequence: int, object_name: str) -> None:
        self.published.append((sequence, object_name))

    def on_error(self, error: MtsError) -> None:
        self.failed.append(error)


def test_what_is_prepared_arrives_with_its_type_and_size(
    live: Live, addresses: tuple[str, str], subject: str, tmp_path: Path
) -> None:
    file = tmp_path / "film.mp4"
    file.write_bytes(os.urandom(12 * MIB + 5))
    results = Results()
    with publisher_of(live, addresses[0]) as publisher:
        publisher.set_result_handler(results)
        publisher.publish(StringMessagePreparer(subject, "grüße", {"level": "info"}))
        publisher.publish(FileMessagePreparer(subject, file))
        publisher.publish(ByteMessagePreparer(subject, b""))
        with pytest.raises(MtsError, match="subject"):
            publisher.publish(ByteMessagePreparer("not/valid", b"x"))
    text, film, empty = live.messages(subject)
    assert [(text["sequence"], text["object_name"]), (film["sequence"], film["object_name"])] == results.published[:2]
    assert [error.code for error in results.failed] == ["bad_request"]
    assert live.payload(text).decode() == "grüße"
    assert text["content_type"] == "text/plain; charset=utf-8"
    assert text["headers"] == {"level": "info", "data-size": "7"}
    assert live.payload(film) == file.read_bytes()
    assert (film["content_type"], film["headers"]["file-name"]) == ("video/mp4", "film.mp4")
    assert film["object_name"].startswith("m/")  # it went straight into the store
    assert empty["size"] == 0


def test_a_subscriber_handles_everything_once_started_and_goes_on_after_a_stop(
    live: Live, addresses: tuple[str, str], subject: str
) -> None:
    got: list[bytes] = []
    with publisher_of(live, addresses[0]) as publisher:
        results = publisher.publish_all([ByteMessagePreparer(subject, str(n).encode()) for n in range(25)])
        assert [result.error for result in results] == [None] * 25
        publisher.publish(ByteMessagePreparer(f"{subject}.other", b"a sequence of another subject"))
        publisher.publish(ByteMessagePreparer(subject, b"25"))
        with subscriber_of(live, addresses[1], "reader") as subscriber:  # which nobody has made yet
            subscriber.register_handler(subject, print)
            (status,) = subscriber.status()
        assert (status.current_sequence, status.messages_lag) == (0, 26)

        def read(until: int) -> None:
            enough = threading.Event()

            def handle(message: Message) -> None:
                got.append(message.data)
                if len(got) == until:
                    enough.set()

            subscriber = subscriber_of(live, addresses[1], "reader", batch_size=10)
            subscriber.register_handler(subject, handle)
            subscriber.start()
            assert enough.wait(30)
            eventually(lambda: subscriber.status()[0].messages_lag == 0)
            subscriber.stop()
            subscriber.wait()

        read(26)
        publisher.publish(ByteMessagePreparer(subject, b"later"))
        read(27)
    assert got == [*(str(n).encode() for n in range(26)), b"later"]


def test_a_message_that_was_handled_while_the_stop_came_is_not_handled_again(
    live: Live, addresses: tuple[str, str], subject: str
) -> None:
    with publisher_of(live, addresses[0]) as publisher:
        publisher.publish_all([ByteMessagePreparer(subject, data) for data in (b"a", b"b", b"c")])
    got: list[bytes] = []

    def read(until: bytes) -> None:
        subscriber = subscriber_of(live, addresses[1], "d")

        def handle(message: Message) -> None:
            got.append(message.data)
            if message.data == until:
                subscriber.stop()

        subscriber.register_handler(subject, handle)
        subscriber.start()
        subscriber.wait()

    read(b"b")
    read(b"c")
    assert got == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("presigned_above", "straight"), [(10, [False, True, True]), (100 * MIB, [False, False, True])]
)
def test_what_goes_straight_into_the_store_is_the_publisher_s_choice(
    live: Live, addresses: tuple[str, str], subject: str, presigned_above: int, straight: list[bool]
) -> None:
    """The last one is more than any call takes, whatever the choice."""
    payloads = [b"x" * 10, b"x" * 11, b"x" * 5 * MIB]
    with publisher_of(live, addresses[0], presigned_above=presigned_above) as publisher:
        names = [publisher.publish(ByteMessagePreparer(subject, data)).object_name for data in payloads]
    assert [name.startswith("m/") for name in names] == straight
    assert [live.payload(message) for message in live.messages(subject)] == payloads


def test_a_message_whose_handler_fails_comes_again(live: Live, addresses: tuple[str, str], subject: str) -> None:
    with publisher_of(live, addresses[0]) as publisher:
        for data in (b"a", b"b"):
            publisher.publish(ByteMessagePreparer(subject, data))
    tries: list[bytes] = []
    done = threading.Event()

    def handle(message: Message) -> None:
        tries.append(message.data)
        if len(tries) < 3:
            raise ValueError("not yet")
        if message.data == b"b":
            done.set()

    subscriber = subscriber_of(live, addresses[1], "d")
    subscriber.register_handler(subject, handle)
    subscriber.start()
    assert done.wait(30)
    subscriber.stop()
    subscriber.wait()
    assert tries == [b"a", b"a", b"a", b"b"]


def test_a_message_that_no_answer_holds_is_downloaded(live: Live, server: GrpcProcess, subject: str) -> None:
    large = os.urandom(6 * MIB)
    with publisher_of(live, server.ingress) as publisher:
        publisher.publish_all([ByteMessagePreparer(subject, data) for data in (b"a", large, b"b")])
    got: list[bytes] = []
    done = threading.Event()

    def handle(message: Message) -> None:
        got.append(message.data)
        if len(got) == 3:
            done.set()

    with subscriber_of(live, server.egress, "d") as subscriber:
        subscriber.register_handler(subject, handle)
        subscriber.start()
        assert done.wait(60)
    assert got == [b"a", large, b"b"]


def test_what_cannot_get_better_ends_a_subscriber(live: Live, addresses: tuple[str, str], subject: str) -> None:
    subscriber = SubscriberBuilder(addresses[1], "d").with_token("wrong-token-of-16-chars").build()
    subscriber.register_handler(subject, print)
    subscriber.start()
    with pytest.raises(MtsError) as raised:
        subscriber.wait()
    assert raised.value.code == "unauthorized"


def test_compressed_messages_are_read_as_they_were(live: Live, addresses: tuple[str, str], subject: str) -> None:
    from minitoolstream.client import Client

    with Client(live.url, live.token) as client:
        client.publish(subject, b"long text " * 1000, codec="zstd")
    got: list[bytes] = []
    done = threading.Event()

    def handle(message: Message) -> None:
        got.append(message.data)
        done.set()

    with subscriber_of(live, addresses[1], "d") as subscriber:
        subscriber.register_handler(subject, handle)
        subscriber.start()
        assert done.wait(30)
    assert got == [b"long text " * 1000]


def test_a_restart_in_the_middle_loses_nothing_and_publishes_nothing_twice(live: Live, subject: str) -> None:
    """The server is killed while a publisher and a subscriber use it; both go on by themselves. What was handled and
    not acked by then is handled again."""
    process = start_grpc(live)
    got: list[bytes] = []
    done = threading.Event()

    def handle(message: Message) -> None:
        got.append(message.data)
        if message.data == b"59":
            done.set()

    subscriber = subscriber_of(live, process.egress, "d")
    subscriber.register_handler(subject, handle)
    subscriber.start()
    try:
        with publisher_of(live, process.ingress) as publisher:
            for first in range(0, 60, 3):
                if first in {21, 42}:
                    process.kill()
                    threading.Timer(0.3, process.start).start()
                prepared = [ByteMessagePreparer(subject, str(n).encode()) for n in range(first, first + 3)]
                if first < 30:
                    for one in prepared:
                        publisher.publish(one)
                else:
                    assert [result.error for result in publisher.publish_all(prepared)] == [None] * 3
        assert done.wait(60)
    finally:
        subscriber.stop()
        subscriber.wait()
        process.stop()
    assert [live.payload(message) for message in live.messages(subject)] == [str(n).encode() for n in range(60)]
    assert sorted(set(got), key=int) == [str(n).encode() for n in range(60)]


# -- the examples of appendix B


def environ(live: Live, tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "MTS_TOKEN": live.token, "MTS_HOME": str(tmp_path / ".mts"), "XDG_STATE_HOME": str(tmp_path)}


def example(name: str, live: Live, tmp_path: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        env=environ(live, tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_publisher_and_subscriber_meet(live: Live, addresses: tuple[str, str], tmp_path: Path) -> None:
    shown = example("publisher_client.py", live, tmp_path, addresses[0])
    assert shown.count("published: sequence=") == 4
    shown_to = tmp_path / "shown"
    with shown_to.open("w") as output:
        reader = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "subscriber_client.py"), addresses[1]],
            env=environ(live, tmp_path),
            cwd=tmp_path,
            stdout=output,
        )
    words = ("waiting for messages", "user event: ", "document: ", "log: ")
    eventually(lambda: all(word in shown_to.read_text() for word in words))
    reader.send_signal(signal.SIGINT)
    reader.wait(30)
    assert shown_to.read_text().endswith("stopped\n")
    assert reader.returncode == 0


def test_the_example_batch_publisher(live: Live, addresses: tuple[str, str], tmp_path: Path) -> None:
    count = "200"
    assert f"published {count} of {count}" in example("batch_publisher.py", live, tmp_path, addresses[0], count)


def test_the_example_integration_test(live: Live, addresses: tuple[str, str], tmp_path: Path) -> None:
    assert "21 messages came as they were sent" in example("integration_test.py", live, tmp_path, *addresses)
