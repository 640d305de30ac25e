"""Scenarios 1 and 2 of the specification's section 11.2; 5 and 6 are in `tests/faults/test_delivery_restart.py`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.durables import Durable, sequences
from tests.integration.test_rules_tarantool_access import connect
from tests.live import Live


def test_scenario_1_a_message_is_published_and_read(live: Live) -> None:
    subject, data = "test.channel", b"\x00\x01 some data \xff"
    published = live.publish(subject, data)
    assert published.status == 201
    sequence = published.json["sequence"]

    assert live.api("GET", f"/v1/subjects/{subject}/latest").json["latest_sequence"] == sequence
    message = live.api("GET", f"/v1/messages/{sequence}").json

    assert (message["subject"], message["sequence"]) == (subject, sequence)
    assert message["object_name"]
    assert live.payload(message) == data


def test_scenario_2_ten_durables_each_read_all_of_a_hundred_messages(live: Live, subject: str) -> None:
    with ThreadPoolExecutor(10) as publishers:
        answers = list(publishers.map(lambda number: live.publish(subject, b"%d" % number), range(100)))
    given = sorted(answer.json["sequence"] for answer in answers)
    assert len(set(given)) == 100

    with ThreadPoolExecutor(10) as subscribers:
        read = list(subscribers.map(lambda number: read_all(Durable(live, subject, f"durable-{number}")), range(10)))

    assert read == [given] * 10
    application: Any = connect(live.tarantool, live.tarantool.user, live.tarantool.password)
    for number in range(10):
        assert application.call("get_consumer_position", f"durable-{number}", subject)[0] == given[-1]
        checked = application.call("check_new_messages", subject, f"durable-{number}")[0]
        assert (checked["has_new"], checked["new_count"]) == (False, 0)
    positions = {row[0]: row[2] for row in application.call("get_consumers_by_subject", subject)[0]}
    assert positions == {f"durable-{number}": given[-1] for number in range(10)}
    application.close()


def read_all(durable: Durable) -> list[int]:
    """Page by page, each acked, until nothing is left."""
    durable.put()
    found: list[int] = []
    while page := sequences(durable.read(limit=7)):
        found += page
        assert durable.post("ack", sequence=page[-1]).status == 200
    return found
