"""What was deleted for good stays deleted: a restore may bring back rows of before, the record in the bucket does not
forget."""

from __future__ import annotations

from typing import Any

from minitoolstream.services.core import Core
from minitoolstream.services.delete_messages import list_deletions

_AT_ONCE = 1_000


async def delete_again(core: Core) -> None:
    """Rows of what the record names go, before anybody can read them. Payloads go as those of any deletion: the
    reconciler finishes it."""
    after: str | None = ""
    while after is not None:
        records, after = await list_deletions(core, after, _AT_ONCE)
        for record in records:
            await _delete(core, record)
        # Payloads whose messages nobody knows any more must not be adopted.
        names = [name for record in records if isinstance(name := _what(record).get("object_name"), str)]
        if names:
            await core.restores.discard_deleted(names)


def _what(record: dict[str, Any]) -> dict[str, Any]:
    return record["what"] if isinstance(record.get("what"), dict) else {}


async def _delete(core: Core, record: dict[str, Any]) -> None:
    what = _what(record)
    upto = what.get("upto")
    again = {
        "id": record["id"],
        "kind": what["kind"],
        "subject": what["subject"],
        "who": record["who"],
        "reason": record["reason"],
        "sequences": [int(sequence) for sequence in what["sequences"]],
        "upto": None if upto is None else int(upto),
        "object_name": what.get("object_name"),
    }
    await core.restores.delete_again(again)
