"""Pins whose time has come, hour by hour. Each is unpinned once, whoever dies in between."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from minitoolstream.domain.catalog_tables import TTL_QUEUE
from minitoolstream.domain.cid import read_binary
from minitoolstream.domain.pin import Pin, buckets_between, ttl_bucket
from minitoolstream.ports.catalog import Delete, Row
from minitoolstream.services.claims import give_up_claim, place_of, set_place, take_claim
from minitoolstream.services.core import Core
from minitoolstream.services.manage_pins import end_pin
from minitoolstream.services.pin_holders import find_pin

NAME = "expiry"
_PAGE = 200
_FIRST_LOOK_BACK = timedelta(days=31)
_STILL_COMING = timedelta(hours=1)
"""A pin may be written for an hour that has begun, or ended, a moment ago."""


async def expire_pins(core: Core) -> int:
    """How many were unpinned."""
    holder, now = secrets.token_hex(8), core.wall()
    if not await take_claim(core, NAME, holder):
        return 0
    expired = 0
    try:
        text = await place_of(core, NAME)
        first = datetime.fromisoformat(text) if text else now - _FIRST_LOOK_BACK
        for bucket in buckets_between(first, now):
            expired += await _expire_bucket(core, bucket, now)
            if not await take_claim(core, NAME, holder):
                break
        else:
            await set_place(core, NAME, holder, ttl_bucket(now - _STILL_COMING).isoformat())
    finally:
        await give_up_claim(core, NAME, holder)
    return expired


async def _expire_bucket(core: Core, bucket: datetime, now: datetime) -> int:
    expired = 0
    while entries := await core.catalog.page(TTL_QUEUE, (bucket,), _PAGE, until=(now,)):
        for entry in entries:
            expired += await _expire(core, entry)
        await core.catalog.write_each(
            [Delete(TTL_QUEUE, (bucket, entry["ttl"], entry["cid_bin"])) for entry in entries]
        )
    return expired


async def _expire(core: Core, entry: Row) -> bool:
    """A pin whose time was changed has another entry, and this one means nothing."""
    pin = await find_pin(core, read_binary(entry["cid_bin"]))
    if pin is None or pin.ended or pin.expires_at != entry["ttl"]:
        return False

    def is_due(found: Pin) -> bool:
        return bool(found.expires_at == entry["ttl"])

    return await end_pin(core, pin, "expiry", "expired", is_due)
