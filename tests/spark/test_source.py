"""The data source on real servers: Tarantool, MinIO, a host, and Spark."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

from minitoolstream.client import Client, Item
from spark_emr.errors import from_traceback
from spark_emr.frames import map_payloads, read_messages
from tests.live import Live
from tests.spark.conftest import ROOT


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
    assert load(spark, subject="orders", fromTime=1, toTime="2100-01-01T00:00:00Z").count() == 53
    assert load(spark, subject="orders", fromTime="2100-01-01").count() == 0
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


def test_large_payloads_come_in_chunks_or_stay_in_python(
    spark: Any, client: Client, subject: str, tmp_path: Any
) -> None:
    body = bytes(range(256)) * 4096 * 3
    path = tmp_path / "large"
    path.write_bytes(body)
    client.publish(subject, b"small")
    sequence = client.publish_file(subject, path).sequence
    limits = {"largeBytes": "1MiB", "chunkBytes": "512KiB"}
    chunks = load(spark, subject=subject, payload="true", large="chunks", partitions=3, **limits)
    rows = chunks.filter(chunks.sequence == sequence).orderBy("chunk").collect()
    assert [row.chunk for row in rows] == list(range(6))
    assert b"".join(bytes(row.payload) for row in rows) == body
    referred = load(spark, subject=subject, payload="true", **limits).orderBy("sequence").collect()
    assert [row.payload for row in referred] == [bytearray(b"small"), None]

    def measure(message: Any, blocks: Any) -> tuple[int, int]:
        return message.sequence, sum(map(len, blocks))

    measured = map_payloads(spark, measure, subject=subject, **limits).collect()
    assert dict(measured)[sequence] == len(body)


def test_a_payload_that_is_gone_fails_is_skipped_or_told(
    spark: Any, stack: Live, client: Client, subject: str, tmp_path: Any
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"soon gone")
    client.publish(subject, b"stays")
    lost = client.publish_file(subject, path).sequence or 0
    stack.minio.s3().delete_object(Bucket=stack.settings["minio.bucket"], Key=client.get(lost).object_name)
    error = refused(lambda: load(spark, subject=subject, payload="true").collect())
    assert (error.code, error.details["sequence"]) == ("payload_missing", lost)
    assert load(spark, subject=subject, payload="true", onMissing="skip").count() == 1
    told = load(spark, subject=subject, payload="true", onMissing="null").orderBy("sequence").collect()
    assert [row.problem for row in told] == [None, "payload_missing"]


def test_a_message_that_expired_or_was_deleted_leaves_a_hole(spark: Any, client: Client, subject: str) -> None:
    sequences = [result.unwrap().sequence or 0 for result in client.publish_batch(subject, [b"a", b"b", b"c"])]
    client.delete_message(sequences[1], "for the test")
    assert load(spark, subject=subject, payload="true").count() == 2
    error = refused(lambda: load(spark, subject=subject, onHole="fail").collect())
    assert error.details["sequence"] == sequences[1]


def test_no_secret_is_shown_in_plans_or_errors(spark: Any, stack: Live, orders: list[int]) -> None:
    from spark_emr.session import conf_name

    frame = load(spark, subject="orders", payload="true")
    shown = frame._jdf.queryExecution().toString()
    spark.conf.set(conf_name("minio.secret_key"), "wrong-" + stack.settings["minio.secret_key"])
    try:
        with pytest.raises(Exception, match="mts-error") as error:
            read_messages(spark, subject="orders", payload=True).collect()
    finally:
        spark.conf.set(conf_name("minio.secret_key"), stack.settings["minio.secret_key"])
    text = shown + str(error.value)
    for key in ("tarantool.password", "minio.secret_key", "server.token"):
        assert str(stack.settings[key]) not in text


def test_the_examples_of_the_docs_run(spark: Any, client: Client, orders: list[int]) -> None:
    page = (ROOT / "docs" / "spark.md").read_text("utf-8")
    examples = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    client.publish("videos", b"a short film")
    space: dict[str, Any] = {"spark": spark}
    for example in examples[:3]:
        exec(example, space)
    assert space["orders"].columns[-1] == "payload"
    for example in examples[3:]:  # streams, which have no end: what they import is there
        imports: list[ast.stmt] = [node for node in ast.parse(example).body if isinstance(node, ast.ImportFrom)]
        exec(compile(ast.Module(imports, []), "docs/spark.md", "exec"), space)
    assert [size for _, size in space["sizes"].collect()] == [12]
