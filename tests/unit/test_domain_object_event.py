"""Every form in which the bucket says that an object was created."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitoolstream.domain.object_event import Delivery, ObjectCreated, Rejected, read_event

KEY = "m/orders/1/01890a5d-ac96-774b-bcce-b302099a8057"


def record(key: Any = KEY, **more: Any) -> dict[str, Any]:
    item = {"key": key, "size": 5, "eTag": "abc", **more.pop("object", {})}
    return {
        "eventSource": "aws:s3",
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": "bucket"}, "object": item},
        **more,
    }


def sqs(*bodies: Any) -> dict[str, Any]:
    records = [
        {
            "eventSource": "aws:sqs",
            "messageId": f"id-{number}",
            "body": body if isinstance(body, str) else json.dumps(body),
        }
        for number, body in enumerate(bodies)
    ]
    return {"Records": records}


CREATED = ObjectCreated("bucket", KEY, 5)
MALFORMED = Rejected("", "malformed_event")


def test_an_event_of_s3_to_a_lambda() -> None:
    assert read_event({"Records": [record(), record("other")]}) == [
        Delivery([CREATED, ObjectCreated("bucket", "other", 5)])
    ]


def test_an_event_of_minios_webhook() -> None:
    event = {
        "EventName": "s3:ObjectCreated:CompleteMultipartUpload",
        "Key": "bucket/" + KEY,
        "Records": [record(KEY.replace("/", "%2F"), eventSource="minio:s3", eventName="s3:ObjectCreated:Put")],
    }
    assert read_event(event) == [Delivery([CREATED])]


def test_an_event_of_s3_inside_sqs() -> None:
    event = sqs({"Records": [record()]}, {"Records": [record(), record()]})
    assert read_event(event) == [Delivery([CREATED], "id-0"), Delivery([CREATED, CREATED], "id-1")]


def test_an_event_inside_sqs_inside_sqs_keeps_the_outer_message_id() -> None:
    assert read_event(sqs(sqs({"Records": [record()]}))) == [Delivery([CREATED], "id-0")]


def notification(event: Any) -> dict[str, Any]:
    return {"Type": "Notification", "TopicArn": "arn:aws:sns:x", "Message": json.dumps(event)}


def test_an_event_of_s3_inside_sns_inside_sqs() -> None:
    event = sqs(notification({"Records": [record(), record("other")]}), {"Records": [record()]})
    assert read_event(event) == [
        Delivery([CREATED, ObjectCreated("bucket", "other", 5)], "id-0"),
        Delivery([CREATED], "id-1"),  # with raw delivery the topic leaves no trace
    ]


def test_an_event_of_s3_inside_sns_to_a_lambda() -> None:
    one = {"EventSource": "aws:sns", "Sns": notification({"Records": [record()]})}
    assert read_event({"Records": [one, one]}) == [Delivery([CREATED, CREATED])]


def event_bridge(key: str = KEY, kind: str = "Object Created", **item: Any) -> dict[str, Any]:
    detail = {"version": "0", "bucket": {"name": "bucket"}, "object": {"key": key, "size": 5, **item}}
    return {"version": "0", "source": "aws.s3", "detail-type": kind, "detail": {**detail, "reason": "PutObject"}}


def test_an_event_of_event_bridge_is_read_directly_and_inside_sqs() -> None:
    assert read_event(event_bridge()) == [Delivery([CREATED])]
    assert read_event(sqs(event_bridge())) == [Delivery([CREATED], "id-0")]


def test_event_bridge_does_not_quote_keys() -> None:
    assert read_event(event_bridge("a+b%2Bc")) == [Delivery([ObjectCreated("bucket", "a+b%2Bc", 5)])]


def test_event_bridge_tells_of_other_things_too() -> None:
    assert read_event(event_bridge(kind="Object Deleted")) == [Delivery([Rejected(KEY, "not_a_creation")])]
    assert read_event(event_bridge(size="5")) == [Delivery([Rejected(KEY, "malformed_event")])]
    assert read_event({"detail-type": "Object Created"}) == [Delivery([MALFORMED])]


def test_a_message_without_a_readable_record_is_poison_and_keeps_its_body() -> None:
    bad, half, test = read_event(sqs("{", {"Records": [record(), {}]}, {"Event": "s3:TestEvent"}))
    assert (bad.is_poison, half.is_poison, test.is_poison) == (True, False, False)
    assert bad.body == "{"


def test_the_test_event_says_nothing() -> None:
    test = {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "bucket"}
    assert read_event(test) == []
    assert read_event(sqs(test)) == [Delivery([], "id-0")]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("a+b%2Bc", "a b+c"),
        ("gr%C3%BC%C3%9Fe", "grüße"),
        ("plain", "plain"),
        ("%zz", "%zz"),
    ],
)
def test_keys_are_unquoted(key: str, name: str) -> None:
    assert read_event({"Records": [record(key)]}) == [Delivery([ObjectCreated("bucket", name, 5)])]


def test_an_object_without_a_size_is_empty() -> None:
    given_record = record()
    del given_record["s3"]["object"]["size"]
    assert read_event({"Records": [given_record]}) == [Delivery([ObjectCreated("bucket", KEY, 0)])]


def test_other_events_are_told_apart() -> None:
    assert read_event({"Records": [record(eventName="ObjectRemoved:Delete")]}) == [
        Delivery([Rejected(KEY, "not_a_creation")])
    ]


@pytest.mark.parametrize("event", [None, [], "x", 5, {}, {"Records": None}, {"Records": "x"}, {"detail": {}}])
def test_what_is_no_event_is_rejected(event: Any) -> None:
    assert read_event(event) == [Delivery([MALFORMED])]


def test_an_event_without_records_says_nothing() -> None:
    assert read_event({"Records": []}) == [Delivery([])]


@pytest.mark.parametrize(
    "bad",
    [
        None,
        5,
        {},
        {"s3": None},
        {"s3": {"object": "x"}},
        record(key=5),
        record(key=None),
        record(key="%ff"),
        record(key="\ud800"),
        {**record(), "s3": {"object": {"key": "x"}}},
        {**record(), "s3": {"bucket": [], "object": {"key": "x"}}},
    ],
)
def test_one_bad_record_does_not_spoil_the_others(bad: Any) -> None:
    assert read_event({"Records": [record(), bad, record()]}) == [Delivery([CREATED, MALFORMED, CREATED])]


@pytest.mark.parametrize("size", [-1, "5", True, 1.5, None, 2**63])
def test_a_size_that_is_none_is_rejected_with_the_name(size: Any) -> None:
    assert read_event({"Records": [record(object={"size": size})]}) == [Delivery([Rejected(KEY, "malformed_event")])]


@pytest.mark.parametrize("body", ["", "{", "\ud800", "[" * 100_000, "null", 5])
def test_a_bad_body_from_sqs_is_rejected_by_itself(body: Any) -> None:
    event = sqs(body, {"Records": [record()]})
    assert read_event(event) == [Delivery([MALFORMED], "id-0"), Delivery([CREATED], "id-1")]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
_object = st.fixed_dictionaries({}, optional={"key": _json, "size": _json, "eTag": _json}) | _json
_s3 = st.fixed_dictionaries({}, optional={"bucket": st.fixed_dictionaries({"name": _json}) | _json, "object": _object})
_record = st.fixed_dictionaries(
    {},
    optional={
        "eventSource": st.sampled_from(["aws:sqs", "aws:s3"]),
        "EventSource": st.just("aws:sns") | _json,
        "Sns": st.fixed_dictionaries({}, optional={"Message": _json | _json.map(json.dumps)}) | _json,
        "eventName": st.sampled_from(["ObjectCreated:Put", "s3:ObjectCreated:Put"]) | _json,
        "messageId": _json,
        "body": _json | _json.map(json.dumps),
        "s3": _s3 | _json,
    },
)
_event = st.fixed_dictionaries(
    {},
    optional={
        "Records": st.lists(_record | _json, max_size=4) | _json,
        "Event": _json,
        "Type": st.just("Notification") | _json,
        "Message": _json | _json.map(json.dumps),
        "detail-type": st.just("Object Created") | _json,
        "detail": _s3 | _json,
    },
)


@given(_event | _json)
def test_nothing_that_can_come_makes_it_raise(event: Any) -> None:
    for delivery in read_event(event):
        for item in delivery.records:
            item.object_name.encode()
            assert isinstance(item, Rejected) or 0 <= item.size < 2**63


@given(st.lists(_event, min_size=1, max_size=3))
def test_every_message_from_sqs_is_answered_for_by_its_id(events: list[Any]) -> None:
    assert [delivery.message_id for delivery in read_event(sqs(*events))] == [f"id-{n}" for n in range(len(events))]
