"""The data source on real servers: Tarantool, MinIO, a host, and Spark."""

from __future__ import annotations

from typing import Any

import pytest

from minitoolstream.client import Client, Item
from spark_emr.errors import from_traceback
from spark_emr.frames import read_messages
from tests.live import Live


def load(spark: Any, **options: Any) -> Any:
    reader = spark.read.format("minitoolstream")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


@pytest.fixture(scope="module")
def client(stack: Live) -> Any:
    with Client(stack.url, stack.token) as client:
        yield client


@pytest.fixture(scope="module")
def orders(client: Client) -> list[int]:
    """A subject with packed, single and compressed messages; their sequences."""
    results = client.publish_batch("orders", [Item(b"p%d" % n, headers={"n": str(n)}) for n in range(50)])
    found = [result.unwrap().sequence for result in results]
    found.append(client.publish("orders", b"alone", headers={"kind": "single"}).sequence)
    found.append(client.publish("orders", b"long text " * 1000, codec="zstd").sequence)
    found.append(client.publish("orders", b"", content_type="text/plain").sequence)
    return [sequence for sequence in found if sequence is not None]


def test_a_subject_is_a_data_frame(spark: Any, orders: list[int]) -> None:
    frame = load(spark, subject="orders", payload="true")
    assert frame.columns == [
        *("sequence", "subject", "partition", "offset", "create_at", "headers", "size", "object_name", "payload")
    ]
    rows = frame.orderBy("sequence").collect()
    assert [row.sequence for row in rows] == orders
    assert [bytes(row.payload) for row in rows[:51]] == [*(b"p%d" % n for n in range(50)), b"alone"]
    assert bytes(rows[51].payload) == b"long text " * 1000
    assert bytes(rows[52].payload) == b""
    assert (rows[7].headers, rows[50].headers) == ({"n": "7"}, {"kind": "single"})
    assert [row.offset for row in rows] == list(range(53))
    assert {row.subject for row in rows} == {"orders"}


def test_the_same_through_map_in_arrow(spark: Any, orders: list[int]) -> None:
    rows = read_messages(spark, subject="orders", payload=True).orderBy("sequence").collect()
    assert [row.sequence for row in rows] == orders
    assert bytes(rows[3].payload) == b"p3"


def test_a_range_and_columns_of_ones_choice(spark: Any, orders: list[int]) -> None:
    frame = load(spark, subject="orders", fromSequence=orders[10], toSequence=orders[19])
    assert frame.count() == 10
    assert "payload" not in frame.columns
    reader = spark.read.format("minitoolstream").schema("size bigint, sequence bigint").option("subject", "orders")
    assert reader.load().agg({"size": "sum"}).first()[0] > 0


def test_filters_of_one_query_do_not_stick_to_the_next(spark: Any, orders: list[int]) -> None:
    frame = load(spark, subject="orders")
    assert frame.filter(frame.sequence > orders[40]).count() == 12
    assert frame.filter(frame.sequence > orders[20]).count() == 32
    assert frame.count() == 53


def refused(work: Any) -> Any:
    with pytest.raises(Exception, match="mts-error") as error:
        work()
    return from_traceback(str(error.value))


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        ({"subject": "nobody-made-me"}, "unknown_subject", "nobody-made-me"),
        ({"subject": "orders", "fromSequence": 9, "toSequence": 5}, "bad_request", "fromSequence 9"),
        ({"subject": "orders", "secret": "x"}, "bad_request", "no option"),
    ],
)
def test_bad_input_is_a_clear_error(
    spark: Any, orders: list[int], options: dict[str, Any], code: str, told: str
) -> None:
    error = refused(lambda: load(spark, **options).collect())
    assert error.code == code
    assert told in error.message + str(error.details)
