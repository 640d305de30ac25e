"""Arrow batches and Parquet files of what was read, without Spark."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import AsyncGenerator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.adapters.memory.payloads import MemoryPayloads
from minitoolstream.domain.errors import MtsError
from minitoolstream.pipeline.places import Folder, place_of
from spark_emr.loop import iterate
from spark_emr.reader.columns import MOST_BYTES, arrow_schema, batches, column_names, spark_schema
from spark_emr.reader.plan import Part
from spark_emr.reader.read import Stretch, read_parts
from spark_emr.sinks import parquet
from tests.core_kit import settings
from tests.spark.kit import options, pack, plain, put_pack, put_plain


def rows(store: MemoryPayloads, extents: list[Any], *names: str, **changes: Any) -> list[dict[str, Any]]:
    wanted = options(**changes)
    stretches = read_parts(store, [Part(extent) for extent in extents], wanted)
    skip = wanted.on_missing == "skip"
    found = iterate(batches(stretches, names or column_names(wanted), skip=skip))
    return [row for batch in found for row in batch.to_pylist()]


@pytest.fixture
def store() -> MemoryPayloads:
    return MemoryPayloads()


def test_the_columns_are_those_of_the_specification() -> None:
    always = ("sequence", "subject", "partition", "offset", "create_at", "headers", "size", "object_name")
    assert column_names(options(payload=False)) == always
    assert column_names(options()) == (*always, "payload")
    assert column_names(options(large="chunks", on_missing="null")) == (*always, "payload", "chunk", "problem")
    assert spark_schema(("sequence", "headers")) == "`sequence` bigint, `headers` map<string,string>"


def test_a_row_a_message_with_what_it_shares_and_what_is_its_own(store: MemoryPayloads) -> None:
    own = [[1, {"own": "yes"}, None], [2, {}, "text/html"]]
    extents = [put_pack(store, 3, [b"a", b"bb", b"ccc"], own=own), put_plain(store, 4, b"dddd")]
    found = rows(store, extents)
    assert [row["sequence"] for row in found] == [1, 2, 3, 4]
    assert [row["offset"] for row in found] == [0, 1, 2, 3]
    assert [row["size"] for row in found] == [1, 2, 3, 4]
    assert [dict(row["headers"]) for row in found] == [{"kind": "packed"}, {"own": "yes"}, {}, {"n": "4"}]
    assert [row["payload"] for row in found] == [b"a", b"bb", b"ccc", b"dddd"]
    types = rows(store, extents, "content_type")
    assert [row["content_type"] for row in types] == ["text/plain", "text/plain", "text/html", None]


def test_messages_without_headers_have_an_empty_map(store: MemoryPayloads) -> None:
    first, second = put_plain(store, 1, b"x"), put_plain(store, 2, b"y")
    first.headers.clear()
    assert [dict(row["headers"]) for row in rows(store, [first, second])] == [{}, {"n": "2"}]


def test_only_the_columns_that_are_asked_for_are_made(store: MemoryPayloads) -> None:
    assert rows(store, [plain(7, 10)], "size", "sequence", payload=False) == [{"size": 10, "sequence": 7}]


def test_what_is_missing_is_skipped_or_told(store: MemoryPayloads) -> None:
    extents = [put_plain(store, 1, b"x"), plain(2, b"gone"), put_pack(store, 4, [b"y", b"z"])]
    pack_body = store.objects[extents[2].object_name]
    pack_body.body = pack_body.body[:-1] + b"Z"
    skipped = rows(store, extents, on_missing="skip")
    assert [(row["sequence"], row["payload"]) for row in skipped] == [(1, b"x"), (3, b"y")]
    told = rows(store, extents, on_missing="null")
    assert [(row["payload"], row["problem"]) for row in told] == [
        (b"x", None),
        (None, "payload_missing"),
        (b"y", None),
        (None, "checksum_mismatch"),
    ]


def test_a_payload_left_in_the_store_is_not_missing(store: MemoryPayloads) -> None:
    found = rows(store, [plain(1, 100), put_plain(store, 2, b"x")], on_missing="skip", large_bytes=10)
    assert [row["payload"] for row in found] == [None, b"x"]


def test_many_messages_come_in_batches_of_bounded_size() -> None:
    async def stretches() -> AsyncGenerator[Stretch, None]:
        for last in range(1000, 100_001, 1000):
            yield Stretch(pack(last, [1] * 1000))

    made = list(iterate(batches(stretches(), ("sequence",))))
    assert sum(batch.num_rows for batch in made) == 100_000
    assert max(batch.num_rows for batch in made) <= 21_000


def test_what_grew_when_it_was_decoded_is_counted_as_it_is() -> None:
    async def stretches() -> AsyncGenerator[Stretch, None]:
        for sequence in range(1, 5):
            yield Stretch(plain(sequence, 10, codec="zstd"), [bytes(MOST_BYTES)])

    assert [batch.num_rows for batch in iterate(batches(stretches(), ("sequence", "payload")))] == [1, 1, 1, 1]


def test_a_parquet_file_counts_when_the_manifest_names_it(store: MemoryPayloads, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    names = column_names(options())
    stretches = read_parts(store, [Part(put_pack(store, 3, [b"a", b"b", b"c"]))], options())
    place = place_of(str(tmp_path), settings())
    file = parquet.write_file(place, "part", iterate(batches(stretches, names)), arrow_schema(names))
    assert file is not None
    assert (file["rows"], file["first"], file["last"]) == (3, 1, 3)
    with pytest.raises(MtsError, match="no file"):
        parquet.read_manifest(place)
    parquet.commit(place, [file], run="r")
    assert json.loads(place.get(parquet.MANIFEST))["files"] == [file]
    with pytest.raises(MtsError) as error:
        parquet.commit(place, [file], run="again")
    assert error.value.code == "already_exists"
    with pytest.raises(MtsError):
        parquet.must_be_free(place)
    table = pq.read_table(io.BytesIO(place.get(parquet.read_manifest(place)["files"][0]["name"])))
    assert table.column("payload").to_pylist() == [b"a", b"b", b"c"]


def test_a_manifest_whose_answer_was_lost_counts_and_anothers_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lossy(Folder):
        lost = 2

        def put_new(self, name: str, body: bytes, content_type: str = "") -> None:
            self.lost -= 1
            if self.lost > 0:
                raise MtsError("unavailable", "the store does not answer")
            super().put_new(name, body, content_type)
            if self.lost == 0:
                raise MtsError("unavailable", "its answer was lost")

    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    made = parquet.commit(Lossy(tmp_path), [], run="mine")
    assert parquet.read_manifest(Folder(tmp_path)) == made
    with pytest.raises(MtsError, match="exists already"):
        parquet.commit(Folder(tmp_path), [], run="another")


def test_a_file_too_long_for_memory_goes_on_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.setattr(parquet, "_IN_MEMORY", 20_000)
    monkeypatch.setattr(parquet, "_PIECE", 7_000)
    place, sizes = Folder(tmp_path), list[int]()

    def put_pieces(name: str, pieces: Iterable[bytes], content_type: str) -> None:
        def seen() -> Iterator[bytes]:
            for piece in pieces:
                sizes.append(len(piece))
                yield piece

        Folder.put_pieces(place, name, seen(), content_type)

    monkeypatch.setattr(place, "put_pieces", put_pieces)
    bodies = [os.urandom(10_000) for _ in range(5)]
    made = [pa.RecordBatch.from_pydict({"payload": [body]}) for body in bodies]
    file = parquet.write_file(place, "part", made, made[0].schema)
    assert file is not None
    assert (max(sizes), sum(sizes)) == (7_000, file["bytes"])
    stored = place.get(file["name"])
    assert (len(stored), hashlib.sha256(stored).hexdigest()) == (file["bytes"], file["sha256"])
    assert pq.read_table(io.BytesIO(stored)).column("payload").to_pylist() == bodies
    short = parquet.write_file(place, "part", made[:1], made[0].schema)
    assert short is not None
    assert pq.read_table(io.BytesIO(place.get(short["name"]))).num_rows == 1


def test_no_rows_are_no_file(tmp_path: Path) -> None:
    place = place_of(str(tmp_path), settings())
    assert parquet.write_file(place, "part", [], arrow_schema(("sequence",))) is None
    assert place.names() == []


@pytest.mark.parametrize("url", ["ftp://somewhere/x", "s3://bucket", "s3://bucket/_mts/packs", "s3://bucket/m/"])
def test_places_that_cannot_be_are_refused(url: str) -> None:
    with pytest.raises(MtsError) as error:
        place_of(url, settings())
    assert error.value.code == "bad_request"
