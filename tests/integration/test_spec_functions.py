"""What the specification's functions take and refuse over the wire, as clients of any language call them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tarantool.connection import Connection
from tarantool.error import DatabaseError

from minitoolstream.stack.ports import split_address
from tests.live import Live
from tests.servers import TarantoolServer

NOT_UTF8 = b"\xff\xfe"


def connect(server: TarantoolServer) -> Any:
    """Bytes go as they are: what a client of any language may send."""
    host, port = split_address(server.address, 3301)
    return Connection(
        host, port, user=server.user, password=server.password, fetch_schema=False, encoding=None, connection_timeout=5
    )


@pytest.fixture
def spec(live: Live) -> Iterator[Any]:
    connection = connect(live.tarantool)
    yield connection
    connection.close()


Call = tuple[str, list[Any]]
REFUSED: list[tuple[str, list[Any], str]] = [
    ("publish_message", ["a b", {}], "`subject` must be 1 to 240"),
    ("publish_message", ["", {}], "`subject` must be"),
    ("publish_message", ["{subject}", NOT_UTF8, {}], "`object_name` must be text"),
    ("publish_message", ["{subject}", {"a": NOT_UTF8}], "`headers` must be a map of names to texts"),
    ("publish_message", ["{subject}", {"a": 1}], "`headers` must be a map of names to texts"),
    (
        "publish_message",
        ["{subject}", "key", {str(number): "" for number in range(65)}],
        "`headers` must be at most 64",
    ),
    ("update_consumer_position", ["d", "{subject}", 10**15], "lies beyond the last message"),
    ("update_consumer_position", [NOT_UTF8, "{subject}", 0], "a durable is named by letters"),
    ("configure_ttl", [{"default_ttl": 0}], "`default_ttl` must be"),
    ("delete_old_messages", ["all"], "`ttl_seconds` must be"),
]


@pytest.mark.parametrize(("call", "words"), [((function, given), words) for function, given, words in REFUSED])
def test_a_refusal_is_said_in_words_and_changes_nothing(
    live: Live, spec: Any, subject: str, call: Call, words: str
) -> None:
    function, given = call

    with pytest.raises(DatabaseError) as refused:
        spec.call(function, [subject if argument == "{subject}" else argument for argument in given])

    assert words in str(refused.value)
    assert "table:" not in str(refused.value)
    assert live.messages(subject) == []


def test_what_the_specification_published_is_read_by_http_with_its_headers(live: Live, spec: Any, subject: str) -> None:
    sequence = spec.call("publish_message", [subject, "theirs/ж.json", {"source": "ж", "empty": ""}])[0]

    (message,) = live.messages(subject)

    assert (message["sequence"], message["object_name"]) == (sequence, "theirs/ж.json")
    assert message["headers"] == {"source": "ж", "empty": ""}
