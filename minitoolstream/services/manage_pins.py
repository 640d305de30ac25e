"""Pins: made, read, changed and ended by their owners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from minitoolstream.domain.catalog_tables import BY_PEER, PINS, PLACEMENTS
from minitoolstream.domain.cid import Cid, read_cid
from minitoolstream.domain.errors import MtsError, not_found
from minitoolstream.domain.pin import (
    FAILED,
    NOBODY,
    QUEUED,
    STATUSES,
    UNPINNING,
    ZONES,
    Pin,
    Wish,
    check_version,
    check_wish,
    next_version,
    no_such_pin,
    stale,
    status_of,
)
from minitoolstream.domain.placement import Peer, check_rf, next_look
from minitoolstream.ports.catalog import Change, Put, Row
from minitoolstream.services.core import Core
from minitoolstream.services.operations import Operation
from minitoolstream.services.pin_holders import TRIES, busy, change_pin, find_pin, refs_of, released, with_needs
from minitoolstream.services.pin_message import content_of
from minitoolstream.services.place_copies import (
    count,
    event,
    expires,
    followers,
    listed,
    live_peers,
    look_again,
    look_before,
    soon,
    unlisted,
)


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks. `all_owners`: may act on everybody's pins."""

    owner: str
    all_owners: bool = False

    def may(self, pin: Pin) -> bool:
        return self.all_owners or pin.owner == self.owner


@dataclass(frozen=True, slots=True)
class PinState:
    """A pin with where its copies are; `placement` is empty while none was chosen. `failures`: rows of peers where one
    could not be made; lists do without."""

    pin: Pin
    placement: Row
    failures: Sequence[Row] = ()

    @property
    def status(self) -> str:
        return STATUSES[status_of(self.pin, self.placement)]

    @property
    def size(self) -> int | None:
        """None as long as nobody has seen its bytes."""
        return self.pin.size if self.pin.size is not None else self.placement.get("size")

    @property
    def again_at(self) -> datetime | None:
        """When what failed is due again; None while it is under way."""
        tries, last = self.placement.get("reconcile_count"), self.placement.get("last_reconcile")
        if not tries or last is None or self.placement["desired"] & self.placement["in_progress"]:
            return None
        return soon(last, next_look(tries))


async def create_pin(
    core: Core, actor: Actor, cid: Cid, wish: Wish, operation_id: str | None = None
) -> tuple[PinState, bool]:
    """The pin, and whether it is new. One that its owner has already is changed to what is asked for."""
    operation = Operation(core, actor.owner, operation_id, "create", cid.text, *_words(wish))
    return await _create(core, actor, cid, wish, operation)


async def pin_sequence(
    core: Core, actor: Actor, sequence: int, wish: Wish, operation_id: str | None = None
) -> tuple[PinState, bool]:
    """The same, of a message's payload. A repeated operation is answered also when the message has gone."""
    operation = Operation(core, actor.owner, operation_id, "create", sequence, *_words(wish))
    if (answer := await operation.earlier()) is not None:
        return await get_pin(core, actor, read_cid(answer["cid"])), bool(answer["created"])
    cid, source = await content_of(core, sequence)
    return await _create(core, actor, cid, replace(wish, source=source, message=sequence), operation)


async def _create(core: Core, actor: Actor, cid: Cid, wish: Wish, operation: Operation) -> tuple[PinState, bool]:
    if (answer := await operation.earlier()) is None:
        check_wish(wish, core.wall())
        peers, there = await asyncio.gather(live_peers(core), find_pin(core, cid))
        _check_new(core, actor, wish, there, peers)
        answer = await operation.begin()
    if answer is not None:
        return await get_pin(core, actor, cid), bool(answer["created"])
    entry = await _plan(core, cid, wish)
    pin, before = await _write_new(core, actor, cid, wish, there=there, peers=peers)
    created = before is None or before.owner == NOBODY or before.ended
    changes, placement = await followers(core, pin, before, entry, peers)
    at = max(pin.updated_at, pin.created_at)  # its owner sees what was done since it was made
    written = core.catalog.write([*changes, event(cid, at, "pinned", actor.owner, rf=pin.rf)])
    await asyncio.gather(written, *([count(core, cid, 1, pin.size or 0)] if before is None else []))
    await operation.done(created=created, cid=cid.text)
    return PinState(pin, placement), created


async def replace_pin(core: Core, actor: Actor, old: Cid, cid: Cid, wish: Wish) -> PinState:
    """The new one is there before the old one goes."""
    _check_owned(await _own(core, actor, old))
    state, _ = await create_pin(core, actor, cid, wish)
    if cid != old:
        await delete_pin(core, actor, old)
    return state


async def get_pin(core: Core, actor: Actor, cid: Cid) -> PinState:
    pin = await _own(core, actor, cid)
    placement = await core.catalog.get(PLACEMENTS, pin.key) or {}
    # What failed is in progress again while it is tried again.
    asked = {*placement["failed"], *placement["in_progress"]} if placement.get("reconcile_count") else ()
    rows = await core.catalog.get_many(BY_PEER, [(peer, *pin.key) for peer in sorted(asked)])
    return PinState(pin, placement, [row for row in rows if row is not None and row["state"] == FAILED])


async def update_pin(
    core: Core, actor: Actor, cid: Cid, wish: Wish, *, version: int | None = None, operation_id: str | None = None
) -> PinState:
    """With `version`, only when that is the current one: of two that change it, one is told so."""
    operation = Operation(core, actor.owner, operation_id, "update", cid.text, version, *_words(wish))
    if await operation.earlier() is not None:
        return await get_pin(core, actor, cid)
    now = core.wall()
    check_wish(wish, now)
    check_version(version)
    before = await _own(core, actor, cid, version)
    peers = await live_peers(core)
    _check_again(before, wish, peers)
    if await operation.begin() is not None:
        return await get_pin(core, actor, cid)
    entry = await _plan(core, cid, wish)
    for _ in range(TRIES):
        after = _changed(core, before, wish, await refs_of(core, cid))
        if await change_pin(core, before, after):
            break
        before = await _own(core, actor, cid, version)
    else:
        raise busy(cid)
    changes, placement = await followers(core, after, before, entry, peers)
    await core.catalog.write([*changes, event(cid, now, "updated", actor.owner)])
    await operation.done(version=after.version)
    return PinState(after, placement)


async def delete_pin(
    core: Core, actor: Actor, cid: Cid, version: int | None = None, operation_id: str | None = None
) -> None:
    """Its copies go when no message holds it either. What only messages hold is nobody's to unpin."""
    check_version(version)
    operation = Operation(core, actor.owner, operation_id, "delete", cid.text, version)
    if await operation.earlier() is not None:
        return
    pin = await _own(core, actor, cid, version)
    _check_owned(pin)
    if await operation.begin() is not None:
        return

    def check(found: Pin) -> None:
        _check_own(actor, found, version)
        _check_owned(found)

    await end_pin(core, pin, actor.owner, "unpinned", check)
    await operation.done()


async def end_pin(core: Core, pin: Pin, actor: str, what: str, check: Callable[[Pin], object]) -> bool:
    """The owner's hold ends. False when the pin had changed, and `check`, called with it as it is, let it be."""
    now = core.wall()
    entry = look_before(pin.cid, now)
    await core.catalog.write([entry])
    for _ in range(TRIES):
        refs = await refs_of(core, pin.cid)
        after = replace(released(pin), version=next_version(pin.version), updated_at=now)
        after = with_needs(after, refs) if refs else replace(after, owner=pin.owner, status=UNPINNING)
        if await change_pin(core, pin, after):
            rows: list[Change] = [unlisted(pin), *(listed(after) if refs else [])]
            await core.catalog.write(
                [*rows, event(pin.cid, now, what, actor), *look_again(entry, pin.cid, core.wall())]
            )
            return True
        found = await find_pin(core, pin.cid)
        if found is None or found.ended:
            return False
        if check(found) is False:
            return False
        pin = found
    raise busy(pin.cid)


async def _own(core: Core, actor: Actor, cid: Cid, version: int | None = None) -> Pin:
    pin = await find_pin(core, cid)
    if pin is None or pin.ended:
        raise no_such_pin(cid)
    _check_own(actor, pin, version)
    return pin


def _check_own(actor: Actor, pin: Pin, version: int | None) -> None:
    if not actor.may(pin):
        raise no_such_pin(pin.cid) if pin.owner == NOBODY else _anothers(pin.cid)
    if version is not None and pin.version != version:
        raise stale(pin, version)


def _check_owned(pin: Pin) -> None:
    if pin.owner == NOBODY:
        raise not_found(f"only messages hold {pin.cid}: its copies go with them", cid=pin.cid.text)


def _anothers(cid: Cid) -> MtsError:
    return MtsError("forbidden", f"{cid} is pinned by another owner")


async def _plan(core: Core, cid: Cid, wish: Wish) -> Put:
    """What must not be forgotten is written before the pin itself. The reconciler's entry is returned."""
    now = core.wall()
    entry = look_before(cid, now)
    ahead: list[Change] = [entry]
    if wish.expires_at is not None:
        ahead.append(expires(cid, wish.expires_at, now))
    await core.catalog.write(ahead)
    return entry


def _is_own(actor: Actor, pin: Pin | None) -> bool:
    return pin is not None and pin.owner == actor.owner and not pin.ended


def _check_new(core: Core, actor: Actor, wish: Wish, there: Pin | None, peers: Sequence[Peer]) -> None:
    if there is not None and there.owner not in (NOBODY, actor.owner) and not there.ended:
        raise _anothers(there.cid)
    if there is None or not _is_own(actor, there):
        check_rf(rf_of(core, wish), peers, wish.zones or ())
    else:
        _check_again(there, wish, peers)


def _check_again(there: Pin, wish: Wish, peers: Sequence[Peer]) -> None:
    """What is not named stays as it is, and must fit what is."""
    if wish.rf is not None or wish.zones is not None:
        rf = there.own_rf if wish.rf is None else wish.rf
        check_rf(rf, peers, there.own_zones if wish.zones is None else wish.zones)


async def _write_new(
    core: Core, actor: Actor, cid: Cid, wish: Wish, *, there: Pin | None, peers: Sequence[Peer]
) -> tuple[Pin, Pin | None]:
    """The pin as it is now, and as it was."""
    now, first_wish = core.wall(), replace(wish, rf=rf_of(core, wish))
    for _ in range(TRIES):
        refs = await refs_of(core, cid)  # behind the pin: who comes in between has changed it
        if there is None:
            fresh = _changed(core, Pin(cid, actor.owner, 1, QUEUED, None, now, now), first_wish, refs)
            fresh = replace(fresh, size=fresh.source[1] if fresh.source else None)
            if await core.catalog.put_new(PINS, fresh.row()) is None:
                return fresh, None
        else:
            anew = not _is_own(actor, there)
            pin = _taken_over(there, actor.owner, now) if anew else there
            after = _changed(core, pin, first_wish if anew else wish, refs)
            if await change_pin(core, there, after):
                return after, there
        there = await find_pin(core, cid)
        _check_new(core, actor, wish, there, peers)
    raise busy(cid)


def _taken_over(pin: Pin, owner: str, now: datetime) -> Pin:
    """What nobody had pinned, or was being unpinned, begins anew; its version goes on, and what messages need."""
    return replace(
        pin,
        owner=owner,
        created_at=max(now, pin.created_at),
        expires_at=None,
        tags=frozenset(),
        metadata={name: value for name, value in pin.metadata.items() if name == ZONES},
        priority=0,
        status=QUEUED,
    )


def _changed(core: Core, pin: Pin, wish: Wish, refs: list[Row]) -> Pin:
    metadata = {name: value for name, value in pin.metadata.items() if name.startswith("mts.")}
    metadata |= pin.own_metadata if wish.metadata is None else dict(wish.metadata)
    if wish.name is not None:
        metadata["mts.name"] = wish.name
    if wish.source is not None:
        metadata["mts.source"] = wish.source
    if wish.message is not None:
        metadata["mts.message"] = str(wish.message)
    after = replace(
        pin,
        tags=pin.tags if wish.tags is None else wish.tags,
        metadata=metadata,
        priority=pin.priority if wish.priority is None else wish.priority,
        expires_at=None if wish.keep else wish.expires_at or pin.expires_at,
        version=next_version(pin.version),
        updated_at=core.wall(),
    )
    return with_needs(after, refs, rf=wish.rf, zones=wish.zones)


def rf_of(core: Core, wish: Wish) -> int:
    return int(core.settings["catalog.rf"]) if wish.rf is None else wish.rf


def _words(wish: Wish) -> tuple[object, ...]:
    named = (wish.rf, wish.name, wish.tags, wish.metadata, wish.zones, wish.priority)
    return (*named, wish.expires_at, wish.keep)
