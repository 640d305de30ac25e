"""Subjects and their settings through the real servers: made, described, listed, changed, deleted; codecs, quotas."""

from __future__ import annotations

import gzip
import json
import struct
from itertools import pairwise
from typing import Any

import pytest

from tests.live import Answer, Live, eventually, send

JSON_MESSAGE = {"content-type": "application/vnd.mts.message+json"}


def put(live: Live, subject: str, **settings: Any) -> Answer:
    return live.api("PUT", f"/v1/subjects/{subject}", settings)


def described(live: Live, subject: str) -> Any:
    answer = live.api("GET", f"/v1/subjects/{subject}")
    assert answer.status == 200, answer.body
    return answer.json


def test_a_subject_is_made_once_and_described(live: Live, subject: str) -> None:
    made = put(live, subject, partitions=2, codecs=["gzip", "raw"], quota={"messages": 10})
    again = put(live, subject)

    assert (made.status, again.status) == (201, 200)
    assert again.json == described(live, subject)
    assert made.json["settings"]["quota"] == {"messages": 10}
    assert sorted(made.json["settings"]["codecs"]) == ["gzip", "raw"]
    assert made.json["settings"]["autopartitioning"]["mode"] == "disabled"
    assert [(lane["partition"], lane["active"]) for lane in made.json["partitions"]] == [(0, True), (1, True)]
    assert (made.json["messages"], made.json["used"]) == (0, {"messages": 0, "bytes": 0})


def test_a_publish_makes_a_subject_with_one_partition(live: Live, subject: str) -> None:
    receipt = live.publish(subject, b"four").json

    about = described(live, subject)

    assert (about["messages"], about["bytes"], about["latest_sequence"]) == (1, 4, receipt["sequence"])
    (lane,) = about["partitions"]
    assert (lane["partition"], lane["next_offset"], lane["hash_from"], lane["hash_to"]) == (0, 1, 0, 2**32)


def test_settings_that_are_left_out_stay_and_null_is_the_default_again(live: Live, subject: str) -> None:
    put(live, subject, codecs=["zstd"], quota={"messages": 5, "bytes": 100})

    settings = put(live, subject, quota={"messages": None, "rate": 7}).json["settings"]
    assert (settings["codecs"], settings["quota"]) == (["zstd"], {"bytes": 100, "rate": 7})
    settings = put(live, subject, codecs=None, quota=None).json["settings"]
    assert (settings["codecs"], settings["quota"]) == (["raw", "gzip", "zstd"], {})


def test_partitions_are_added_by_hand_and_never_taken_away(live: Live, subject: str) -> None:
    put(live, subject, partitions=2)
    assert len(put(live, subject, partitions=5).json["partitions"]) == 5

    fewer = put(live, subject, partitions=4)

    assert (fewer.status, fewer.code, fewer.json["error"]["details"]["field"]) == (400, "bad_request", "partitions")
    spans = sorted((lane["hash_from"], lane["hash_to"]) for lane in described(live, subject)["partitions"])
    assert (spans[0][0], spans[-1][1]) == (0, 2**32)
    assert all(one[1] == other[0] for one, other in pairwise(spans))


def test_autopartitioning_can_be_paused_and_not_disabled(live: Live, subject: str) -> None:
    assert put(live, subject, autopartitioning={"mode": "up", "max_partitions": 8}).status == 201
    paused = put(live, subject, autopartitioning={"mode": "paused"})
    disabled = put(live, subject, autopartitioning={"mode": "disabled"})

    assert paused.json["settings"]["autopartitioning"]["max_partitions"] == 8
    assert (disabled.status, disabled.json["error"]["details"]["field"]) == (400, "autopartitioning.mode")
    assert described(live, subject)["settings"]["autopartitioning"]["mode"] == "paused"


@pytest.mark.parametrize(
    "settings",
    [
        {"partitions": 0},
        {"partitions": 257},
        {"partitions": None},
        {"partitions": "two"},
        {"codecs": []},
        {"codecs": ["lzop"]},
        {"quota": {"messages": 0}},
        {"quota": {"rate": -1}},
        {"quota": {"weight": 1}},
        {"autopartitioning": {"mode": "down"}},
        {"autopartitioning": {"utilization": 101}},
        {"ttl": "24h"},
        [],
    ],
    ids=json.dumps,
)
def test_a_setting_that_does_not_fit_is_refused_and_makes_nothing(live: Live, subject: str, settings: Any) -> None:
    answer = live.api("PUT", f"/v1/subjects/{subject}", settings)

    assert (answer.status, answer.code) == (400, "bad_request")
    assert live.api("GET", f"/v1/subjects/{subject}").code == "unknown_subject"


def test_subjects_are_listed_by_prefix_page_by_page(live: Live, subject: str) -> None:
    names = [f"{subject}-{number}" for number in range(5)]
    for name in [*names, f"{subject}x"]:
        put(live, name, partitions=3)
    found: list[str] = []
    after = ""
    while True:
        page = live.api("GET", f"/v1/subjects?prefix={subject}-&limit=2&after={after}").json
        found += [entry["subject"] for entry in page["subjects"]]
        assert {entry["partitions"] for entry in page["subjects"]} == {3}
        if "next" not in page:
            break
        after = page["next"]
    assert found == names
    assert live.api("GET", "/v1/subjects?prefix=%2F").status == 400


def test_a_deleted_subject_is_gone_at_once_for_everyone(live: Live, subject: str) -> None:
    first = live.publish(subject, b"old").json
    ticket = live.ticket(subject, 3)

    deleted = live.api("DELETE", f"/v1/subjects/{subject}")

    assert (deleted.status, deleted.json["deleted"]) == (200, True)
    again = live.api("DELETE", f"/v1/subjects/{subject}")
    assert (again.status, again.code) == (404, "unknown_subject")
    assert live.messages(subject) == []
    assert live.api("GET", f"/v1/messages/{first['sequence']}").status == 404
    assert live.api("GET", f"/v1/subjects/{subject}/latest").json["latest_sequence"] == 0
    live.put(ticket, b"new")
    live.reconcile()
    assert live.messages(subject) == []


def test_a_subject_made_again_begins_anew_and_higher(live: Live, subject: str) -> None:
    put(live, subject, partitions=4, quota={"messages": 3})
    old = [live.publish(subject, b"old", x_mts_producer_id="p", x_mts_seqno=str(n)).json for n in (1, 2, 3)]
    live.api("DELETE", f"/v1/subjects/{subject}")

    new = live.publish(subject, b"new", x_mts_producer_id="p", x_mts_seqno="1")

    assert (new.status, new.json["offset"], new.json["partition"]) == (201, 0, 0)
    assert new.json["sequence"] > old[-1]["sequence"]
    assert [live.payload(message) for message in live.messages(subject)] == [b"new"]
    about = described(live, subject)
    assert (about["messages"], about["settings"]["quota"], len(about["partitions"])) == (1, {}, 1)


def test_the_payloads_of_a_deleted_subject_go_through_the_trash(live: Live, subject: str) -> None:
    ticket = live.ticket(subject, 5)
    live.put(ticket, b"whole")
    live.publish(subject, b"packed")
    messages = live.messages(subject)
    assert len(messages) == 2
    live.api("DELETE", f"/v1/subjects/{subject}")

    def gone() -> bool:
        live.reconcile()
        headers = [{"range": message["range"]} if "range" in message else {} for message in messages]
        answers = [send("GET", each["url"], headers=more) for each, more in zip(messages, headers, strict=True)]
        return all(answer.status == 404 for answer in answers)

    eventually(gone)


def test_the_codec_is_stored_and_returned_and_the_payload_left_alone(live: Live, subject: str) -> None:
    payload = gzip.compress(b"squeezed " * 20)
    path = f"/v1/subjects/{subject}/messages"
    ticket = live.ticket(subject, len(payload), codec="gzip")
    live.put(ticket, payload)
    assert live.publish(subject, payload, x_mts_codec="gzip").status == 201
    encoded = {"data": "AAE=", "encoding": "base64", "codec": "zstd"}
    assert live.api("POST", path, encoded, JSON_MESSAGE).status == 201
    fields = (b'{"codec":"gzip"}', payload, b"", b"raw")
    frames = b"".join(struct.pack(">I", len(field)) + field for field in fields)
    batch = live.api("POST", f"{path}/batch", frames, {"content-type": "application/vnd.mts.frames"}).json
    assert batch["failed"] == 0
    lines = b'{"data": "one", "codec": "raw"}\n{"data": "two", "codec": "zstd"}'
    batch = live.api("POST", f"{path}/batch", lines, {"content-type": "application/x-ndjson"}).json
    assert batch["failed"] == 0

    messages = live.messages(subject)

    codecs = [message.get("codec", "raw") for message in messages]
    assert codecs == ["gzip", "gzip", "zstd", "gzip", "raw", "raw", "zstd"]
    assert all(live.payload(messages[place]) == payload for place in (0, 1, 3))
    extents = live.api("GET", f"{path}?view=extents").json["extents"]
    assert [extent.get("codec", "raw") for extent in extents] == codecs


def test_lzop_is_refused_with_the_codecs_that_are_allowed(live: Live, subject: str) -> None:
    path = f"/v1/subjects/{subject}"
    answers = [
        live.publish(subject, b"x", x_mts_codec="lzop"),
        live.api("POST", f"{path}/messages", {"data": "x", "codec": "lzop"}, JSON_MESSAGE),
        live.api("POST", f"{path}/uploads", {"size": 1, "codec": "lzop"}),
    ]
    for answer in answers:
        assert (answer.status, answer.code) == (400, "codec_not_allowed")
        assert "raw, gzip, zstd" in answer.json["error"]["message"]
    line = b'{"data": "fine"}\n{"data": "x", "codec": "lzop"}'
    batch = live.api("POST", f"{path}/messages/batch", line, {"content-type": "application/x-ndjson"}).json
    assert [result.get("error", {}).get("code") for result in batch["results"]] == [None, "codec_not_allowed"]


def test_a_subject_takes_only_the_codecs_it_lists(live: Live, subject: str) -> None:
    put(live, subject, codecs=["gzip"])
    path = f"/v1/subjects/{subject}"
    plain, ticket = live.publish(subject, b"x"), live.api("POST", f"{path}/uploads", {"size": 1, "codec": "zstd"})
    for answer in (plain, ticket):
        assert (answer.status, answer.code) == (400, "codec_not_allowed")
        assert answer.json["error"]["details"]["allowed"] == ["gzip"]
    assert live.publish(subject, b"x", x_mts_codec="gzip").status == 201
    lines = b'{"data": "x"}\n{"data": "y", "codec": "gzip"}\n{"data": "z"}'
    batch = live.api("POST", f"{path}/messages/batch", lines, {"content-type": "application/x-ndjson"}).json
    assert [result["state"] for result in batch["results"]] == ["refused", "committed", "refused"]
    assert len(live.messages(subject)) == 2


def test_a_full_subject_says_which_quota_its_size_and_what_is_used(live: Live, subject: str) -> None:
    put(live, subject, quota={"messages": 2, "bytes": 100})
    live.publish(subject, b"one")
    ticket = live.ticket(subject, 3)
    assert described(live, subject)["used"] == {"messages": 2, "bytes": 6}

    refused = live.publish(subject, b"three")

    assert (refused.status, refused.code) == (429, "quota_exceeded")
    assert "retry-after" not in refused.headers
    details = refused.json["error"]["details"]
    assert (details["quota"], details["limit"], details["used"]) == ("messages", 2, 2)
    assert live.put(ticket, b"two").status == 200
    assert live.receipt(ticket["upload_id"])["state"] == "committed"
    bytes_used = put(live, subject, quota={"messages": None}).json["used"]["bytes"]
    large = live.api("POST", f"/v1/subjects/{subject}/uploads", {"size": 95})
    assert large.json["error"]["details"] == {"quota": "bytes", "limit": 100, "used": bytes_used, "wanted": 95}


def test_an_abort_gives_back_what_its_ticket_reserved(live: Live, subject: str) -> None:
    put(live, subject, quota={"messages": 1})
    ticket = live.ticket(subject, 3)
    assert live.publish(subject, b"x").code == "quota_exceeded"

    live.api("DELETE", f"/v1/uploads/{ticket['upload_id']}")

    assert described(live, subject)["used"] == {"messages": 0, "bytes": 0}
    assert live.publish(subject, b"x").status == 201


def test_a_subject_that_is_written_too_fast_says_when_to_come_again(live: Live, subject: str) -> None:
    put(live, subject, quota={"rate": 1})
    answers = [live.publish(subject, b"x") for _ in range(2)]
    refused = next(answer for answer in answers if answer.status != 201)

    assert (refused.status, refused.code) == (429, "rate_limited")
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json["error"]["details"]["limit"] == 1


def test_a_sessions_headers_stand_beneath_those_of_its_messages(live: Live, subject: str) -> None:
    asked = {"producer_id": "p", "headers": {"host": "a", "unit": "ms"}}
    epoch = live.api("POST", f"/v1/subjects/{subject}/producers", asked).json["epoch"]
    named = {"producer_id": "p", "epoch": epoch}
    ticket = live.ticket(subject, 1, **named, seqno=1, headers={"unit": "s"})
    live.put(ticket, b"1")
    live.publish(subject, b"2", x_mts_producer_id="p", x_mts_seqno="2", x_mts_epoch=str(epoch))
    live.publish(subject, b"3", x_mts_producer_id="p", x_mts_seqno="3", x_mts_header_unit="m")
    lines = [{"data": str(seqno), **named, "seqno": seqno, "headers": {"n": str(seqno)}} for seqno in (4, 5)]
    body = b"\n".join(json.dumps(line).encode() for line in lines)
    live.api("POST", f"/v1/subjects/{subject}/messages/batch", body, {"content-type": "application/x-ndjson"})

    headers = {live.payload(message): message["headers"] for message in live.messages(subject)}

    session = {"host": "a", "unit": "ms"}
    assert headers == {
        b"1": {"host": "a", "unit": "s"},
        b"2": session,
        b"3": {"unit": "m"},
        b"4": {**session, "n": "4"},
        b"5": {**session, "n": "5"},
    }
