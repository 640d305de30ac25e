"""What was deleted or had expired before Tarantool's disk was lost does not come back (rules 28 to 30)."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.services import delete_messages
from minitoolstream.services.adopt_orphans import adopt_orphans, discard_orphans
from minitoolstream.services.core import Core
from minitoolstream.services.write_journal import write_journal as write_round
from tests.faults.audit import names_in_bucket, objects_in_bucket, objects_of_rows, status
from tests.faults.recovery import (
    backup,
    lose_disk,
    rebuild,
    restore,
    start_hosts,
    with_core,
    write_journal,
)
from tests.faults.recovery_drill import (
    SUBJECT,
    check_restored,
    make_history,
    picture,
    publish,
    settle,
    start_by_hand,
    upload,
)
from tests.fsck import assert_clean
from tests.live import Live, eventually


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    live = start_by_hand(tmp_path)
    yield live
    live.stop()


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
