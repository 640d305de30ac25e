"""Parquet files, written by the tasks themselves, and a manifest that says which of them count.

Tasks store files under names that nobody else uses; then the driver stores one manifest, which appears whole or not at
all and is never written over. Readers trust the manifest alone: what a failed or repeated task left beside it is not
in it. Payloads never pass through the JVM, and no S3A is needed.
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MIB
from minitoolstream.pipeline.places import Place

MANIFEST = "_manifest.json"
_VERSION = 1
_IN_MEMORY = 256 * MIB
"""Of a file; a longer one waits on the node's disk, and goes on piece by piece."""
_PIECE = 4 * MIB
_TRIES = 3
_QUERY_ID = "sql.streaming.queryId"
"""Spark's own name for it; the id is kept in the query's checkpoint."""


def write_file(place: Place, prefix: str, batches: Iterable[Any], schema: Any) -> dict[str, Any] | None:
    """One Parquet file of Arrow batches, however long; what it is, for the manifest. None when there are no rows."""
    import pyarrow.parquet as pq
    from pyarrow import compute

    plain = [name for name in schema.names if name != "payload"]
    rows, first, last = 0, None, None
    with tempfile.SpooledTemporaryFile(_IN_MEMORY, prefix="mts-parquet-") as sink:
        with pq.ParquetWriter(sink, schema, use_dictionary=plain, write_statistics=plain, compression="zstd") as writer:
            for batch in batches:
                if not batch.num_rows:
                    continue
                writer.write_batch(batch)
                rows += batch.num_rows
                if "sequence" in schema.names:
                    sequences = batch.column(schema.get_field_index("sequence"))
                    ends = compute.min_max(sequences).as_py()
                    first = ends["min"] if first is None else min(first, ends["min"])
                    last = ends["max"] if last is None else max(last, ends["max"])
        if not rows:
            return None
        name = f"{prefix}-{uuid.uuid4().hex}.parquet"
        size, digest = _put(place, name, sink)
    return {"name": name, "rows": rows, "bytes": size, "sha256": digest, "first": first, "last": last}


def _put(place: Place, name: str, file: IO[bytes]) -> tuple[int, str]:
    """Its size and SHA-256."""
    size, kind = file.tell(), "application/vnd.apache.parquet"
    file.seek(0)
    if size <= _IN_MEMORY:
        body = file.read()
        place.put_new(name, body, kind)
        return size, hashlib.sha256(body).hexdigest()
    digest = hashlib.sha256()

    def pieces() -> Iterator[bytes]:
        while piece := file.read(_PIECE):
            digest.update(piece)
            yield piece

    place.put_pieces(name, pieces(), kind)
    return size, digest.hexdigest()


def commit(place: Place, files: Sequence[Mapping[str, Any]], name: str = MANIFEST, **facts: Any) -> dict[str, Any]:
    """Store the manifest: from now on these files count. `already_exists` when there is another's. After hours of work
    a passing fault is not the end: it is tried again, and what is there then may be ours, whose answer was lost."""
    manifest = {
        "version": _VERSION,
        "rows": sum(file["rows"] for file in files),
        "bytes": sum(file["bytes"] for file in files),
        **facts,
        "files": list(files),
    }
    body = json.dumps(manifest, indent=1, default=str).encode()
    for left in reversed(range(_TRIES)):
        try:
            place.put_new(name, body, "application/json")
        except MtsError as error:
            if error.code == "already_exists" and place.get(name) == body:
                break
            if not left or not error.retryable:
                raise
            time.sleep(random.uniform(0.1, 0.5))  # noqa: S311  # nosec B311
        else:
            break
    return manifest


def read_manifest(place: Place, name: str = MANIFEST) -> dict[str, Any]:
    """What counts of the files at a place; `payload_missing` while nothing was finished there."""
    try:
        found: dict[str, Any] = json.loads(place.get(name))
        if found["version"] != _VERSION:
            raise MtsError("cannot_read", f"{place.url(name)} is a manifest of another version")
        return found
    except (ValueError, KeyError, TypeError):
        raise MtsError("cannot_read", f"{place.url(name)} is not a manifest") from None


def must_be_free(place: Place, name: str = MANIFEST) -> None:
    """Before hours of work: a place is written once."""
    if name in place.names(name):
        raise MtsError("already_exists", f"{place.url(name)} exists already: take another place")


def write_batch(frame: Any, batch_id: int, place: Place) -> dict[str, Any] | None:
    """For `foreachBatch`: a manifest a batch, `batch-<id>.json`; a batch that comes again after a crash is not written
    twice. None when it was there already. A place is one query's: `already_exists` when the batch is another's, as is
    a query's that begins anew, without its checkpoint.

    Example: `stream.writeStream.foreachBatch(lambda frame, batch: write_batch(frame, batch, place)).start()`
    """
    name = f"batch-{batch_id:012}.json"
    query = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if place.names(name):
        _must_be_of(place, name, query)
        return None
    prefix = f"batch-{batch_id:012}"

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        first = next(batches, None)
        if first is None:
            return
        facts = write_file(place, prefix, _chained(first, batches), first.schema)
        yield pa.RecordBatch.from_pydict({"facts": [json.dumps(facts)]})

    written = [json.loads(row.facts) for row in frame.mapInArrow(write, "facts string").collect()]
    try:
        return commit(place, [facts for facts in written if facts], name, batch=batch_id, query=query)
    except MtsError as error:
        if error.code != "already_exists":
            raise
        _must_be_of(place, name, query)
        return None


def _must_be_of(place: Place, name: str, query: str | None) -> None:
    """Batches are numbered from 0 by each query: another's are other rows."""
    found = read_manifest(place, name).get("query")
    if found != query:
        theirs = f"{place.url(name)} is of another query, {found}: this is {query}"
        raise MtsError("already_exists", f"{theirs}; take another place, or that one's checkpoint")


def _chained(first: Any, others: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from others
