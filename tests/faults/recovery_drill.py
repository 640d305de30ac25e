"""What a drill of recovery publishes, and all that a reader can see of it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from tests.faults.audit import objects_in_bucket, objects_of_rows, status
from tests.faults.recovery import backup, write_journal
from tests.live import Live, eventually, start_live

SUBJECT = "orders"


def start_by_hand(folder: Path) -> Live:
    """A stack whose journal and backups are written when a test says so."""
    return start_live(
        folder, extra_env={"MTS_JOURNAL_INTERVAL": "5m", "MTS_BACKUP_INTERVAL": "0s", "MTS_SERVER_WORKERS": "1"}
    )


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
