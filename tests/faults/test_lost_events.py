"""Notifications that never come, or come late: the receipt tells the truth, `complete` and the reconciler commit."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.audit import objects_in_bucket
from tests.faults.test_kill import kill_host
from tests.live import Live, eventually, send, start_live


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A stack with events, of this module's own: its parts are killed and come back. Calls to Tarantool may take
    longer than a test waits, so that nothing but the webhook's own limit ends an event that hangs."""
    patient = {"MTS_UPLOADS_FIRST_LOOK": "1s", "MTS_TARANTOOL_TIMEOUT": "60s"}
    stack = start_live(tmp_path_factory.mktemp("mortal"), extra_env=patient)
    yield stack
    stack.stop()


def reconciled(live: Live, upload_id: str) -> str:
    """The upload's state when the reconciler has ended it."""

    def ended() -> str | None:
        live.reconcile()
        answer = live.api("GET", f"/v1/uploads/{upload_id}")
        if answer.status == 404:
            return "gone"
        return None if answer.json["state"] in {"open", "stored"} else str(answer.json["state"])

    return eventually(ended) or ""


def test_without_its_event_an_upload_stays_open_until_complete_commits_it(deaf: Live, subject: str) -> None:
    ticket = deaf.ticket(subject, 4)
    assert deaf.put(ticket, b"lost").status == 200
    upload = f"/v1/uploads/{ticket['upload_id']}"

    assert deaf.receipt(ticket["upload_id"], wait=0.2)["state"] == "open"
    assert deaf.messages(subject) == []
    first = deaf.api("POST", f"{upload}/complete")
    again = deaf.api("POST", f"{upload}/complete")

    assert (first.status, first.json["state"]) == (200, "committed")
    assert again.json["sequence"] == first.json["sequence"]
    assert [deaf.payload(message) for message in deaf.messages(subject)] == [b"lost"]


def test_the_reconciler_commits_what_nobody_asks_for(deaf: Live, subject: str) -> None:
    tickets = [deaf.ticket(subject, 1) for _ in range(3)]
    for ticket in tickets:
        deaf.put(ticket, b"x")

    eventually(lambda: deaf.reconcile() and len(deaf.messages(subject)) == 3)

    for ticket in tickets:
        assert deaf.api("POST", f"/v1/uploads/{ticket['upload_id']}/complete").status in {200, 404}
    assert len(deaf.messages(subject)) == 3


def test_a_payload_in_parts_whose_event_is_lost_is_committed_by_the_reconciler(deaf: Live, subject: str) -> None:
    payload = bytes(6 * 2**20)
    ticket = deaf.ticket(subject, len(payload))
    size = ticket["parts"]["part_size"]
    etags = []
    for part in ticket["parts"]["urls"]:
        chunk = payload[(part["number"] - 1) * size :][: part["size"]]
        etags.append({"PartNumber": part["number"], "ETag": send("PUT", part["url"], chunk).headers["etag"]})
    # As if the host had died between making the object and committing it.
    store, key = deaf.minio.s3(), {"Bucket": deaf.minio.bucket, "Key": ticket["object_name"]}
    multipart = store.list_multipart_uploads(Bucket=deaf.minio.bucket, Prefix=ticket["object_name"])["Uploads"][0]
    store.complete_multipart_upload(**key, UploadId=multipart["UploadId"], MultipartUpload={"Parts": etags})

    eventually(lambda: deaf.reconcile() and deaf.messages(subject))

    (message,) = deaf.messages(subject)
    assert deaf.payload(message) == payload


def test_a_put_while_the_host_is_down_is_stored_and_committed_later(mortal: Live, subject: str) -> None:
    asked, unasked = mortal.ticket(subject, 5), mortal.ticket(subject, 7)
    kill_host(mortal.hosts[0])

    assert mortal.put(asked, b"asked").status == 200
    assert mortal.put(unasked, b"unasked").status == 200
    mortal.hosts[0].start()

    assert mortal.receipt(asked["upload_id"], wait=0)["state"] == "open"
    assert mortal.api("POST", f"/v1/uploads/{asked['upload_id']}/complete").json["state"] == "committed"
    assert reconciled(mortal, unasked["upload_id"]) == "committed"
    assert sorted(mortal.payload(message) for message in mortal.messages(subject)) == [b"asked", b"unasked"]


def test_a_put_while_tarantool_hangs_is_answered_and_its_event_commits_afterwards(mortal: Live, subject: str) -> None:
    """The store would hold the producer's PUT for a minute; the webhook does not let it."""
    ticket = mortal.ticket(subject, 4)
    os.kill(mortal.tarantool.pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(1) as executor:
            stored = executor.submit(mortal.put, ticket, b"slow").result(timeout=30)
    finally:
        os.kill(mortal.tarantool.pid, signal.SIGCONT)

    assert stored.status == 200
    assert mortal.receipt(ticket["upload_id"])["state"] == "committed", "without the reconciler"
    assert [mortal.payload(message) for message in mortal.messages(subject)] == [b"slow"]


def test_a_put_while_tarantool_is_down_is_answered_and_committed_later(mortal: Live, subject: str) -> None:
    live, ticket = mortal, mortal.ticket(subject, 4)
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(live.receipt, ticket["upload_id"], 25)
        eventually(lambda: "changes_wait" in send("GET", f"{live.url}/metrics").body.decode())
        live.tarantool.kill()

        assert live.put(ticket, b"late").status == 200, "the store waits for the webhook, which must not hang"
        live.tarantool.start()

        assert reconciled(live, ticket["upload_id"]) == "committed"
        assert waiting.result()["state"] == "committed", "who waited through the restart is woken"
    assert [live.payload(message) for message in live.messages(subject)] == [b"late"]


def test_nothing_is_left_over_when_every_event_was_lost(deaf: Live, subject: str) -> None:
    tickets = [deaf.ticket(subject, 1) for _ in range(3)]
    for ticket in tickets[:2]:
        deaf.put(ticket, b"x")

    eventually(lambda: deaf.reconcile() and not any(_is_known(deaf, ticket["upload_id"]) for ticket in tickets))

    named = {ticket["object_name"] for ticket in tickets}
    assert {message["object_name"] for message in deaf.messages(subject)} == named & objects_in_bucket(deaf)
    assert len(deaf.messages(subject)) == 2


def _is_known(live: Live, upload_id: str) -> bool:
    return live.api("GET", f"/v1/uploads/{upload_id}").status != 404
