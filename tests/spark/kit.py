"""Extents and objects for tests of plans and readers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from minitoolstream.adapters.memory.payloads import MemoryPayloads
from minitoolstream.domain.message import Extent
from minitoolstream.domain.pack import InlineMessage, build_pack
from spark_emr.reader.options import ReadOptions
from spark_emr.reader.plan import Part, Plan, Planner
from spark_emr.reader.read import Locate, Stretch, read_parts

SUBJECT = "orders"


def plain(sequence: int, body: bytes | int, *, sha: bool = True, **more: Any) -> Extent:
    """A message in an object of its own; a number stands for so many bytes that nobody reads."""
    size = body if isinstance(body, int) else len(body)
    digest = hashlib.sha256(body).hexdigest() if sha and isinstance(body, bytes) else None
    fields: dict[str, Any] = {"partition": 0, "offset": sequence - 1, "sha256": digest, **more}
    return Extent(
        sequence, {"n": str(sequence)}, f"m/{SUBJECT}/1/{sequence:08}", SUBJECT, 1000, count=1, size=size, **fields
    )


def pack(last: int, sizes: Sequence[int], *, name: str = "", byte_from: int = 100, **more: Any) -> Extent:
    fields: dict[str, Any] = {"partition": 0, "offset": last - 1, "content_type": "text/plain", **more}
    return Extent(
        last,
        {"kind": "packed"},
        name or f"_mts/packs/{last:08}",
        SUBJECT,
        1000,
        count=len(sizes),
        size=sum(sizes),
        byte_from=byte_from,
        sizes=list(sizes) if len(sizes) > 1 else None,
        **fields,
    )


def put_plain(store: MemoryPayloads, sequence: int, body: bytes, **more: Any) -> Extent:
    extent = plain(sequence, body, **more)
    store.client_put(extent.object_name, body)
    return extent


def put_pack(store: MemoryPayloads, last: int, payloads: Sequence[bytes], **more: Any) -> Extent:
    made = build_pack([InlineMessage(SUBJECT, payload, "text/plain", {"kind": "packed"}) for payload in payloads])
    extent = pack(last, [len(payload) for payload in payloads], byte_from=made.groups[0].byte_from, **more)
    store.client_put(extent.object_name, b"".join(made.body))
    return extent


def options(**changes: Any) -> ReadOptions:
    return ReadOptions(SUBJECT, **{"payload": True, **changes})


def plan(extents: Sequence[Extent], parallelism: int = 1, **changes: Any) -> Plan:
    planner = Planner(options(**changes))
    planner.add(extents)
    return planner.finish(parallelism)


async def read(
    store: MemoryPayloads, extents: Sequence[Extent], locate: Locate | None = None, **changes: Any
) -> list[Stretch]:
    parts = [Part(extent) for extent in extents]
    return [stretch async for stretch in read_parts(store, parts, options(**changes), locate)]


def payloads_of(stretches: Sequence[Stretch]) -> list[bytes | None]:
    return [payload for stretch in stretches for payload in stretch.payloads or ()]
