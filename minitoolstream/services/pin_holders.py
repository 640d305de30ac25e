"""Who holds a content: its owner and messages. What they need together decides how many copies there are, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from minitoolstream.domain.catalog_tables import PINS, REFS
from minitoolstream.domain.cid import Cid
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.pin import NOBODY, ZONES, Pin, pin_of
from minitoolstream.ports.catalog import Row
from minitoolstream.services.core import Core

REFS_READ = 1000
"""So many of a content's messages are looked at: those of one subject want the same. While there are more, what all of
them need does not become less."""
TRIES = 32
_KEPT = frozenset({ZONES, "mts.source", "mts.message"})
"""Of a pin's metadata: what is not its owner's."""


async def find_pin(core: Core, cid: Cid) -> Pin | None:
    """Also one that is being unpinned."""
    row = await core.catalog.get(PINS, cid.key)
    return pin_of(row) if row is not None else None


async def change_pin(core: Core, before: Pin, after: Pin) -> bool:
    """False when it is not as `before` any more."""
    return await core.catalog.put_if(PINS, after.row(), _as_read(before)) is None


async def is_still(core: Core, pin: Pin) -> bool:
    """Whether nobody has changed it since it was read: decided where its changes are, and before those that come."""
    return await core.catalog.put_if(PINS, {**pin.cid.columns, "status": pin.status}, _as_read(pin)) is None


async def delete_row(core: Core, pin: Pin) -> bool:
    """False when it is not as it was read any more."""
    return await core.catalog.delete_if(PINS, pin.key, _as_read(pin))


def _as_read(pin: Pin) -> Row:
    """Rows of version 1.0.0 have no version, nor has a row that is gone: the time at which it was made tells them
    apart."""
    return {"version": pin.version, "created_at": pin.created_at}


def released(pin: Pin) -> Pin:
    """Without its owner and what that said of it; where its bytes are stays."""
    metadata = {name: value for name, value in pin.metadata.items() if name in _KEPT}
    return replace(pin, owner=NOBODY, expires_at=None, tags=frozenset(), metadata=metadata, priority=0)


def busy(cid: Cid) -> MtsError:
    return unavailable(f"{cid} is being changed by many at once: try again")


async def refs_of(core: Core, cid: Cid) -> list[Row]:
    return await core.catalog.page(REFS, (cid.binary,), REFS_READ)


def with_needs(pin: Pin, refs: Sequence[Row], *, rf: int | None = None, zones: frozenset[str] | None = None) -> Pin:
    """The pin with what its owner (`rf`, `zones`) and its messages need together."""
    owned = pin.owner != NOBODY
    needs = [(int(ref["rf"] or 1), frozenset(ref["zones"])) for ref in refs]
    own_rf = (pin.own_rf if rf is None else rf) if owned else 0
    own_zones = (pin.own_zones if zones is None else zones) if owned else frozenset()
    if owned:
        needs.append((own_rf, own_zones))
    if len(refs) >= REFS_READ:  # others may need what was needed so far
        needs.append((pin.rf, pin.zones))
    everywhere = not needs or any(not one for _, one in needs)
    together = frozenset() if everywhere else frozenset().union(*(one for _, one in needs))
    metadata = dict(pin.metadata)
    _set(metadata, "mts.rf", str(own_rf) if owned else "")
    _set(metadata, "mts.own_zones", ",".join(sorted(own_zones)))
    _set(metadata, ZONES, ",".join(sorted(together)))
    return replace(pin, rf=max((one for one, _ in needs), default=1), metadata=metadata)


def _set(metadata: dict[str, Any], name: str, value: str) -> None:
    if value:
        metadata[name] = value
    else:
        metadata.pop(name, None)
