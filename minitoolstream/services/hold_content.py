"""References: messages that hold a content. The same bytes published twice are one entry with two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from minitoolstream.domain.catalog_tables import PINS, REFS
from minitoolstream.domain.cid import Cid
from minitoolstream.domain.pin import NOBODY, QUEUED, UNPINNING, Pin, next_version
from minitoolstream.ports.catalog import Change, Delete, Put
from minitoolstream.services.core import Core
from minitoolstream.services.pin_holders import TRIES, busy, change_pin, find_pin, refs_of, released, with_needs
from minitoolstream.services.place_copies import count, event, followers, look_again, look_before, unlisted


@dataclass(frozen=True, slots=True)
class Reference:
    """`name` is the message's, for ever; its bytes are in the messages' bucket at `first_byte` of an object."""

    name: str
    rf: int
    zones: frozenset[str]
    object_name: str
    first_byte: int | None
    size: int

    @property
    def source(self) -> dict[str, str]:
        """As a pin keeps it: then its first copy needs no look at its references."""
        return {"mts.source": f"{self.first_byte or 0} {self.size} {self.object_name}"}


async def hold_content(core: Core, cid: Cid, reference: Reference) -> None:
    """Repeating it changes nothing but the version, in which it meets whoever lets go."""
    now = core.wall()
    row = {
        "cid_bin": cid.binary,
        "ref": reference.name,
        "rf": reference.rf,
        "zones": reference.zones,
        "object_name": reference.object_name,
        "first_byte": reference.first_byte,
        "size": reference.size,
        "created_at": now,
    }
    entry = look_before(cid, now)
    await core.catalog.write([entry, Put(REFS, row)])
    for _ in range(TRIES):
        before = await find_pin(core, cid)
        refs = await refs_of(core, cid)  # behind the pin: who comes in between has changed it
        if all(ref["ref"] != reference.name for ref in refs):
            refs.append(row)
        if before is None:
            fresh = Pin(cid, NOBODY, 1, QUEUED, 1, now, now, metadata=reference.source, size=reference.size)
            fresh = with_needs(fresh, refs)
            if await core.catalog.put_new(PINS, fresh.row()) is None:
                await count(core, cid, 1, reference.size)
                return await _follow(core, fresh, None, entry)
            continue
        after = with_needs(_revived(before), refs)
        after = replace(after, version=next_version(before.version), updated_at=now)
        if await change_pin(core, before, after):
            return await _follow(core, after, before, entry)
    raise busy(cid)


async def let_go(core: Core, cid: Cid, names: Sequence[str]) -> bool:
    """These messages are gone. True when nobody holds the content any more: its copies go."""
    now = core.wall()
    deletes: list[Change] = [Delete(REFS, (cid.binary, name)) for name in names]
    entry = look_before(cid, now)
    await core.catalog.write([entry, *deletes])
    for _ in range(TRIES):
        before = await find_pin(core, cid)
        if before is None or before.ended:
            return True
        refs = await refs_of(core, cid)
        held = refs or before.owner != NOBODY
        after = with_needs(before, refs) if held else replace(before, status=UNPINNING)
        after = replace(after, version=next_version(before.version), updated_at=now)
        if await change_pin(core, before, after):
            rows: list[Change] = [unlisted(before)] if after.ended else []
            await core.catalog.write([*rows, event(cid, now, "let go", "expiry"), *look_again(entry, cid, core.wall())])
            return after.ended
    raise busy(cid)


def _revived(pin: Pin) -> Pin:
    return replace(released(pin), status=QUEUED, metadata={}) if pin.ended else pin


async def _follow(core: Core, pin: Pin, before: Pin | None, entry: Put) -> None:
    changes, _ = await followers(core, pin, before, entry)
    await core.catalog.write(changes)
