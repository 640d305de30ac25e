"""Events in any form, order and number (promise 2, rules 6 and 8): the first commits, the rest change nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from minitoolstream.bootstrap import open_core
from minitoolstream.host.functions import load_functions
from tests.live import Answer, Live, send, start_live

EVENTS = Path(__file__).parent.parent / "events"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """The store's own events go nowhere: every event comes from the test."""
    stack = start_live(tmp_path_factory.mktemp("events"), webhook=False)
    yield stack
    stack.stop()


def sample(name: str) -> Any:
    return json.loads((EVENTS / f"{name}.json").read_text())


def record_of(ticket: Any, size: int, form: str = "minio-put") -> Any:
    """A sample's record, made to speak of this upload."""
    record = sample(form)["Records"][0]
    encoded = quote(ticket["object_name"], safe="" if form.startswith("minio") else "/")
    record["s3"]["object"] |= {"key": encoded, "size": size}
    return record


def deliver(live: Live, event: Any, token: str | None = None) -> Answer:
    body = event if isinstance(event, bytes) else json.dumps(event).encode()
    headers = {"authorization": f"Bearer {token or live.environ['MTS_WEBHOOK_TOKEN']}"}
    return send("POST", f"{live.url}/hooks/object-created", body, headers)


def stored(live: Live, subject: str, payload: bytes = b"hello", **more: Any) -> Any:
    """A ticket whose payload is in the bucket, unannounced."""
    ticket = live.ticket(subject, len(payload), **more)
    assert live.put(ticket, payload).status == 200
    return ticket


def rejected(live: Live) -> list[tuple[str, str]]:
    events = live.api("GET", "/v1/status").json["rejected_events"]
    return [(event["object_name"], event["reason"]) for event in events]


def test_a_duplicate_event_gets_the_first_answer(live: Live, subject: str) -> None:
    ticket = stored(live, subject)
    event = {"Records": [record_of(ticket, 5)]}

    with ThreadPoolExecutor(8) as executor:
        answers = list(executor.map(lambda _: deliver(live, event), range(16)))

    assert {answer.status for answer in answers} == {200}
    assert len(live.messages(subject)) == 1
    receipt = live.receipt(ticket["upload_id"], wait=0)
    assert receipt["sequence"] == live.messages(subject)[0]["sequence"]


def test_a_late_event_after_complete_changes_nothing(live: Live, subject: str) -> None:
    ticket = stored(live, subject)
    first = live.api("POST", f"/v1/uploads/{ticket['upload_id']}/complete").json

    assert deliver(live, {"Records": [record_of(ticket, 5)]}).json == {"committed": 1}
    live.reconcile()

    assert [message["sequence"] for message in live.messages(subject)] == [first["sequence"]]
    assert live.payload(live.messages(subject)[0]) == b"hello"


def test_all_records_of_an_event_are_handled(live: Live, subject: str) -> None:
    tickets = [stored(live, subject) for _ in range(3)]
    records = [record_of(ticket, 5, "s3-two-records") for ticket in tickets]

    assert deliver(live, {"Records": records}).json == {"committed": 3}
    assert len(live.messages(subject)) == 3


def test_one_bad_record_does_not_hold_up_the_others(live: Live, subject: str) -> None:
    first, second = stored(live, subject), stored(live, subject)
    records = [record_of(first, 5), {"s3": {"object": {}}}, None, 7, record_of(second, 5)]

    assert deliver(live, {"Records": records}).json == {"committed": 2}
    assert len(live.messages(subject)) == 2


def test_reordered_events_of_a_named_producer_become_visible_in_its_order(live: Live, subject: str) -> None:
    tickets = [stored(live, subject, str(seqno).encode(), producer_id="p", seqno=seqno) for seqno in range(1, 6)]

    for ticket in reversed(tickets):
        deliver(live, {"Records": [record_of(ticket, 1)]})

    assert [live.payload(message) for message in live.messages(subject)] == [b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize(
    "event", [b"", b"{", b"[]", b"7", b"null", b'"text"', b"\xff\xfe", b"{}", b'{"Records": 1}', b'{"Records": [[]]}']
)
def test_a_malformed_event_is_answered_and_recorded(live: Live, event: bytes) -> None:
    answer = deliver(live, event)

    assert answer.status == 200, "another status would only make a store send it again"
    assert rejected(live)[0][1].startswith("malformed")


def test_an_object_that_is_not_ours_is_recorded_and_left_alone(live: Live) -> None:
    store, bucket = live.minio.s3(), live.minio.bucket
    for name in ("backup/db.dump", "m/orders/readme.txt", "m/orders/1/not-an-upload", "m/../1/x"):
        record = record_of({"object_name": name}, 3)
        assert deliver(live, {"Records": [record]}).json == {"committed": 0}
        assert rejected(live)[0] == (name, "foreign_object")
    store.put_object(Bucket=bucket, Key="backup/db.dump", Body=b"abc")
    live.reconcile()
    assert store.head_object(Bucket=bucket, Key="backup/db.dump")["ContentLength"] == 3


def test_an_object_of_another_bucket_is_recorded(live: Live, subject: str) -> None:
    ticket = stored(live, subject)
    record = record_of(ticket, 5)
    record["s3"]["bucket"]["name"] = "somebody-elses"

    deliver(live, {"Records": [record]})

    assert rejected(live)[0] == (ticket["object_name"], "foreign_bucket")
    assert live.receipt(ticket["upload_id"], wait=0)["state"] == "open"


def test_an_object_under_another_key_with_the_id_of_an_open_upload_commits_nothing(live: Live, subject: str) -> None:
    ticket = live.ticket(subject, 5)
    elsewhere = f"m/{subject}.other/1/{ticket['upload_id']}"

    deliver(live, {"Records": [record_of({"object_name": elsewhere}, 5)]})

    assert live.receipt(ticket["upload_id"], wait=0)["state"] == "open"
    assert live.messages(subject) == []
    assert rejected(live)[0] == (elsewhere, "unknown_upload")


def test_an_event_of_an_upload_that_nobody_knows_is_recorded(live: Live) -> None:
    name = "m/orders/1/01a1e530-ce2f-73f0-bc31-3d045017bff1"
    assert deliver(live, sample("minio-put")).json == {"committed": 0}
    assert rejected(live)[0] == (name, "unknown_upload")


def test_a_deletion_is_no_creation(live: Live, subject: str) -> None:
    ticket = stored(live, subject)
    record = record_of(ticket, 5)
    record["eventName"] = "s3:ObjectRemoved:Delete"

    deliver(live, {"Records": [record]})

    assert live.messages(subject) == []
    assert rejected(live)[0] == (ticket["object_name"], "not_a_creation")


def test_a_size_that_does_not_fit_its_ticket_is_rejected_with_a_reason(live: Live, subject: str) -> None:
    ticket = live.ticket(subject, 5)
    live.minio.s3().put_object(Bucket=live.minio.bucket, Key=ticket["object_name"], Body=b"seven b")

    deliver(live, {"Records": [record_of(ticket, 7)]})

    receipt = live.receipt(ticket["upload_id"], wait=0)
    assert receipt["state"] == "rejected"
    assert "announced 5, stored 7" in receipt["reason"]
    assert rejected(live)[0][0] == ticket["object_name"]
    live.reconcile()
    listed = live.minio.s3().list_objects_v2(Bucket=live.minio.bucket, Prefix=ticket["object_name"])
    assert listed["KeyCount"] == 0


def test_an_empty_payload_comes_without_a_size(live: Live, subject: str) -> None:
    ticket = stored(live, subject, b"")
    record = record_of(ticket, 0, "minio-put-of-an-empty-object")
    del record["s3"]["object"]["size"]

    assert deliver(live, {"Records": [record]}).json == {"committed": 1}
    assert live.payload(live.messages(subject)[0]) == b""


def test_keys_are_unquoted_as_the_store_quotes_them(live: Live, subject: str) -> None:
    dotted = f"{subject}.a-b_c"
    ticket = stored(live, dotted)
    record = record_of(ticket, 5)
    record["s3"]["object"]["key"] = "".join(f"%{byte:02X}" for byte in ticket["object_name"].encode())

    assert deliver(live, {"Records": [record]}).json == {"committed": 1}


@pytest.mark.parametrize("token", ["wrong", "", "ü"])
def test_a_wrong_token_is_401_and_changes_nothing(live: Live, subject: str, token: str) -> None:
    ticket = stored(live, subject)
    body = json.dumps({"Records": [record_of(ticket, 5)]}).encode()
    headers = {"authorization": f"Bearer {token}"}

    answer = send("POST", f"{live.url}/hooks/object-created", body, headers)

    assert (answer.status, answer.code) == (401, "unauthorized")
    assert live.messages(subject) == []


def test_the_apis_token_does_not_open_the_webhook(live: Live) -> None:
    assert deliver(live, sample("minio-put"), live.token).status == 401


def test_the_test_event_of_s3_is_taken_in_silence(live: Live) -> None:
    before = rejected(live)
    assert deliver(live, sample("s3-test-event")).json == {"committed": 0}
    assert rejected(live) == before


async def test_events_inside_sqs_are_committed_and_only_failed_messages_come_again(live: Live, subject: str) -> None:
    tickets = [stored(live, subject), stored(live, subject)]
    event = sample("sqs-two-messages")
    for message, ticket in zip(event["Records"], tickets, strict=True):
        message["body"] = json.dumps({"Records": [record_of(ticket, 5, "s3-two-records")]})
    event["Records"][1]["body"] = "not json"
    handle = load_functions().handle_event
    core = await open_core(live.settings)
    try:
        assert await handle(core, event, "-") == {"batchItemFailures": []}, "what can never work is not sent again"
        assert await handle(core, sample("sqs-test-event"), "-") == {"batchItemFailures": []}
        again = await handle(core, {"Records": event["Records"][:1]}, "-")
    finally:
        await core.close()

    assert again == {"batchItemFailures": []}
    assert len(live.messages(subject)) == 1
    assert rejected(live)[0][1] == "malformed_event"


async def test_sqs_gets_back_what_failed_because_tarantool_was_down(live: Live, subject: str) -> None:
    ticket = stored(live, subject)
    event = sample("sqs-two-messages")
    event["Records"][0]["body"] = json.dumps({"Records": [record_of(ticket, 5, "s3-two-records")]})
    event["Records"][1]["body"] = json.dumps(sample("s3-test-event"))
    nowhere = live.settings.with_values(tarantool__address="127.0.0.1:1")
    core = await open_core(nowhere)
    try:
        answer = await load_functions().handle_event(core, event, "-")
    finally:
        await core.close()

    assert answer == {"batchItemFailures": [{"itemIdentifier": event["Records"][0]["messageId"]}]}


def test_a_url_used_again_after_an_abort_leaves_nothing(live: Live, subject: str) -> None:
    """The store answers 200 again once the key is deleted (rule 8): the event finds the ended upload."""
    ticket = live.ticket(subject, 3)
    live.api("DELETE", f"/v1/uploads/{ticket['upload_id']}")
    store = live.minio.s3()

    for payload in (b"one", b"two"):
        assert live.put(ticket, payload).status == 200
        deliver(live, {"Records": [record_of(ticket, 3)]})
        live.reconcile()
        listed = store.list_objects_v2(Bucket=live.minio.bucket, Prefix=ticket["object_name"])
        assert listed["KeyCount"] == 0

    assert live.messages(subject) == []
    assert live.receipt(ticket["upload_id"], wait=0)["state"] == "aborted"
