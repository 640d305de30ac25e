"""Transactions over HTTP: publishes and acks that become visible together, or not at all (rule 20)."""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from minitoolstream.client import Client
from minitoolstream.domain.errors import MtsError
from tests.live import Answer, Live, eventually

FRAMES = "application/x-ndjson"


def begin(live: Live, **body: Any) -> str:
    answer = live.api("POST", "/v1/transactions", body)
    assert answer.status == 201, answer.body
    return str(answer.json["transaction_id"])


def end(live: Live, transaction_id: str, how: str = "commit") -> Answer:
    return live.api("POST", f"/v1/transactions/{transaction_id}/{how}")


def state(live: Live, transaction_id: str) -> Any:
    return live.api("GET", f"/v1/transactions/{transaction_id}").json


def publish(live: Live, transaction_id: str, subject: str, payload: bytes, **headers: str) -> Answer:
    return live.publish(subject, payload, x_mts_transaction_id=transaction_id, **headers)


def publish_batch(live: Live, transaction_id: str, subject: str, items: list[dict[str, Any]]) -> Answer:
    body = b"\n".join(json.dumps(item).encode() for item in items)
    headers = {"content-type": FRAMES, "x-mts-transaction-id": transaction_id}
    return live.api("POST", f"/v1/subjects/{subject}/messages/batch", body, headers)


def ack(live: Live, subject: str, durable: str, body: dict[str, Any]) -> Answer:
    return live.api("POST", f"/v1/subjects/{subject}/consumers/{durable}/ack", body)


def make_durable(live: Live, subject: str, durable: str, **body: Any) -> Any:
    answer = live.api("PUT", f"/v1/subjects/{subject}/consumers/{durable}", body)
    assert answer.status == 201, answer.body
    return answer.json


def join(live: Live, subject: str, durable: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What its acks say of a new session, and its partitions."""
    session = live.api("POST", f"/v1/subjects/{subject}/consumers/{durable}/sessions", {"session_id": "r"}).json
    return {"session_id": "r", "epoch": session["epoch"]}, session["partitions"]


def position(live: Live, subject: str, durable: str) -> int:
    return int(live.api("GET", f"/v1/subjects/{subject}/consumers/{durable}").json["last_sequence"])


def payloads(live: Live, subject: str) -> list[bytes]:
    return [base64.b64decode(message["data"]) for message in live.messages(subject, inline="true")]


def test_inline_batch_and_upload_become_visible_together(live: Live, subject: str) -> None:
    other = f"{subject}-other"
    transaction_id = begin(live)
    receipt = publish(live, transaction_id, subject, b"inline")
    assert (receipt.status, receipt.json["state"]) == (202, "stored")
    assert receipt.json["transaction_id"] == transaction_id
    results = publish_batch(live, transaction_id, subject, [{"data": "one"}, {"data": "two", "headers": {"h": "2"}}])
    assert [result["state"] for result in results.json["results"]] == ["stored", "stored"]
    ticket = live.ticket(other, 6, transaction_id=transaction_id)
    assert live.put(ticket, b"upload").status == 200
    assert live.receipt(ticket["upload_id"])["state"] == "stored"

    assert payloads(live, subject) == payloads(live, other) == []
    committed = end(live, transaction_id)

    assert committed.status == 200
    assert [receipt["state"] for receipt in committed.json["receipts"]] == ["committed"] * 3
    assert [receipt.get("count", 1) for receipt in committed.json["receipts"]] == [1, 2, 1]
    messages = live.messages(subject)
    assert payloads(live, subject) == [b"inline", b"one", b"two"]
    assert [message["headers"] for message in messages] == [{}, {}, {"h": "2"}]
    assert [message["offset"] for message in messages] == [0, 1, 2]
    assert [live.payload(message) for message in live.messages(other)] == [b"upload"]
    assert live.receipt(ticket["upload_id"])["sequence"] == committed.json["receipts"][2]["sequence"]
    assert end(live, transaction_id).json == committed.json
    assert state(live, transaction_id)["state"] == "committed"


def test_a_large_upload_in_parts_may_be_in_a_transaction(live: Live, subject: str) -> None:
    payload = bytes(5 << 20) + b"the end"
    transaction_id = begin(live)
    ticket = live.ticket(subject, len(payload), transaction_id=transaction_id)
    conflict = end(live, transaction_id)
    assert (conflict.status, conflict.code) == (409, "transaction_conflict")
    assert conflict.json["error"]["details"]["uploads"] == [ticket["upload_id"]]

    part_size = ticket["parts"]["part_size"]
    for part in ticket["parts"]["urls"]:
        first = (part["number"] - 1) * part_size
        live.put({"method": "PUT", "headers": {}, **part}, payload[first : first + part["size"]])
    completed = live.api("POST", f"/v1/uploads/{ticket['upload_id']}/complete")
    assert completed.json["state"] == "stored"
    assert live.messages(subject) == []

    assert end(live, transaction_id).status == 200
    (message,) = live.messages(subject)
    assert live.payload(message) == payload


class Watcher(threading.Thread):
    """Reads two subjects over and over, and keeps what it saw of each transaction."""

    def __init__(self, live: Live, first: str, second: str) -> None:
        super().__init__()
        self.live, self.first, self.second = live, first, second
        self.seen: list[tuple[Counter[str], Counter[str]]] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            self.seen.append((self.transactions_in(self.first), self.transactions_in(self.second)))

    def transactions_in(self, subject: str) -> Counter[str]:
        page = self.live.api("GET", f"/v1/subjects/{subject}/messages?limit=1000").json
        return Counter(message["headers"]["transaction"] for message in page["messages"])


@pytest.fixture
def watched(live: Live, subject: str) -> Iterator[Watcher]:
    watcher = Watcher(live, subject, f"{subject}-second")
    watcher.start()
    yield watcher
    watcher.over.set()
    watcher.join()


def test_a_reader_never_sees_a_part_of_one(live: Live, watched: Watcher) -> None:
    live.api("PUT", f"/v1/subjects/{watched.first}", {"partitions": 3})
    for number in range(12):
        transaction_id = begin(live)
        headers = {"x_mts_header_transaction": str(number)}
        for step in range(4):
            group = {"x_mts_group": f"g{step}"}
            assert publish(live, transaction_id, watched.first, b"x", **headers, **group).status == 202
            assert live.publish(watched.first, b"y", x_mts_header_transaction=f"none-{number}").status == 201
        assert publish(live, transaction_id, watched.second, b"x", **headers).status == 202
        assert end(live, transaction_id, "abort" if number % 4 == 3 else "commit").status == 200
    eventually(lambda: len(watched.seen[-1][1]) == 9)
    watched.over.set()
    watched.join()

    for first, second in watched.seen:
        whole = {number: count for number, count in first.items() if not number.startswith("none")}
        assert set(whole.values()) <= {4}
        assert set(whole) <= set(second), "the second subject was read later"
        assert not {"3", "7", "11"} & (set(whole) | set(second))


def test_offsets_of_a_transaction_are_consecutive_in_each_partition(live: Live, subject: str) -> None:
    live.api("PUT", f"/v1/subjects/{subject}", {"partitions": 4})
    transaction_id = begin(live)
    for number in range(20):
        assert publish(live, transaction_id, subject, b"in", x_mts_group=str(number)).status == 202
        assert live.publish(subject, b"out", x_mts_group=str(number)).status == 201
    receipts = end(live, transaction_id).json["receipts"]

    by_partition: dict[int, list[int]] = {}
    for receipt in receipts:
        by_partition.setdefault(receipt["partition"], []).append(receipt["offset"])
    assert len(by_partition) > 1
    for offsets in by_partition.values():
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


def test_acks_of_several_durables_count_with_the_commit(live: Live, subject: str) -> None:
    last = [live.publish(subject, b"x").json["sequence"] for _ in range(3)][-1]
    ordered = make_durable(live, subject, "ordered")
    make_durable(live, subject, "shared", mode="shared")
    leased = live.api("POST", f"/v1/subjects/{subject}/consumers/shared/lease", {"limit": 2}).json
    sequences = [message["sequence"] for message in leased["messages"]]
    make_durable(live, subject, "session")
    session, (share,) = join(live, subject, "session")

    transaction_id = begin(live)
    named = {"transaction_id": transaction_id}
    partition = {"partition": 0, "fence": share["fence"], "sequence": last, "from": share["position"]}
    for durable, body in {
        "ordered": {"sequence": last, "from": ordered["last_sequence"]},
        "shared": {"lease_id": leased["lease_id"], "sequences": sequences},
        "session": {**session, "partitions": [partition]},
    }.items():
        answer = ack(live, subject, durable, {**body, **named})
        assert (answer.status, answer.json) == (200, named)
    assert position(live, subject, "ordered") == ordered["last_sequence"]
    assert end(live, transaction_id).json["receipts"] == []

    assert position(live, subject, "ordered") == last
    assert position(live, subject, "session") == last
    assert position(live, subject, "shared") == sequences[-1]


def test_of_two_who_processed_the_same_one_is_counted(live: Live, subject: str) -> None:
    last = live.publish(subject, b"x").json["sequence"]
    before = make_durable(live, subject, "d")["last_sequence"]
    both = [begin(live), begin(live)]
    for transaction_id in both:
        assert (
            ack(live, subject, "d", {"sequence": last, "from": before, "transaction_id": transaction_id}).status == 200
        )
        publish(live, transaction_id, f"{subject}-out", b"counted")

    assert end(live, both[0]).status == 200
    lost = end(live, both[1])
    assert (lost.status, lost.code) == (409, "transaction_conflict")
    assert lost.json["error"]["details"]["state"] == "aborted"
    assert payloads(live, f"{subject}-out") == [b"counted"]
    assert end(live, both[1]).code == "transaction_ended"
    assert state(live, both[1])["reason"] == "transaction_conflict"


def test_what_one_session_read_twice_is_counted_once(live: Live, subject: str) -> None:
    live.publish(subject, b"x")
    make_durable(live, subject, "d")
    session, _ = join(live, subject, "d")
    read = f"/v1/subjects/{subject}/subscribe?durable=d&session=r&epoch={session['epoch']}"
    ended = []
    for page in [live.api("GET", read).json for _ in range(2)]:
        transaction_id, (share,) = begin(live), page["partitions"]
        last = page["messages"][-1]["sequence"]
        partition = {"partition": 0, "fence": share["fence"], "sequence": last, "from": share["position"]}
        publish(live, transaction_id, f"{subject}-out", b"counted")
        body = {**session, "partitions": [partition], "transaction_id": transaction_id}
        acked = ack(live, subject, "d", body)
        ended.append(end(live, transaction_id).status if acked.status == 200 else acked.code)
    assert ended == [200, "transaction_conflict"]
    assert payloads(live, f"{subject}-out") == [b"counted"]


def test_a_commit_whose_answer_was_lost_is_not_counted_again_for_a_session(live: Live, subject: str) -> None:
    live.publish(subject, b"x")
    with (
        Client(live.url, token=live.token) as client,
        client.subscribe(subject, durable="d", session="w", ack="manual") as messages,
    ):
        delivery = next(iter(messages))

        def count(*, lose_answer: bool) -> None:
            with client.transaction() as tx:
                tx.publish(f"{subject}-out", "counted")
                tx.ack(delivery)
                if lose_answer:
                    assert end(live, tx.transaction_id).status == 200
                    raise ConnectionError

        with pytest.raises(ConnectionError):
            count(lose_answer=True)
        with pytest.raises(MtsError) as caught:
            count(lose_answer=False)
    assert caught.value.code == "transaction_conflict"
    assert payloads(live, f"{subject}-out") == [b"counted"]


def test_a_lost_lease_aborts_it(live: Live, subject: str) -> None:
    live.publish(subject, b"work")
    make_durable(live, subject, "q", mode="shared")
    lease = live.api("POST", f"/v1/subjects/{subject}/consumers/q/lease", {"limit": 1, "seconds": 30}).json
    sequences = [message["sequence"] for message in lease["messages"]]
    transaction_id = begin(live)
    body = {"lease_id": lease["lease_id"], "sequences": sequences, "transaction_id": transaction_id}
    assert ack(live, subject, "q", body).status == 200
    publish(live, transaction_id, f"{subject}-out", b"done")
    given_back = {"lease_id": lease["lease_id"], "sequences": sequences}
    live.api("POST", f"/v1/subjects/{subject}/consumers/q/nack", given_back)

    assert end(live, transaction_id).json["error"]["details"]["reason"] == "lease_lost"
    assert payloads(live, f"{subject}-out") == []
    assert ack(live, subject, "q", {**body, "transaction_id": begin(live)}).code == "lease_lost"


def test_a_producer_is_in_one_transaction_and_nowhere_else(live: Live, subject: str) -> None:
    named = {"x_mts_producer_id": "p"}
    transaction_id, other = begin(live), begin(live)
    assert publish(live, transaction_id, subject, b"two", **named, x_mts_seqno="2").status == 202
    assert publish(live, transaction_id, subject, b"one", **named, x_mts_seqno="1").status == 202
    assert publish(live, other, subject, b"no", **named, x_mts_seqno="3").code == "producer_in_transaction"
    outside = live.publish(subject, b"no", **named, x_mts_seqno="3")
    assert (outside.status, outside.code) == (409, "producer_in_transaction")
    assert end(live, transaction_id).status == 200

    assert payloads(live, subject) == [b"one", b"two"]
    assert live.publish(subject, b"two", **named, x_mts_seqno="2").json["duplicate"] is True
    assert live.publish(subject, b"three", **named, x_mts_seqno="3").status == 201


def test_a_new_session_of_a_producer_aborts_the_transaction_of_the_old(live: Live, subject: str) -> None:
    def start() -> str:
        body = {"producer_id": "p"}
        return str(live.api("POST", f"/v1/subjects/{subject}/producers", body).json["epoch"])

    transaction_id, epoch = begin(live), start()
    publish(live, transaction_id, subject, b"old", x_mts_producer_id="p", x_mts_seqno="1", x_mts_epoch=epoch)
    newer = start()

    assert end(live, transaction_id).json["error"]["details"]["reason"] == "producer_fenced"
    again = live.publish(subject, b"new", x_mts_producer_id="p", x_mts_seqno="1", x_mts_epoch=newer)
    assert again.status == 201
    assert payloads(live, subject) == [b"new"]


def test_a_publish_sent_again_with_its_key_is_stored_once(live: Live, subject: str) -> None:
    transaction_id = begin(live)
    first = publish(live, transaction_id, subject, b"x", idempotency_key="k")
    again = publish(live, transaction_id, subject, b"x", idempotency_key="k")
    assert first.json == again.json
    assert publish(live, transaction_id, subject, b"y", idempotency_key="k").status == 422
    (receipt,) = end(live, transaction_id).json["receipts"]
    assert live.publish(subject, b"x", idempotency_key="k").json["sequence"] == receipt["sequence"]


def test_more_than_a_thousand_rows_are_refused_and_change_nothing(live: Live, subject: str) -> None:
    def items(first: int, count: int) -> list[dict[str, Any]]:
        return [{"data": "x", "producer_id": "p", "seqno": first + step} for step in range(count)]

    transaction_id = begin(live)
    assert publish_batch(live, transaction_id, subject, items(1, 999)).status == 200
    refused = publish_batch(live, transaction_id, subject, items(1000, 2))
    assert (refused.status, refused.code) == (413, "transaction_too_large")
    assert state(live, transaction_id)["rows"] == 999
    assert publish_batch(live, transaction_id, subject, items(1000, 1)).status == 200
    assert publish(live, transaction_id, subject, b"x").status == 413
    receipts = end(live, transaction_id).json["receipts"]
    assert [receipt["offset"] for receipt in receipts] == list(range(1000))


def test_a_refused_publish_takes_no_other_of_its_transaction_with_it(live: Live, subject: str) -> None:
    """Many at once: what arrives together lies in one pack."""
    transaction_id = begin(live)
    assert publish(live, transaction_id, subject, b"first", idempotency_key="k").status == 202
    with ThreadPoolExecutor(16) as threads:
        put = partial(publish, live, transaction_id, subject)
        wrong = [threads.submit(put, b"other", idempotency_key="k") for _ in range(8)]
        right = [threads.submit(put, b"%d" % n) for n in range(60)]
    assert {one.result().code for one in wrong} == {"idempotency_conflict"}
    assert {one.result().status for one in right} == {202}
    assert end(live, transaction_id).status == 200
    assert sorted(payloads(live, subject)) == sorted([b"first", *(b"%d" % n for n in range(60))])


def test_a_batch_of_thousands_without_producers_is_one_row(live: Live, subject: str) -> None:
    transaction_id = begin(live)
    items = [{"data": f"{number}"} for number in range(5000)]
    assert publish_batch(live, transaction_id, subject, items).status == 200
    assert state(live, transaction_id)["rows"] == 1
    assert end(live, transaction_id).json["receipts"][0]["count"] == 5000
    assert len(live.messages(subject)) == 5000


def test_abort_is_repeatable_and_final(live: Live, subject: str) -> None:
    transaction_id = begin(live)
    receipt = publish(live, transaction_id, subject, b"x").json
    assert [end(live, transaction_id, "abort").json["state"] for _ in range(2)] == ["aborted", "aborted"]
    ended = end(live, transaction_id)
    assert (ended.status, ended.code) == (409, "transaction_ended")
    assert publish(live, transaction_id, subject, b"x").code == "transaction_ended"
    assert live.receipt(receipt["upload_id"])["state"] == "aborted"
    committed = begin(live)
    end(live, committed)
    assert end(live, committed, "abort").code == "transaction_ended"


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("", {"timeout": 0}, 400, "bad_request"),
        ("", {"timeout": 901}, 400, "bad_request"),
        ("", {"time": 1}, 400, "bad_request"),
        ("/nonsense/commit", {}, 400, "bad_request"),
        ("/01890a5d-ac96-774b-bcce-b302099a8057/commit", {}, 404, "unknown_transaction"),
        ("/01890a5d-ac96-774b-bcce-b302099a8057/abort", {}, 404, "unknown_transaction"),
    ],
)
def test_bad_requests_get_a_clear_error(live: Live, path: str, body: Any, status: int, code: str) -> None:
    answer = live.api("POST", f"/v1/transactions{path}", body)
    assert (answer.status, answer.code) == (status, code)


def test_publishes_and_acks_in_unknown_ones_change_nothing(live: Live, subject: str) -> None:
    unknown = "01890a5d-ac96-774b-bcce-b302099a8057"
    assert publish(live, unknown, subject, b"x").code == "unknown_transaction"
    assert publish_batch(live, unknown, subject, [{"data": "x"}]).status == 404
    upload = live.api("POST", f"/v1/subjects/{subject}/uploads", {"size": 1, "transaction_id": unknown})
    assert upload.code == "unknown_transaction"
    assert live.api("GET", f"/v1/subjects/{subject}").code == "unknown_subject"
    last = live.publish(subject, b"x").json["sequence"]
    make_durable(live, subject, "d")
    assert ack(live, subject, "d", {"sequence": last, "from": 0, "transaction_id": unknown}).status == 404
    assert ack(live, subject, "d", {"sequence": last, "transaction_id": begin(live)}).status == 400
    assert ack(live, subject, "d", {"sequence": last, "from": 0}).status == 400
    session, (share,) = join(live, subject, "d")
    partition = {"partition": 0, "fence": share["fence"], "sequence": last}
    without = ack(live, subject, "d", {**session, "partitions": [partition], "transaction_id": begin(live)})
    assert (without.status, without.json["error"]["details"]["field"]) == (400, "from")


def test_one_bad_item_refuses_a_whole_batch(live: Live, subject: str) -> None:
    transaction_id = begin(live)
    refused = publish_batch(live, transaction_id, subject, [{"data": "good"}, {"data": "x", "seqno": 1}])
    assert (refused.status, refused.json["error"]["details"]["index"]) == (400, 1)
    assert state(live, transaction_id)["rows"] == 0


def test_the_sdk_publishes_and_acks_in_its_block(live: Live, subject: str) -> None:
    out = f"{subject}-out"
    with Client(live.url, token=live.token) as client:
        client.publish_batch(subject, [f"{number}" for number in range(10)])
        with client.subscribe(subject, durable="d", ack="manual", idle=5) as messages:
            for batch in messages.batches(max_messages=5):
                with client.transaction(timeout=20) as tx:
                    for delivery in batch:
                        assert tx.publish(out, delivery.data()).state == "stored"
                        tx.ack(delivery)
                if batch[-1].data() == b"9":
                    break
        assert [message.data for message in client.read(out)] == [f"{number}".encode() for number in range(10)]
        with pytest.raises(ValueError, match="stop"):
            publish_and_fail(client, out)
        with pytest.raises(MtsError) as raised:
            publish_and_abort(live, client, out)
        assert raised.value.code == "transaction_ended"
        assert len(list(client.read(out))) == 10


def publish_and_fail(client: Client, subject: str) -> None:
    with client.transaction() as tx:
        tx.publish(subject, b"never")
        raise ValueError("stop")


def publish_and_abort(live: Live, client: Client, subject: str) -> None:
    with client.transaction() as tx:
        tx.publish_batch(subject, ["never"])
        end(live, tx.transaction_id, "abort")


def test_an_announcement_sent_again_with_its_key_does_not_hold_up_the_commit(live: Live, subject: str) -> None:
    transaction_id, path = begin(live), f"/v1/subjects/{subject}/uploads"
    body, key = {"size": 3, "transaction_id": transaction_id}, {"idempotency-key": "k"}
    ticket, again = (live.api("POST", path, body, key).json for _ in range(2))
    assert ticket["upload_id"] == again["upload_id"]
    assert live.put(again, b"abc").status == 200
    assert live.receipt(ticket["upload_id"])["state"] == "stored"
    assert live.api("POST", path, body, key).json["state"] == "stored"
    assert end(live, transaction_id).json["state"] == "committed"
    assert payloads(live, subject) == [b"abc"]


def test_an_announcement_has_a_key_only_where_it_is_needed(live: Live, subject: str) -> None:
    transaction_id, path, key = begin(live), f"/v1/subjects/{subject}/uploads", {"idempotency-key": "k"}
    alone = {"size": 1, "transaction_id": transaction_id}
    for body in ({"size": 1}, {**alone, "producer_id": "p", "seqno": 1}, {"uploads": [alone]}):
        assert live.api("POST", path, body, key).code == "bad_request"
    assert live.api("POST", path, alone, {"idempotency-key": "x" * 300}).code == "bad_request"
    assert live.api("POST", path, alone, key).status == 201
    assert live.api("POST", path, {**alone, "size": 2}, key).code == "upload_conflict"
