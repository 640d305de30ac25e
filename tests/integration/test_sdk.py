"""The SDK on real servers."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from minitoolstream.client import AsyncClient, Client, Item, Message, MtsError, State
from minitoolstream.domain.limits import MIB
from tests.live import Live, eventually

HEADERS = {"kind": "order", "Größe": "übergroß", "empty": "", "spaces": "  two  "}


@pytest.fixture
def client(live: Live, tmp_path: Path) -> Iterator[Client]:
    with Client(live.url, live.token, state_dir=tmp_path / "state") as client:
        yield client


def make_file(path: Path, size: int) -> Path:
    path.write_bytes(os.urandom(size))
    return path


def run_python(code: str, live: Live, *arguments: str, state: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "MTS_URL": live.url, "MTS_TOKEN": live.token, "XDG_STATE_HOME": str(state)}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environ, capture_output=True, text=True, timeout=300
    )


def test_inline_ticket_and_batch_bring_the_same_message(client: Client, subject: str, tmp_path: Path) -> None:
    path = tmp_path / "payload.bin"
    path.write_bytes(b"\x00payload\xff")
    client.publish(subject, b"\x00payload\xff", headers=HEADERS)
    client.publish_file(subject, path, headers=HEADERS, content_type="application/octet-stream")
    client.publish_batch(subject, [Item(b"\x00payload\xff", headers=HEADERS)])

    messages = client.fetch(subject).messages
    assert len(messages) == 3
    for message in messages:
        assert dict(message.headers) == HEADERS
        assert message.content_type == "application/octet-stream"
        assert message.size == 9
        assert client.payload(message) == b"\x00payload\xff"
    assert [message.offset for message in messages] == [0, 1, 2]


def test_plain_headers_survive_the_raw_form(client: Client, subject: str) -> None:
    headers = {"kind": "order", "x-trace.id": "a/b=c; d, e"}
    client.publish(subject, "text", headers=headers)
    (message,) = client.fetch(subject, inline=True).messages
    assert dict(message.headers) == headers
    assert (message.content_type, message.data) == ("text/plain; charset=utf-8", b"text")


def test_the_same_idempotency_key_is_the_same_message(client: Client, subject: str) -> None:
    first = client.publish(subject, b"pay", idempotency_key="k")
    again = client.publish(subject, b"pay", idempotency_key="k")
    assert (again.sequence, again.duplicate) == (first.sequence, True)
    with pytest.raises(MtsError) as caught:
        client.publish(subject, b"pay twice", idempotency_key="k")
    assert caught.value.code == "idempotency_conflict"


def test_a_payload_above_the_inline_limit_goes_by_ticket(client: Client, subject: str) -> None:
    data = os.urandom(5 * MIB)
    receipt = client.publish(subject, data, headers=HEADERS)
    assert receipt.upload_id
    message = client.get(receipt.sequence or 0)
    assert message.sha256 == hashlib.sha256(data).hexdigest()
    assert client.payload(message) == data


def test_a_large_file_goes_in_parts_and_comes_back(client: Client, subject: str, tmp_path: Path) -> None:
    path = make_file(tmp_path / "film.mp4", 22 * MIB + 17)
    up: list[tuple[int, int]] = []
    down: list[tuple[int, int]] = []
    receipt = client.publish_file(subject, path, progress=lambda *p: up.append(p))
    message = client.download(receipt.sequence or 0, tmp_path / "copy", progress=lambda *p: down.append(p))
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    assert (message.content_type, message.size) == ("video/mp4", path.stat().st_size)
    assert up[-1] == down[-1] == (path.stat().st_size, path.stat().st_size)
    assert list((tmp_path / "state").iterdir()) == []


def test_an_upload_killed_in_the_middle_goes_on_in_another_process(
    live: Live, client: Client, subject: str, tmp_path: Path
) -> None:
    path = make_file(tmp_path / "film.mp4", 32 * MIB)
    code = (
        "import os, signal, sys\n"
        "from minitoolstream.client import Client\n"
        "def progress(done, total):\n"
        "    if done > 17 * 2**20 and os.environ.get('DIE'): os.kill(os.getpid(), signal.SIGKILL)\n"
        "with Client() as client:\n"
        "    print(client.publish_file(sys.argv[1], sys.argv[2], progress=progress, concurrency=1).upload_id)\n"
    )
    killed = run_python("import os; os.environ['DIE'] = '1'\n" + code, live, subject, str(path), state=tmp_path)
    assert killed.returncode == -9
    (state,) = (tmp_path / "minitoolstream").iterdir()
    arrived_before = live.api("GET", f"/v1/uploads/{_upload_id(state)}/parts").json["arrived"]
    assert 0 < len(arrived_before) < 7

    finished = run_python(code, live, subject, str(path), state=tmp_path)

    assert finished.stdout.strip() == _first_upload(live, client, subject), finished.stderr
    (message,) = client.fetch(subject).messages
    assert hashlib.sha256(client.payload(message)).digest() == hashlib.sha256(path.read_bytes()).digest()
    assert list((tmp_path / "minitoolstream").iterdir()) == []


def _upload_id(state: Path) -> str:
    text = state.read_text()
    return text.partition('"upload_id":"')[2].partition('"')[0]


def _first_upload(live: Live, client: Client, subject: str) -> str:
    (message,) = client.fetch(subject).messages
    return message.object_name.rpartition("/")[2]


def test_a_file_that_changed_after_a_kill_is_a_new_upload(client: Client, subject: str, tmp_path: Path) -> None:
    path = make_file(tmp_path / "film.mp4", 12 * MIB)
    stopped = asyncio.run(_stop_in_the_middle(client, subject, path, tmp_path / "state"))
    path.write_bytes(b"another film")
    receipt = client.publish_file(subject, path)
    assert client.payload(receipt.sequence or 0) == b"another film"
    assert client.receipt(stopped).state is State.ABORTED


async def _stop_in_the_middle(client: Client, subject: str, path: Path, state: Path) -> str:
    def progress(done: int, _total: int) -> None:
        if done > 6 * MIB:
            task.cancel()

    transport = client._client._transport
    token = transport._authorization["authorization"].removeprefix("Bearer ")
    async with AsyncClient(transport.urls, token, state_dir=state) as other:
        task = asyncio.ensure_future(other.publish_file(subject, path, progress=progress, concurrency=1))
        with pytest.raises(asyncio.CancelledError):
            await task
    return _upload_id(_only(state))


def _only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_a_file_that_changes_while_it_is_published_is_no_message(client: Client, subject: str, tmp_path: Path) -> None:
    path = make_file(tmp_path / "film.mp4", 12 * MIB)
    changed = threading.Event()

    def progress(done: int, _total: int) -> None:
        if done > 0 and not changed.is_set():
            changed.set()
            with path.open("r+b") as file:
                file.seek(11 * MIB)
                file.write(b"changed")

    with pytest.raises(MtsError) as caught:
        client.publish_file(subject, path, progress=progress, concurrency=1)
    assert caught.value.code in ("file_changed", "checksum_mismatch")
    assert client.latest(subject) == 0


def test_an_empty_file_and_an_empty_message(client: Client, subject: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    client.publish_file(subject, tmp_path / "empty")
    client.publish(subject, b"")
    client.publish_batch(subject, [b"", b"x", b""])
    assert [message.data for message in client.read(subject)] == [b"", b"", b"", b"x", b""]
    for message in client.fetch(subject).messages:
        assert len(client.payload(message)) == message.size


def test_thousands_of_messages_come_back_in_order_whole_and_by_pages(client: Client, subject: str) -> None:
    items = [Item(f"message {n}", headers={"n": str(n)} if n % 100 == 0 else {}) for n in range(2500)]
    results = client.publish_batch(subject, items)
    sequences = [result.unwrap().sequence for result in results]
    assert sequences == sorted(sequences, key=lambda n: n or 0)

    read = list(client.read(subject))
    assert [message.data for message in read] == [str(item.data).encode() for item in items]
    assert [dict(message.headers) for message in read] == [dict(item.headers) for item in items]
    listed = list(client.messages(subject))
    assert [_place(message) for message in listed] == [_place(message) for message in read]
    assert [message.sequence for message in listed] == sequences
    middle = sequences[1234] or 0
    assert [message.data for message in client.read(subject, start=middle, limit=3)] == [
        b"message 1234",
        b"message 1235",
        b"message 1236",
    ]
    (last,) = client.fetch(subject, start="last").messages
    assert last.sequence == client.latest(subject) == sequences[-1]
    assert [message.data for message in client.read(subject, start="last")] == [b"message 2499"]
    assert list(client.messages(subject, start="new")) == []


def _place(message: Message) -> tuple[int, int, int, str, dict[str, str], int]:
    return (
        message.sequence,
        message.partition,
        message.offset,
        message.content_type,
        dict(message.headers),
        message.size,
    )


def test_a_packed_message_downloads_alone(client: Client, subject: str, tmp_path: Path) -> None:
    results = client.publish_batch(subject, [b"first", b"second", b"third"])
    sequence = results[1].unwrap().sequence or 0
    client.download(sequence, tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == b"second"
    target = io.BytesIO()
    client.download(sequence, target)
    assert target.getvalue() == b"second"


def test_a_download_goes_on_where_it_stopped(client: Client, live: Live, subject: str, tmp_path: Path) -> None:
    path = make_file(tmp_path / "film.mp4", 20 * MIB)
    sequence = client.publish_file(subject, path).sequence or 0
    code = (
        "import os, signal, sys\n"
        "from minitoolstream.client import Client\n"
        "def progress(done, total):\n"
        "    if done > 7 * 2**20: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Client().download(int(sys.argv[1]), sys.argv[2], progress=progress)\n"
    )
    assert run_python(code, live, str(sequence), str(tmp_path / "copy"), state=tmp_path).returncode == -9
    (part,) = tmp_path.glob("copy.*.part")
    kept = part.stat().st_size
    assert kept >= 7 * MIB

    seen: list[int] = []
    client.download(sequence, tmp_path / "copy", progress=lambda done, _: seen.append(done))
    assert seen[0] == kept
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    assert list(tmp_path.glob("*.part")) == []


def test_named_producers_store_each_seqno_once(client: Client, subject: str) -> None:
    first = client.publish(subject, b"one", producer_id="till", seqno=1)
    again = client.publish(subject, b"one", producer_id="till", seqno=1)
    assert (again.sequence, again.duplicate) == (first.sequence, True)
    results = client.publish_batch(subject, [b"one", b"two"], producer_id="till", first_seqno=1)
    assert [result.unwrap().duplicate for result in results] == [True, False]
    assert [message.data for message in client.read(subject)] == [b"one", b"two"]


def test_a_publish_behind_an_open_upload_is_stored_until_that_ends(live: Live, client: Client, subject: str) -> None:
    ticket = live.ticket(subject, 5, producer_id="till", seqno=1)
    receipt = client.publish(subject, b"second", producer_id="till", seqno=2)
    assert receipt.state is State.STORED
    assert client.latest(subject) == 0
    client.abort(ticket["upload_id"])
    assert receipt.upload_id
    assert client.receipt(receipt.upload_id, wait=20).state is State.COMMITTED
    assert [message.data for message in client.read(subject)] == [b"second"]


def test_a_new_session_fences_the_old_one(client: Client, subject: str) -> None:
    old = client.start_producer(subject, "till")
    new = client.start_producer(subject, "till")
    assert new.epoch > old.epoch
    assert new.last_seqno == 0, "the first message gets 1"
    client.publish(subject, b"new", producer_id="till", seqno=1, epoch=new.epoch)
    with pytest.raises(MtsError) as caught:
        client.publish(subject, b"old", producer_id="till", seqno=2, epoch=old.epoch)
    assert caught.value.code == "producer_fenced"


def test_buffered_publishing_from_threads(client: Client, subject: str) -> None:
    with client.buffered(subject, linger=0.005, batch_bytes=16_384) as publisher:

        def produce(name: str) -> None:
            for n in range(200):
                publisher.publish(f"{name} {n}")

        threads = [threading.Thread(target=produce, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    stored = [(message.data or b"").decode() for message in client.read(subject)]
    assert len(stored) == 800
    for name in "abcd":
        assert [text for text in stored if text[0] == name] == [f"{name} {n}" for n in range(200)]


async def test_a_buffered_named_producer_goes_on_with_its_numbers(live: Live, subject: str) -> None:
    async with AsyncClient(live.url, live.token) as client:
        for run in range(2):
            async with client.buffered(subject, producer_id="till") as publisher:
                futures = [await publisher.publish(f"{run} {n}") for n in range(50)]
            assert all(future.result().state is State.COMMITTED for future in futures)
        assert (await client.start_producer(subject, "till")).last_seqno == 100
        assert len([message async for message in client.read(subject)]) == 100


async def test_the_async_client_does_many_things_at_once(live: Live, subject: str) -> None:
    async with AsyncClient([live.url], live.token) as client:
        receipts = await asyncio.gather(*(client.publish(subject, str(n)) for n in range(200)))
        assert len({receipt.sequence for receipt in receipts}) == 200
        payloads = await asyncio.gather(*(client.payload(receipt.sequence or 0) for receipt in receipts))
        assert payloads == [str(n).encode() for n in range(200)]


def test_producers_with_two_addresses_do_not_notice_a_killed_host(live: Live, subject: str) -> None:
    second = live.add_host()
    try:
        failures: list[Exception] = []
        sequences: list[int] = []
        stop = threading.Event()

        def produce() -> None:
            with Client([second.url, live.url], live.token) as client:
                client._client._transport._current = 0
                try:
                    while not stop.is_set():
                        sequences.append(client.publish(subject, b"x").sequence or 0)
                except MtsError as error:
                    failures.append(error)

        threads = [threading.Thread(target=produce) for _ in range(4)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(sequences) > 20)
        second.kill()
        so_far = len(sequences)
        eventually(lambda: len(sequences) > so_far + 20)
        stop.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(set(sequences)) == len(sequences)
        with Client(live.url, live.token) as client:
            stored = {message.sequence for message in client.messages(subject)}
        assert len(stored) == len(sequences)
        assert stored == set(sequences)
    finally:
        live.hosts.remove(second)
        second.kill()


def test_abort_and_reconcile(live: Live, client: Client, subject: str) -> None:
    ticket = live.ticket(subject, 5)
    assert client.abort(ticket["upload_id"]).state is State.ABORTED
    assert client.abort(ticket["upload_id"]).state is State.ABORTED
    with pytest.raises(MtsError) as caught:
        client.abort("01900000-0000-7000-8000-000000000000")
    assert caught.value.code == "not_found"
    assert "committed" in client.reconcile()


def test_a_wrong_token_and_a_missing_message(live: Live, client: Client, subject: str) -> None:
    with Client(live.url, "wrong") as stranger, pytest.raises(MtsError) as caught:
        stranger.latest(subject)
    assert caught.value.code == "unauthorized"
    with pytest.raises(MtsError) as caught:
        client.get(2**60)
    assert caught.value.code == "not_found"


def test_memory_stays_flat_with_a_large_file(live: Live, subject: str, tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(256 * MIB)
    code = (
        "import sys\n"
        "from minitoolstream.client import Client\n"
        "with Client() as client:\n"
        "    receipt = client.publish_file(sys.argv[1], sys.argv[2], resume=False)\n"
        "    client.download(receipt.sequence, sys.argv[2] + '.copy')\n"
        "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])\n"
    )
    finished = run_python(code, live, subject, str(path), state=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert int(finished.stdout) < 200 * 1024  # in KiB
    assert (tmp_path / "large.copy").stat().st_size == 256 * MIB
