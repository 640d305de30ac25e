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
from minitoolstream.services.adopt_orphans import adopt_orphans, discard_orphans
from minitoolstream.services.core import Core
from minitoolstream.stack.processes import start
from tests.faults.audit import names_in_bucket, objects_in_bucket, status
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
from tests.faults.recovery_drill import (
    SUBJECT,
    check_restored,
    make_history,
    picture,
    publish,
    publish_named,
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
