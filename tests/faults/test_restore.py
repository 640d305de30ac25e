"""The drill (rules 28 to 30): publish, back up, publish more, lose Tarantool's disk, restore."""

from __future__ import annotations

import base64
import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.domain.ceiling import STEP
from minitoolstream.domain.errors import MtsError
from minitoolstream.services import delete_messages
from minitoolstream.services.adopt_orphans import adopt_orphans, discard_orphans
from minitoolstream.services.core import Core
from minitoolstream.services.write_journal import write_journal as write_round
from minitoolstream.stack.processes import start
from tests.faults.audit import names_in_bucket, objects_in_bucket, objects_of_rows, status
from tests.faults.recovery import (
    backup,
    data_folder,
    lose_disk,
    rebuild,
    replay,
    restore,
    start_hosts,
    with_core,
    write_journal,
)
from tests.fsck import assert_clean
from tests.live import Live, eventually, start_live

SUBJECT = "orders"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """A stack whose journal is written when a test says so."""
    live = start_live(
        tmp_path, extra_env={"MTS_JOURNAL_INTERVAL": "5m", "MTS_BACKUP_INTERVAL": "0s", "MTS_SERVER_WORKERS": "1"}
    )
    yield live
    live.stop()


def publish(live: Live, name: str, **headers: str) -> int:
    answer = live.publish(SUBJECT, f"payload of {name}".encode(), x_mts_header_name=name, **headers)
    assert answer.status in {200, 201}, answer.body
    return int(answer.json["sequence"])


def publish_named(live: Live, seqno: int) -> Any:
    return live.publish(SUBJECT, f"named {seqno}".encode(), x_mts_producer_id="till-7", x_mts_seqno=str(seqno))


def upload(live: Live, payload: bytes, **more: Any) -> int:
    """By a ticket: an object of its own."""
    ticket = live.ticket(SUBJECT, len(payload), **more)
    assert live.put(ticket, payload).status == 200
    receipt = live.receipt(ticket["upload_id"])
    assert receipt["state"] == "committed", receipt
    return int(receipt["sequence"])


def picture(live: Live, upto: int) -> dict[int, Any]:
    """All that a reader can see of messages up to a sequence."""
    found = {}
    for message in live.messages(SUBJECT, inline="true"):
        sequence = int(message["sequence"])
        if sequence <= upto:
            place = (message["partition"], message["offset"], message["headers"], message["content_type"])
            found[sequence] = (*place, base64.b64decode(message["data"]), message["create_at"])
    return found


def position(live: Live, durable: str) -> Any:
    consumer = live.api("GET", f"/v1/subjects/{SUBJECT}/consumers/{durable}").json
    return consumer["last_sequence"], consumer["lag"]


def settle(live: Live, besides: frozenset[str] = frozenset()) -> None:
    """Until the bucket holds what rows point at, nothing else. Uploads that ended stay as long as their URLs live."""

    def nothing_left() -> bool:
        live.reconcile()
        return not status(live)["trash"] and objects_in_bucket(live) - besides == objects_of_rows(live)

    eventually(nothing_left)


def make_history(live: Live) -> int:
    """Messages of all kinds, before and after a backup; answers the last sequence that is in the journal."""
    for number in range(5):
        publish(live, f"early-{number}")
    upload(live, b"a file", headers={"kind": "file"})
    assert publish_named(live, 1).status in {200, 201}
    consumers = f"/v1/subjects/{SUBJECT}/consumers"
    assert live.api("PUT", f"{consumers}/reports", {"mode": "ordered"}).status in {200, 201}
    assert live.api("PUT", f"{consumers}/reports", {"last_sequence": 3}).status == 200
    backup(live)
    for number in range(5):
        publish(live, f"late-{number}")
    assert publish_named(live, 2).status in {200, 201}
    last = upload(live, b"another file", producer_id="till-7", seqno=3)
    assert live.api("PUT", f"{consumers}/reports", {"last_sequence": 9}).status == 200
    assert write_journal(live)["complete"]
    return last


def check_restored(live: Live, before: dict[int, Any], last: int) -> None:
    assert picture(live, last) == before
    assert position(live, "reports")[0] == 9
    for seqno in (1, 2, 3):
        again = publish_named(live, seqno).json
        assert again["duplicate"] is True
        assert again["sequence"] in before


@pytest.mark.parametrize("way", [restore, rebuild])
def test_what_reached_the_journal_is_there_again_and_what_came_later_is_named(live: Live, way: Any) -> None:
    last = make_history(live)
    before = picture(live, last)
    lost = [publish(live, f"lost-{number}") for number in range(3)]
    lost.append(upload(live, b"a lost file"))
    lost.append(upload(live, b"a lost named file", producer_id="till-7", seqno=4))
    objects = objects_in_bucket(live)
    lose_disk(live)

    restored = way(live)

    assert restored.last_sequence == last
    assert set(restored.orphans) <= objects
    assert len(restored.orphans) == 5
    assert (restored.missing, restored.dropped, restored.damaged) == ([], [], [])
    start_hosts(live)
    check_restored(live, before, last)
    fresh = publish(live, "fresh")
    assert fresh > max(lost)
    assert fresh > restored.continues_behind >= STEP
    live.reconcile()
    assert objects <= objects_in_bucket(live), "something was deleted before the operator decided"

    adopted = with_core(live, adopt_orphans)

    assert (adopted.messages, adopted.left) == (5, [])
    payloads = [base64.b64decode(message["data"]) for message in live.messages(SUBJECT, inline="true")]
    for name in ("payload of lost-0", "payload of lost-1", "payload of lost-2", "a lost file", "a lost named file"):
        assert payloads.count(name.encode()) == 1
    assert publish_named(live, 4).json["duplicate"] is True
    settle(live)
    assert status(live)["recovery"] is None


@pytest.mark.parametrize("way", [restore, rebuild])
def test_a_message_whose_payload_is_gone_is_named(live: Live, way: Any) -> None:
    publish(live, "kept")
    lost = upload(live, b"a file that somebody deleted")
    backup(live)
    assert write_journal(live)["complete"]
    name = live.api("GET", f"/v1/messages/{lost}").json["object_name"]
    live.minio.s3().delete_object(Bucket=live.minio.bucket, Key=name)
    lose_disk(live)

    restored = way(live)

    told = {"missing": restored.missing, "dropped": restored.dropped}
    assert told == {"missing": [], "dropped": []} | {"missing" if way is restore else "dropped": [(lost, name)]}
    start_hosts(live)
    found = live.api("GET", f"/v1/messages/{lost}")
    if way is restore:
        assert found.json["payload_missing"] is True
    else:
        assert found.status == 404, "what has no payload anywhere is no message"
    assert next(message["sequence"] for message in live.messages(SUBJECT)) == lost - 1


def test_discarded_orphans_go_and_nothing_else(live: Live) -> None:
    last = make_history(live)
    before = picture(live, last)
    publish(live, "lost")
    ticket = live.ticket(SUBJECT, 3)
    lose_disk(live)
    restored = restore(live)
    start_hosts(live)

    discarded = with_core(live, discard_orphans)

    assert discarded.objects == len(restored.orphans) == 1
    assert live.put(ticket, b"abc").status == 200, "the store knows nothing of a restore"
    settle(live, besides=frozenset({ticket["object_name"]}))
    assert picture(live, last) == before


def test_a_restore_can_be_repeated(live: Live) -> None:
    last = make_history(live)
    before = picture(live, last)
    lose_disk(live)
    first = restore(live)
    start_hosts(live)
    publish(live, "between")
    write_journal(live)
    given = publish(live, "between and lost")
    lose_disk(live)

    second = restore(live)

    assert second.last_sequence > first.last_sequence
    assert second.continues_behind >= given
    start_hosts(live)
    check_restored(live, before, last)
    names = [message["headers"].get("name") for message in live.messages(SUBJECT)]
    assert names.count("between") == 1


def test_a_tarantool_that_is_older_than_its_bucket_takes_nothing(live: Live) -> None:
    publish(live, "first")
    write_journal(live)
    lose_disk(live)
    live.tarantool.start()
    host = live.hosts[0]
    host.process = start(host.launch)

    def refusal() -> Any:
        with contextlib.suppress(OSError):
            answer = live.api("GET", "/readyz", timeout=2)
            return answer.json["parts"].get("sequences") if answer.status == 503 else None

    assert "mts restore" in eventually(refusal)
    refused = live.publish(SUBJECT, b"second")
    assert (refused.status, refused.code) == (503, "unavailable")
    live.reconcile()
    assert len(names_in_bucket(live, "_mts/packs/")) == 2, "a pack was deleted that this Tarantool cannot know"
    assert status(live)["recovery"] == "needed"
    restored = replay(live, rebuild=True)
    assert len(restored.orphans) == 1
    eventually(host.ready)
    assert [message["headers"]["name"] for message in live.messages(SUBJECT)] == ["first"]


def test_a_damaged_segment_is_an_error_that_names_it(live: Live) -> None:
    last = make_history(live)
    segments = names_in_bucket(live, "_mts/journal/")
    s3 = live.minio.s3()
    content = s3.get_object(Bucket=live.minio.bucket, Key=segments[-1])["Body"].read()
    s3.put_object(Bucket=live.minio.bucket, Key=segments[-1], Body=content[:-1] + bytes([content[-1] ^ 1]))
    lose_disk(live)

    with pytest.raises(MtsError, match="damaged") as refused:
        restore(live)

    assert refused.value.code == "checksum_mismatch"
    assert segments[-1] in refused.value.message
    restored = replay(live, rebuild=False, skip_damaged=True)
    assert restored.damaged == [segments[-1]]
    assert restored.last_sequence < last
    assert restored.damaged_ranges[0][1] == last


def test_deleted_subjects_and_expired_messages_do_not_come_back(live: Live) -> None:
    make_history(live)
    before = objects_in_bucket(live)
    assert live.publish("doomed", b"x").status in {200, 201}
    doomed = objects_in_bucket(live) - before
    write_journal(live)
    assert live.api("DELETE", "/v1/subjects/doomed").status in {200, 202}
    write_journal(live)
    lose_disk(live)

    restored = restore(live)

    assert restored.orphans == [], "what was deleted before is known to be gone"
    start_hosts(live)
    assert live.api("GET", "/v1/subjects/doomed").status == 404
    assert with_core(live, adopt_orphans).messages == 0
    assert live.api("GET", "/v1/subjects/doomed").status == 404
    assert status(live)["trash"] == 1, "its payload goes a day later"
    assert objects_in_bucket(live) - doomed == objects_of_rows(live)


@pytest.mark.parametrize("way", [restore, rebuild])
def test_what_was_deleted_for_good_does_not_come_back_and_its_neighbours_do(live: Live, way: Any) -> None:
    lines = b"".join(b'{"data": "item %d"}\n' % number for number in range(4))
    kind = {"content-type": "application/x-ndjson"}
    answer = live.api("POST", f"/v1/subjects/{SUBJECT}/messages/batch", lines, kind)
    assert answer.status in {200, 201, 207}, answer.body
    other = upload(live, b"a secret file")
    sequences = [int(message["sequence"]) for message in live.messages(SUBJECT)][:4]
    backup(live)
    for sequence in (sequences[1], other):
        deleted = live.api("DELETE", f"/v1/messages/{sequence}?reason=law")
        assert (deleted.status, deleted.json["done"]) == (200, True), deleted.body
    before = picture(live, other)
    assert len(before) == 3
    lose_disk(live)

    restored = way(live)

    assert (restored.missing, restored.orphans) == ([], [])
    start_hosts(live)
    assert picture(live, other) == before
    with_core(live, adopt_orphans)
    settle(live)
    assert picture(live, other) == before


def test_a_deletion_that_only_its_record_tells_of_is_made_again(live: Live) -> None:
    sequence, kept = publish(live, "secret"), publish(live, "kept")
    backup(live)
    write_journal(live)

    async def begin(core: Core) -> None:
        deletion = await core.deletions.delete_message(sequence, "me", "law")
        await delete_messages._record(core, deletion)

    with_core(live, begin)
    lose_disk(live)

    restore(live)

    start_hosts(live)
    assert [int(message["sequence"]) for message in live.messages(SUBJECT)] == [kept]


def test_what_expired_meanwhile_is_gone_before_anybody_reads(live: Live) -> None:
    assert live.api("PUT", "/v1/subjects/brief", {"ttl": 1}).status in {200, 201}
    assert live.publish("brief", b"short").status in {200, 201}
    published = time.time()
    kept = publish(live, "kept")
    backup(live)
    lose_disk(live)
    eventually(lambda: time.time() > published + 2.5)

    restored = restore(live)

    assert restored.last_sequence == kept
    assert with_core(live, lambda core: core.metadata.status())["rows"] == 1
    start_hosts(live)
    assert live.messages("brief") == []


def test_an_upload_that_was_open_at_the_backup_and_committed_later_is_one_message(live: Live) -> None:
    ticket = live.ticket(SUBJECT, 5)
    backup(live)
    live.put(ticket, b"hello")
    sequence = int(live.receipt(ticket["upload_id"])["sequence"])
    write_journal(live)
    lose_disk(live)

    restored = restore(live)

    assert restored.orphans == []
    start_hosts(live)
    assert live.receipt(ticket["upload_id"], 0)["sequence"] == sequence
    with_core(live, adopt_orphans)
    live.reconcile()
    assert [int(message["sequence"]) for message in live.messages(SUBJECT)] == [sequence]
    settle(live)


def test_backups_and_the_journal_cause_no_events(live: Live) -> None:
    make_history(live)
    eventually(lambda: status(live)["rejected_events"] == [])
    live.reconcile()
    assert len(names_in_bucket(live, "_mts/journal/")) >= 2
    assert names_in_bucket(live, "_mts/backups/")
    assert data_folder(live).is_dir()


def test_a_tarantool_that_was_put_back_writes_no_journal_and_deletes_nothing(live: Live) -> None:
    """It may expire what stays longer by now, and its own state would stand behind what it does not know."""
    assert live.api("PUT", f"/v1/subjects/{SUBJECT}", {"ttl": 2}).status in {200, 201}
    sequence = publish(live, "kept")
    assert publish_named(live, 1).status in {200, 201}
    backup(live)
    for part in (*live.hosts, live.tarantool):
        part.stop()
    old = live.folder / "old"
    shutil.copytree(data_folder(live), old)
    live.tarantool.start()
    start_hosts(live)
    assert live.api("PUT", f"/v1/subjects/{SUBJECT}", {"ttl": 86_400}).status == 200
    assert publish_named(live, 2).status in {200, 201}
    write_journal(live)
    known = names_in_bucket(live, "_mts/journal/")
    lose_disk(live)
    shutil.rmtree(data_folder(live))
    old.rename(data_folder(live))
    live.tarantool.start()
    host = live.hosts[0]
    host.process = start(host.launch)
    eventually(lambda: with_core(live, lambda core: core.journal.position()).recovery == "needed")
    eventually(lambda: time.time() > live.messages(SUBJECT)[0]["create_at"] + 4)

    assert live.api("POST", "/v1/journal").code == "unavailable"
    with pytest.raises(MtsError, match="older than its bucket"):
        backup(live)
    assert live.api("POST", "/v1/sweep").status == 200
    live.reconcile()
    host.stop()

    assert names_in_bucket(live, "_mts/journal/") == known
    live.tarantool.stop()
    shutil.rmtree(data_folder(live))
    restored = restore(live)
    assert restored.missing == []
    start_hosts(live)
    assert picture(live, sequence)[sequence][4] == b"payload of kept"
    assert publish_named(live, 2).json["duplicate"] is True


def checkpoint(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a host does once a day: all that is beside the messages is written, and segments without any go."""
    monkeypatch.setattr("minitoolstream.services.write_journal._CHECKPOINT_EVERY_MS", 0)
    assert with_core(live, write_round).complete


@pytest.mark.parametrize("made_again", [False, True])
@pytest.mark.parametrize("way", [restore, rebuild])
def test_a_deleted_subject_stays_away_when_the_segment_that_told_is_gone(
    live: Live, way: Any, made_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(live, "kept")
    assert live.api("PUT", "/v1/subjects/doomed", {"partitions": 4}).status == 201
    for number in range(8):
        sent = live.publish("doomed", b"old", x_mts_group=f"g{number}")
        assert sent.status in {200, 201}, sent.body
    write_journal(live)
    backup(live)
    assert live.api("DELETE", "/v1/subjects/doomed").status in {200, 202}
    write_journal(live)
    if made_again:
        assert live.publish("doomed", b"new").status in {200, 201}
    checkpoint(live, monkeypatch)
    lose_disk(live)

    way(live)

    start_hosts(live)
    if made_again:
        assert live.api("GET", "/v1/subjects/doomed").json["messages"] == 1
        assert [message["partition"] for message in live.messages("doomed")] == [0]
    else:
        assert live.api("GET", "/v1/subjects/doomed").status == 404
    with_core(live, discard_orphans)
    assert_clean(live, live.folder)
    assert with_core(live, lambda core: core.metadata.status())["rows"] == 1 + made_again


def test_a_dead_letter_that_was_sent_back_is_not_there_again(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second", "third"):
        assert live.publish("orders.dlq", name.encode()).status in {200, 201}
    second = int(live.messages("orders.dlq")[1]["sequence"])
    write_journal(live)
    sent_back = live.api("POST", f"/v1/subjects/{SUBJECT}/dead-letters/replay", {"sequences": [second]})
    assert sent_back.json["replayed"] == 1, sent_back.body
    live.tarantool.kill()
    live.tarantool.start()
    eventually(live.hosts[0].ready)
    write_journal(live)
    checkpoint(live, monkeypatch)
    lose_disk(live)

    rebuild(live)

    start_hosts(live)
    payloads = [base64.b64decode(message["data"]) for message in live.messages("orders.dlq", inline="true")]
    assert payloads == [b"first", b"third"]
    assert len(live.messages(SUBJECT)) == 1


def test_an_orphan_becomes_a_message_once_and_stays_one_whoever_else_decides(live: Live) -> None:
    """As when two operators decide at once: each has compared the bucket with the rows before."""
    publish(live, "kept")
    backup(live)
    sequence = upload(live, b"a lost file")
    lose_disk(live)
    (name,) = restore(live).orphans
    start_hosts(live)
    about = {"subject": SUBJECT, "size": 11, "content_type": "text/plain", "headers": {}, "producer_id": None}

    async def decide(core: Core) -> list[int]:
        adopted = [await core.restores.adopt_payload(name, about) for _ in range(2)]
        return [*adopted, await core.restores.discard_orphans([name])]

    assert with_core(live, decide) == [1, 0, 0]
    with_core(live, adopt_orphans)
    live.reconcile()
    found = live.messages(SUBJECT)
    assert [live.payload(message) for message in found] == [b"payload of kept", b"a lost file"]
    assert int(found[-1]["sequence"]) > sequence
    assert_clean(live, live.folder)
    deleted = live.api("DELETE", f"/v1/messages/{found[-1]['sequence']}")
    assert deleted.json["done"], deleted.body
    settle(live)


def test_without_a_damaged_checkpoint_what_the_backup_knows_counts(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    last = make_history(live)
    before = picture(live, last)
    monkeypatch.setattr("minitoolstream.services.write_journal.prune_journal", nothing_to_prune)
    checkpoint(live, monkeypatch)
    damaged = names_in_bucket(live, "_mts/journal/")[-1]
    live.minio.s3().put_object(Bucket=live.minio.bucket, Key=damaged, Body=b"something else")
    lose_disk(live)

    restored = restore(live, skip_damaged=True)

    assert restored.damaged == [damaged]
    start_hosts(live)
    check_restored(live, before, last)


async def nothing_to_prune(core: Core) -> int:
    return 0


def test_bytes_of_a_deleted_message_go_also_when_the_disk_was_lost_before_they_could(live: Live) -> None:
    """Rows that the journal has brought up to date name the deleted message no more; only its record does."""
    lines = b"".join(b'{"data": "item %d"}\n' % number for number in range(4))
    kind = {"content-type": "application/x-ndjson"}
    assert live.api("POST", f"/v1/subjects/{SUBJECT}/messages/batch", lines, kind).status in {200, 201, 207}
    messages = live.messages(SUBJECT)
    sequence, pack = int(messages[1]["sequence"]), messages[1]["object_name"]
    backup(live)

    async def begin(core: Core) -> None:
        deletion = await core.deletions.delete_message(sequence, "me", "law")
        await delete_messages._record(core, deletion)

    with_core(live, begin)
    write_journal(live)
    lose_disk(live)

    restore(live)

    start_hosts(live)
    with_core(live, discard_orphans)
    eventually(lambda: live.reconcile() and pack not in objects_in_bucket(live))
    assert [live.payload(message) for message in live.messages(SUBJECT)] == [b"item 0", b"item 2", b"item 3"]
    settle(live)


def test_a_restored_message_without_payload_is_told_to_its_readers(live: Live) -> None:
    sequence = upload(live, b"a file")
    (name,) = objects_in_bucket(live)
    backup(live)
    lose_disk(live)
    live.minio.s3().delete_object(Bucket=live.minio.bucket, Key=name)

    restored = restore(live)

    assert restored.missing == [(sequence, name)]
    start_hosts(live)
    (message,) = live.messages(SUBJECT)
    assert message["payload_missing"] is True
