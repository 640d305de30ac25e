"""Partitions through the real servers: who goes where, order in each lane, packs that spread over several (rule 16)."""

from __future__ import annotations

import base64
import json
import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from zlib import crc32

from tests.faults.readers import Sharers
from tests.live import Live, eventually

FRAMES = {"content-type": "application/vnd.mts.frames"}


def batch(live: Live, subject: str, items: Iterable[tuple[dict[str, Any], bytes]]) -> list[Any]:
    fields = (field for meta, data in items for field in (json.dumps(meta).encode(), data))
    body = b"".join(struct.pack(">I", len(field)) + field for field in fields)
    answer = live.api("POST", f"/v1/subjects/{subject}/messages/batch", body, FRAMES)
    assert answer.status == 200, answer.body
    return list(answer.json["results"])


def lanes_of(messages: Sequence[Any]) -> dict[int, list[Any]]:
    """By partition, in the order of their sequences; offsets must be dense in each."""
    lanes: dict[int, list[Any]] = defaultdict(list)
    for message in messages:
        lanes[message["partition"]].append(message)
    for lane in lanes.values():
        assert [message["offset"] for message in lane] == list(range(len(lane)))
    return lanes


def payload_of(message: Any) -> bytes:
    return base64.b64decode(message["data"])


def make(live: Live, subject: str, partitions: int) -> list[Any]:
    answer = live.api("PUT", f"/v1/subjects/{subject}", {"partitions": partitions})
    assert answer.status in {200, 201}, answer.body
    return list(answer.json["partitions"])


def partition_of(group: str, partitions: Sequence[Any]) -> int:
    place = crc32(group.encode())
    return next(int(lane["partition"]) for lane in partitions if lane["hash_from"] <= place < lane["hash_to"])


def test_a_group_goes_to_the_partition_of_its_hash_by_every_way(live: Live, subject: str) -> None:
    partitions = make(live, subject, 4)
    for group in ("order-1", "order-2", "grüße"):
        expected = partition_of(group, partitions)
        ticket = live.ticket(subject, 1, group=group)
        live.put(ticket, b"t")
        raw = group.encode().decode("latin-1")
        inline = live.publish(subject, b"i", x_mts_group=raw).json
        (framed,) = batch(live, subject, [({"group": group}, b"b")])
        places = [live.receipt(ticket["upload_id"])["partition"], inline["partition"], framed["partition"]]
        assert places == [expected] * 3


def test_every_message_of_a_pack_is_answered_with_its_own_place(live: Live, subject: str) -> None:
    make(live, subject, 4)
    for _ in range(3):
        items = [({"group": f"g{number % 11}"} if number % 3 else {}, b"%d" % number) for number in range(200)]
        results = batch(live, subject, items)
        for (_, data), result in zip(items, results, strict=True):
            found = live.api("GET", f"/v1/messages/{result['sequence']}?inline=true").json
            assert (found["partition"], found["offset"]) == (result["partition"], result["offset"])
            assert payload_of(found) == data
    lanes = lanes_of(live.messages(subject))
    assert set(lanes) == {0, 1, 2, 3}
    assert sum(map(len, lanes.values())) == 600


def test_the_messages_of_a_group_keep_their_order_in_a_pack(live: Live, subject: str) -> None:
    make(live, subject, 3)
    for start in range(0, 300, 100):
        batch(live, subject, [({"group": f"g{n % 7}"}, f"{n % 7}:{n}".encode()) for n in range(start, start + 100)])
    seen: dict[bytes, list[int]] = defaultdict(list)
    for message in live.messages(subject, inline="true"):
        group, number = payload_of(message).split(b":")
        seen[group].append(int(number))
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert sum(map(len, seen.values())) == 300


def test_a_pack_becomes_one_extent_a_partition_once_the_routes_are_known(live: Live, subject: str) -> None:
    make(live, subject, 4)
    items = [({"group": f"g{number}"}, b"x") for number in range(100)]

    def extents_of_a_batch() -> int:
        first = min(int(result["sequence"]) for result in batch(live, subject, items))
        page = live.api("GET", f"/v1/subjects/{subject}/messages?view=extents&start={first}&limit=1000").json
        return len(page["extents"])

    eventually(lambda: extents_of_a_batch() == 4)


def test_a_producer_and_group_are_bound_to_a_partition_in_turn(live: Live, subject: str) -> None:
    make(live, subject, 3)
    bound: dict[tuple[str, str | None], set[int]] = defaultdict(set)
    for seqno in range(1, 4):
        for producer in ("p", "q", "r"):
            result = live.publish(subject, b"x", x_mts_producer_id=producer, x_mts_seqno=str(seqno)).json
            bound[producer, None].add(result["partition"])
    for group in ("a", "b", "a"):
        seqno += 1
        named = {"x_mts_producer_id": "p", "x_mts_seqno": str(seqno), "x_mts_group": group}
        bound["p", group].add(live.publish(subject, b"x", **named).json["partition"])
    assert all(len(partitions) == 1 for partitions in bound.values())
    assert {min(bound[producer, None]) for producer in ("p", "q", "r")} == {0, 1, 2}
    lanes_of(live.messages(subject))


def test_the_groups_of_a_producer_mix_in_a_pack_without_losing_a_seqno(live: Live, subject: str) -> None:
    make(live, subject, 4)
    for start in range(1, 121, 40):
        items = []
        for seqno in range(start, start + 40):
            codec = "gzip" if seqno % 5 else "raw"
            meta = {"producer_id": "p", "seqno": seqno, "group": "abc"[seqno % 3], "codec": codec}
            items.append((meta, b"%d" % seqno))
        assert [result["state"] for result in batch(live, subject, items)] == ["committed"] * 40
        again = batch(live, subject, items)
        assert all(result["duplicate"] for result in again)
    numbers = [int(payload_of(message)) for message in live.messages(subject, inline="true")]
    assert numbers == list(range(1, 121))


def test_without_a_key_messages_spread_over_the_partitions(live: Live, subject: str) -> None:
    make(live, subject, 2)
    partitions = [live.publish(subject, b"x").json["partition"] for _ in range(6)]
    assert set(partitions) == {0, 1}


def test_added_partitions_take_keys_while_producers_stay(live: Live, subject: str) -> None:
    live.publish(subject, b"x", x_mts_producer_id="p", x_mts_seqno="1")
    before = make(live, subject, 2)
    after = make(live, subject, 4)
    assert live.publish(subject, b"x", x_mts_producer_id="p", x_mts_seqno="2").json["partition"] == 0
    moved = next(group for group in map(str, range(1000)) if partition_of(group, after) >= len(before))
    assert live.publish(subject, b"x", x_mts_group=moved).json["partition"] == partition_of(moved, after)


def test_a_group_that_is_too_long_or_empty_is_refused(live: Live, subject: str) -> None:
    path = f"/v1/subjects/{subject}/uploads"
    assert live.api("POST", path, {"size": 1, "group": "é" * 2048}).status == 201
    for group in ("", "x" * 2049):
        answer = live.api("POST", path, {"size": 1, "group": group})
        assert (answer.status, answer.json["error"]["details"]["field"]) == (400, "group")


def send_named(live: Live, subject: str, name: str, numbers: Sequence[int]) -> None:
    for number in numbers:
        answer = live.publish(subject, payload(name, number), x_mts_producer_id=name, x_mts_seqno=str(number))
        assert answer.status == 201, answer.body


def send_keyed(live: Live, subject: str, name: str, numbers: Sequence[int]) -> None:
    for number in numbers:
        assert live.publish(subject, payload(name, number), x_mts_group=name).status == 201


def send_batch(live: Live, subject: str, name: str, numbers: Sequence[int]) -> None:
    """Twice, as after a lost answer; the groups of one producer go to several lanes."""
    items = [({"producer_id": name, "seqno": n, "group": str(n % 3)}, payload(name, n)) for n in numbers]
    for duplicate in (False, True):
        results = batch(live, subject, items)
        assert [result.get("duplicate", False) for result in results] == [duplicate] * len(items)


def send_uploads(live: Live, subject: str, name: str, numbers: Sequence[int]) -> None:
    """Announced in order, stored in reverse."""
    tickets = [live.ticket(subject, 400, producer_id=name, seqno=number) for number in numbers]
    for ticket, number in reversed(list(zip(tickets, numbers, strict=True))):
        live.put(ticket, payload(name, number))
    for ticket in tickets:
        assert live.receipt(ticket["upload_id"])["state"] == "committed"


SENDERS = {"named": send_named, "keyed": send_keyed, "batch": send_batch, "uploads": send_uploads}


def payload(name: str, number: int) -> bytes:
    return f"{name}:{number}".encode().ljust(400)


def test_a_split_under_load_loses_nothing_doubles_nothing_and_keeps_every_order(live: Live, subject: str) -> None:
    settings = {"mode": "up", "max_partitions": 6, "write_speed": 1000, "utilization": 50, "stabilization": 1}
    live.api("PUT", f"/v1/subjects/{subject}", {"autopartitioning": settings})

    def active() -> int:
        return sum(lane["active"] for lane in live.api("GET", f"/v1/subjects/{subject}").json["partitions"])

    def produce(name: str) -> int:
        sent = 0
        while sent < 2000 and active() < 5:
            SENDERS[name](live, subject, name, range(sent + 1, sent + 6))
            sent += 5
        return sent

    readers = Sharers(live, subject, "readers", 3)
    with ThreadPoolExecutor(len(SENDERS)) as pool:
        running = {name: pool.submit(produce, name) for name in SENDERS}
        eventually(lambda: (live.reconcile(), active() > 1)[1], within=90)
        with readers:  # with a backlog of what has split, while more does
            eventually(lambda: (live.reconcile(), all(task.done() for task in running.values()))[1], within=90)
            readers.wait_until_done()
    sent = {name: task.result() for name, task in running.items()}

    about = live.api("GET", f"/v1/subjects/{subject}").json
    assert sum(lane["active"] for lane in about["partitions"]) >= 5
    messages = live.messages(subject, inline="true")
    lanes = lanes_of(messages)
    seen: dict[str, list[int]] = defaultdict(list)
    for message in messages:
        name, number = payload_of(message).decode().split(":")
        seen[name].append(int(number))
    assert seen == {name: list(range(1, count + 1)) for name, count in sent.items()}
    for lane in about["partitions"]:
        for child in lane.get("children", []):
            parents = [message["sequence"] for message in lanes[lane["partition"]]]
            children = [message["sequence"] for message in lanes.get(child, [])]
            assert not children or max(parents) <= lane["split_at"] < min(children)
            read = readers.begun.get(child, {}).get(lane["partition"], 0)
            assert not children or read >= max(parents), "a parent is read to its end before its children"
    names = {message["sequence"]: payload_of(message).decode().split(":") for message in messages}
    read_in_order: dict[str, list[int]] = defaultdict(list)
    for _, sequences in sorted(readers.steps.items()):
        for sequence in sequences:
            name, number = names[sequence]
            read_in_order[name].append(int(number))
    assert {name: sorted(numbers) for name, numbers in read_in_order.items()} == seen, "missed, or counted twice"
    assert read_in_order["keyed"] == seen["keyed"], "a key's messages are read in their order, across splits"
    assert read_in_order["named"] == seen["named"]
