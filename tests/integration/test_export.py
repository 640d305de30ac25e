"""Export and import: the same messages in the same order, once, to and from a folder or a bucket."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.client import Client, Item, Message, MtsError
from minitoolstream.client import _batch as batching
from minitoolstream.client import _export as exporting
from minitoolstream.client import _import as importing
from tests.fsck import environ_of, mts
from tests.live import Live, eventually


@pytest.fixture
def client(live: Live) -> Iterator[Client]:
    with Client(live.url, live.token) as opened:
        yield opened


def fill(live: Live, client: Client, subject: str) -> None:
    """Messages of every kind."""
    client.publish(subject, "text", headers={"a": "1"})
    client.publish_batch(
        subject,
        [Item(b"one", headers={"n": "1"}), Item(b"", "application/json"), Item(b"zz" * 500, codec="gzip")],
    )
    client.publish(subject, os.urandom(100_000), content_type="image/png", codec="zstd")
    client.publish(subject, os.urandom(6 << 20), headers={"large": "yes"})
    client.publish_batch(subject, [Item(f"m{n}", headers={"n": str(n)}) for n in range(50)])
    live.publish(subject, b"last")


def seen(client: Client, subject: str) -> list[tuple[Any, ...]]:
    def facts(message: Message) -> tuple[Any, ...]:
        data = message.data if message.data is not None else client.payload(message)
        return data, dict(message.headers), message.content_type, message.codec

    return [facts(message) for message in client.read(subject)]


def test_what_is_imported_is_what_was_exported(
    live: Live, client: Client, subject: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "SEGMENT_MESSAGES", 20)
    monkeypatch.setattr("minitoolstream.client._read.LARGEST_READ", 1 << 20)
    fill(live, client, subject)
    shown: list[tuple[int, int]] = []
    done = client.export_subject(subject, tmp_path / "out", progress=lambda *count: shown.append(count))
    assert (done.messages, done.missing) == (57, 0)
    assert shown[-1] == (57, 57)
    lines = [
        json.loads(text)
        for file in sorted((tmp_path / "out").glob("*.jsonl"))
        for text in file.read_text("utf-8").splitlines()
    ]
    originals = list(client.messages(subject))
    assert [(line["sequence"], line["create_at"]) for line in lines] == [(m.sequence, m.create_at) for m in originals]
    assert sum("file" in line for line in lines) == 1, "a large payload has a file of its own"
    assert not list((tmp_path / "out").glob("*.part"))
    again = client.import_subject(tmp_path / "out", f"{subject}-copy")
    assert (again.messages, again.skipped, again.missing) == (57, 0, 0)
    assert seen(client, f"{subject}-copy") == seen(client, subject)
    once_more = client.import_subject(tmp_path / "out", f"{subject}-copy")
    assert (once_more.messages, once_more.skipped) == (0, 57)
    assert client.subjects.get(f"{subject}-copy").messages == 57
    assert client.export_subject(subject, tmp_path / "out") == done, "a finished one is left alone"


def test_payloads_are_exported_as_they_are_stored(client: Client, subject: str, tmp_path: Path) -> None:
    client.publish_batch(subject, [Item(b"zz" * 500, codec="gzip")])
    client.export_subject(subject, tmp_path)
    (data,) = tmp_path.glob("*.bin")
    assert gzip.decompress(data.read_bytes()) == b"zz" * 500


def test_partitions_keep_their_order(client: Client, subject: str, tmp_path: Path) -> None:
    client.subjects.put(subject, partitions=3)
    items = [Item(f"{n}", group=f"g{n % 7}", headers={"g": f"g{n % 7}"}) for n in range(60)]
    client.publish_batch(subject, items)
    client.export_subject(subject, tmp_path)
    client.import_subject(tmp_path, f"{subject}-copy")
    assert len([one for one in client.subjects.get(f"{subject}-copy").partitions if one.active]) == 3
    for group in range(7):
        lanes = {m.partition for m in client.messages(f"{subject}-copy") if m.headers["g"] == f"g{group}"}
        assert len(lanes) == 1, "what shared a lane shares one"
    assert [m.data for m in client.read(f"{subject}-copy")] == [m.data for m in client.read(subject)]


def test_a_folder_without_an_export_is_named(client: Client, tmp_path: Path) -> None:
    with pytest.raises(MtsError, match=f"there is no export in {tmp_path}") as refused:
        client.import_subject(tmp_path)
    assert refused.value.code == "not_found"


def test_an_interrupted_export_goes_on(
    live: Live, client: Client, subject: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "SEGMENT_MESSAGES", 5)
    for n in range(12):
        client.publish_batch(subject, [Item(f"{n} {i}") for i in range(3)])

    def stop(done: int, _total: int) -> None:
        if done > 10:
            raise MtsError("interrupted", "enough for now")

    with pytest.raises(MtsError):
        client.export_subject(subject, tmp_path / "out", progress=stop)
    with pytest.raises(MtsError) as incomplete:
        client.import_subject(tmp_path / "out", f"{subject}-copy")
    assert incomplete.value.code == "bad_request"
    client.publish(subject, "later: not of this export")
    assert client.export_subject(subject, tmp_path / "out").messages == 36
    client.import_subject(tmp_path / "out", f"{subject}-copy")
    assert [m.data for m in client.read(f"{subject}-copy")] == [m.data for m in client.read(subject)][:36]


def test_an_interrupted_import_goes_on_without_duplicates(
    client: Client, subject: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "_BATCH_MESSAGES", 7)
    client.publish_batch(subject, [Item(f"{n}") for n in range(40)])
    client.export_subject(subject, tmp_path)
    real, calls = batching.publish_frames, []

    async def fails(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        result = await real(*arguments, **named)
        if len(calls) == 3:
            raise MtsError("unavailable", "the answer was lost")
        return result

    monkeypatch.setattr(importing, "publish_frames", fails)
    with pytest.raises(MtsError):
        client.import_subject(tmp_path, f"{subject}-copy")
    done = client.import_subject(tmp_path, f"{subject}-copy")
    assert (done.messages, done.skipped) == (19, 21)
    assert [m.data for m in client.read(f"{subject}-copy")] == [m.data for m in client.read(subject)]


def test_a_killed_import_goes_on(live: Live, client: Client, subject: str, tmp_path: Path) -> None:
    for n in range(20):
        client.publish_batch(subject, [Item(f"{n} {i}") for i in range(300)])
    client.export_subject(subject, tmp_path / "out")
    copy = f"{subject}-copy"
    command = [sys.executable, "-m", "minitoolstream.cli.main", "import", "out", "--subject", copy]
    environ = {**environ_of(live, tmp_path), "MTS_URL": live.url}
    process = subprocess.Popen(command, cwd=tmp_path, env=environ)
    eventually(lambda: client.latest(copy) > 0 or process.poll() is not None, pause=0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    client.import_subject(tmp_path / "out", copy)
    assert [m.data for m in client.read(copy)] == [m.data for m in client.read(subject)]


@pytest.mark.parametrize("suffix", ["jsonl", "bin"])
def test_a_damaged_export_is_refused(client: Client, subject: str, tmp_path: Path, suffix: str) -> None:
    client.publish_batch(subject, [Item("abc"), Item("def")])
    client.export_subject(subject, tmp_path)
    (file,) = tmp_path.glob(f"segment-*.{suffix}")
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"def", b"dEf") if suffix == "bin" else whole.splitlines()[0])
    with pytest.raises(MtsError) as damaged:
        client.import_subject(tmp_path, f"{subject}-copy")
    assert damaged.value.code == "checksum_mismatch"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("export.json", b"{"),
        ("complete.json", b"nothing of the kind"),
        ("segment-000001.jsonl", b"{no line\n"),
        ("segment-000001.jsonl", b""),
        ("segment-000001.bin", None),
    ],
)
def test_a_file_of_an_export_that_cannot_be_read_is_named(
    client: Client, subject: str, tmp_path: Path, name: str, content: bytes | None
) -> None:
    client.publish(subject, "abc")
    client.export_subject(subject, tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(MtsError, match=name) as damaged:
        client.import_subject(tmp_path, f"{subject}-copy")
    assert damaged.value.code == "checksum_mismatch"
    if name not in {"complete.json", "segment-000001.bin"}:
        (tmp_path / "complete.json").unlink()
        with pytest.raises(MtsError, match=name):
            client.export_subject(subject, tmp_path)


def test_an_export_leads_to_no_file_but_its_own(client: Client, subject: str, tmp_path: Path) -> None:
    secret, place = tmp_path / "secret", tmp_path / "out"
    secret.write_bytes(b"secret")
    client.publish(subject, "abc")
    client.export_subject(subject, place)
    (lines,) = place.glob("*.jsonl")
    line = json.loads(lines.read_text())
    digest = hashlib.sha256(b"secret").hexdigest()
    lines.write_text(json.dumps({**line, "file": "../secret", "size": 6, "sha256": digest}))
    with pytest.raises(MtsError, match=r"\.\./secret"):
        client.import_subject(place, f"{subject}-copy")
    assert client.latest(f"{subject}-copy") == 0


def test_a_complete_export_is_not_taken_for_one_of_newer_messages(client: Client, subject: str, tmp_path: Path) -> None:
    client.publish(subject, "abc")
    assert client.export_subject(subject, tmp_path) == client.export_subject(subject, tmp_path)
    client.publish(subject, "def")
    with pytest.raises(MtsError, match="newer"):
        client.export_subject(subject, tmp_path)


def test_an_export_does_not_go_on_with_another_subject_of_the_same_name(
    client: Client, subject: str, tmp_path: Path
) -> None:
    client.publish(subject, "abc")
    client.export_subject(subject, tmp_path)
    (tmp_path / "complete.json").unlink()
    client.subjects.delete(subject)
    client.publish(subject, "def")
    with pytest.raises(MtsError, match="made again"):
        client.export_subject(subject, tmp_path)


def test_a_full_disk_ends_an_export_with_an_error_and_the_next_run_goes_on(
    client: Client, subject: str, tmp_path: Path
) -> None:
    client.publish(subject, "abc")
    (tmp_path / "segment-000001.bin.part").symlink_to("/dev/full")
    with pytest.raises(MtsError, match="No space left") as full:
        client.export_subject(subject, tmp_path)
    assert full.value.code == "cannot_write"
    assert client.export_subject(subject, tmp_path).messages == 1


def test_places_that_will_not_do_are_refused(client: Client, subject: str, tmp_path: Path) -> None:
    client.publish(subject, "x")
    (tmp_path / "something").write_text("else")
    for call, code in (
        (lambda: client.export_subject(subject, tmp_path), "bad_request"),
        (lambda: client.export_subject(f"{subject}-none", tmp_path / "a"), "unknown_subject"),
        (lambda: client.import_subject(tmp_path / "nothing"), "not_found"),
    ):
        with pytest.raises(MtsError) as refused:
            call()
        assert refused.value.code == code
    client.export_subject(subject, tmp_path / "b")
    client.publish(f"{subject}-2", "y")
    with pytest.raises(MtsError) as other:
        client.export_subject(f"{subject}-2", tmp_path / "b")
    assert subject in other.value.message


def test_a_message_without_payload_is_told_and_left_out(
    live: Live, client: Client, subject: str, tmp_path: Path
) -> None:
    first = client.publish(subject, b"lost").sequence or 0
    client.publish(subject, b"there")
    live.minio.s3().delete_object(Bucket=live.minio.bucket, Key=client.get(first).object_name)
    client.fetch(subject, inline=True)  # the host meets it, and knows from now on
    assert client.export_subject(subject, tmp_path).missing == 1
    assert client.import_subject(tmp_path, f"{subject}-copy").missing == 1
    assert [m.data for m in client.read(f"{subject}-copy")] == [b"there"]
    client.delete_message(first)


def test_the_commands_use_a_bucket_too(live: Live, client: Client, subject: str, tmp_path: Path) -> None:
    fill(live, client, subject)
    place = f"s3://{live.minio.bucket}/exports/{subject}"
    done = mts(live, tmp_path, "export", subject, place)
    assert done.returncode == 0, done.stderr
    assert "exported: 57 messages" in done.stdout
    copy = json.loads(mts(live, tmp_path, "import", place, "--subject", f"{subject}-copy", "--json").stdout)
    assert copy == {"subject": f"{subject}-copy", "messages": 57, "skipped": 0, "missing": 0}
    assert seen(client, f"{subject}-copy") == seen(client, subject)
    assert mts(live, tmp_path, "export", subject, f"s3://{live.minio.bucket}/m/x").returncode == 2
    assert mts(live, tmp_path, "export", subject, "s3://no-such-bucket/x").returncode == 5
