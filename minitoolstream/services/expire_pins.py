"""Pins whose time has come, hour by hour. Each is unpinned once, whoever dies in between."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from minitoolstream.domain.catalog_tables import TTL_QUEUE
from minitoolstream.domain.cid import read_binary
from minitoolstream.domain.pin import Pin, buckets_between
from minitoolstream.ports.catalog import Delete, Key, Row
from minitoolstream.services.claims import give_up_claim, place_of, take_claim
from minitoolstream.services.core import Core
from minitoolstream.services.due_windows import looked_at, read_seen, windows
from minitoolstream.services.manage_pins import end_pin
from minitoolstream.services.pin_holders import find_pin

NAME = "ends"
"""Of its claim. That of versions before, `expiry`, has another kind of place."""
_PAGE = 200
_FIRST_LOOK_BACK = timedelta(days=31)
_STILL_COMING = timedelta(hours=4)
"""All of the queue is looked at every two hours: what came up to two hours late since then is found."""


async def expire_pins(core: Core) -> int:
    """How many were unpinned."""
    holder, now = secrets.token_hex(8), core.wall()
    if not await take_claim(core, NAME, holder):
        return 0
    expired, place = 0, None
    try:
        seen = read_seen(await place_of(core, NAME))
        beginning = max(min(seen.upto, now) - _STILL_COMING, now - _FIRST_LOOK_BACK)
        for begin, end in windows(seen, now, beginning):
            for bucket in buckets_between(begin, end):
                # What was over when it was written stands before all others.
                expired += await _expire_until(core, bucket, (), min(bucket, end))
                expired += await _expire_until(core, bucket, (max(begin, bucket),), end)
                if not await take_claim(core, NAME, holder):
                    return expired
        place = str(looked_at(seen, now, now))
    finally:
        await give_up_claim(core, NAME, holder, place)
    return expired


async def _expire_until(core: Core, bucket: datetime, after: Key, until: datetime) -> int:
    expired = 0
    while entries := await core.catalog.page(TTL_QUEUE, (bucket,), _PAGE, after=after, until=(until,)):
        for entry in entries:
            expired += await _expire(core, entry)
        await core.catalog.write_each(
            [Delete(TTL_QUEUE, (bucket, entry["ttl"], entry["cid_bin"])) for entry in entries]
        )
        after = (entries[-1]["ttl"], entries[-1]["cid_bin"])
    return expired


async def _expire(core: Core, entry: Row) -> bool:
    """A pin whose time was changed has another entry, and this one means nothing."""
    pin = await find_pin(core, read_binary(entry["cid_bin"]))
    if pin is None or pin.ended or pin.expires_at != entry["ttl"]:
        return False

    def is_due(found: Pin) -> bool:
        return bool(found.expires_at == entry["ttl"])

    return await end_pin(core, pin, "expiry", "expired", is_due)
