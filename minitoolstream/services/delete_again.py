"""What was deleted for good stays deleted: a restore may bring back rows of before, the record in the bucket does not
forget."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from minitoolstream.domain.backup import made_at_ms
from minitoolstream.domain.keys import PAYLOAD_PREFIX
from minitoolstream.domain.subject import upload_id_of
from minitoolstream.services.core import Core
from minitoolstream.services.delete_messages import list_deletions

_AT_ONCE = 1_000
_CLOCKS_DIFFER = 300  # seconds, at most (rule 27)


async def delete_again(core: Core) -> None:
    """Rows of what the record names go, before anybody can read them. Payloads go as those of any deletion: the
    reconciler finishes it."""
    async for records in _pages(core):
        for record in records:
            await _delete(core, record)
        # Payloads whose messages nobody knows any more must not be adopted.
        names = [name for record in records if isinstance(name := _what(record).get("object_name"), str)]
        for record in records:
            names += await _purged_payloads(core, record) if _what(record).get("kind") == "subject" else ()
        for start in range(0, len(names), _AT_ONCE):
            await core.restores.discard_deleted(names[start : start + _AT_ONCE])


async def newest_purges(core: Core) -> dict[str, dict[str, Any]]:
    """By subject, the last purge on record {id, subject, at, who, reason, upto}."""
    found: dict[str, dict[str, Any]] = {}
    async for records in _pages(core):
        for record in records:
            what = _what(record)
            if what.get("kind") == "subject":
                more = {"at": record["when"], "who": record["who"], "reason": record["reason"]}
                upto = int(what["upto"])
                found[what["subject"]] = {"id": record["id"], "subject": what["subject"], "upto": upto, **more}
    return found


async def _pages(core: Core) -> AsyncIterator[list[dict[str, Any]]]:
    after: str | None = ""
    while after is not None:
        records, after = await list_deletions(core, after, _AT_ONCE)
        yield records


async def _purged_payloads(core: Core, record: dict[str, Any]) -> list[str]:
    """Payloads that the subject had when it was purged: announced before, and stored before, as far as the store's
    clock can tell. Few are left, and those that rows point at stay."""
    found: list[str] = []
    prefix = f"{PAYLOAD_PREFIX}{_what(record)['subject']}/"
    after = ""
    while page := await core.payloads.list_after(prefix, after, _AT_ONCE):
        after = page[-1].name
        for name in [info.name for info in page]:
            upload_id = upload_id_of(name)
            if upload_id is None or made_at_ms(upload_id) > (record["when"] + 1) * 1000:
                continue
            about = await core.payloads.about(name)
            if about is not None and about.modified <= record["when"] + _CLOCKS_DIFFER:
                found.append(name)
    return found


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
