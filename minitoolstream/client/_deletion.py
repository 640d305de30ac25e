"""Calls that delete for good, and the record of them."""

from __future__ import annotations

import msgspec

from minitoolstream.api import schema_deletion
from minitoolstream.client._deletion_types import Deletion, DeletionRecord
from minitoolstream.client._transport import Transport, plain
from minitoolstream.client._upload_calls import JSON

_TIMEOUT = 60.0
"""A pack that holds the message may have to be written anew first."""


async def delete_message(transport: Transport, sequence: int, reason: str) -> Deletion:
    # Asked again, the same is answered: so a call whose answer was lost may be repeated.
    query = {"reason": reason or None}
    response = await transport.send("DELETE", f"/v1/messages/{sequence}", query=query, timeout=_TIMEOUT)
    return plain(response, Deletion)


async def purge_subject(transport: Transport, path: str, reason: str) -> Deletion:
    body = msgspec.json.encode({"reason": reason})
    response = await transport.send("POST", path, body=body, headers=JSON, timeout=_TIMEOUT, repeatable=True)
    return plain(response, Deletion)


async def deletions(transport: Transport, after: str, limit: int) -> list[DeletionRecord]:
    query = {"after": after or None, "limit": limit}
    response = await transport.send("GET", "/v1/deletions", query=query)
    return [_record(entry) for entry in plain(response, schema_deletion.DeletionRecords).deletions]


def _record(entry: schema_deletion.DeletionRecord) -> DeletionRecord:
    what = entry.what
    return DeletionRecord(
        id=entry.id,
        kind=what.kind,
        subject=what.subject,
        when=entry.when,
        who=entry.who,
        reason=entry.reason,
        sequences=tuple(map(int, what.sequences)),
        upto=None if what.upto is None else int(what.upto),
    )
