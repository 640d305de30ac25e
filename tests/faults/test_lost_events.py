"""Notifications that never come, or come late: the receipt tells the truth, `complete` and the reconciler commit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.audit import settle
from tests.faults.test_kill import kill_host
from tests.live import Live, eventually, send, start_live


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


def test_a_put_while_the_host_is_down_is_stored_and_committed_later(tmp_path: Path) -> None:
    live = start_live(tmp_path, extra_env={"MTS_UPLOADS_FIRST_LOOK": "1s"})
    asked, unasked = live.ticket("s", 5), live.ticket("s", 7)
    kill_host(live.hosts[0])

    assert live.put(asked, b"asked").status == 200
    assert live.put(unasked, b"unasked").status == 200
    live.hosts[0].start()

    assert live.receipt(asked["upload_id"], wait=0)["state"] == "open"
    assert live.api("POST", f"/v1/uploads/{asked['upload_id']}/complete").json["state"] == "committed"
    assert reconciled(live, unasked["upload_id"]) == "committed"
    assert sorted(live.payload(message) for message in live.messages("s")) == [b"asked", b"unasked"]
    live.stop()


def test_a_put_while_tarantool_is_down_is_answered_and_committed_later(tmp_path: Path) -> None:
    live = start_live(tmp_path, extra_env={"MTS_UPLOADS_FIRST_LOOK": "1s"})
    ticket = live.ticket("s", 4)
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(live.receipt, ticket["upload_id"], 25)
        eventually(lambda: "changes_wait" in send("GET", f"{live.url}/metrics").body.decode())
        live.tarantool.kill()

        assert live.put(ticket, b"late").status == 200, "the store waits for the webhook, which must not hang"
        live.tarantool.start()

        assert reconciled(live, ticket["upload_id"]) == "committed"
        assert waiting.result()["state"] == "committed", "who waited through the restart is woken"
    assert [live.payload(message) for message in live.messages("s")] == [b"late"]
    live.stop()


def test_nothing_is_left_over_when_every_event_was_lost(deaf: Live) -> None:
    for name in ("x", "y"):
        ticket = deaf.ticket("left-over", 1)
        deaf.put(ticket, name.encode())
    deaf.ticket("left-over", 1)

    settle(deaf)
    assert len(deaf.messages("left-over")) == 2
