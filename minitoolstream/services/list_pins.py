"""An owner's pins, the newest first, by time, status, name and tags; pages cost the same wherever they begin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from minitoolstream.domain.catalog_tables import BY_OWNER, OWNER_DAYS, PINS, PLACEMENTS
from minitoolstream.domain.cid import Cid, read_binary, read_cid
from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.pin import SHOWN, Pin, day_of, pin_of
from minitoolstream.ports.catalog import Row
from minitoolstream.services.core import Core
from minitoolstream.services.manage_pins import PinState

_AT_ONCE = 200
LOOKED_AT = 10_000
"""Most pins that one request looks at; it says where to go on."""
_DAYS = 100


@dataclass(frozen=True, slots=True)
class PinFilter:
    """`match`: exact, iexact, partial, ipartial. `metadata`: names and values that a pin must have."""

    statuses: frozenset[str] = frozenset(SHOWN)
    name: str | None = None
    match: str = "exact"
    tag: str | None = None
    cids: frozenset[Cid] | None = None
    before: datetime | None = None
    after: datetime | None = None
    metadata: Mapping[str, str] | None = None

    def takes(self, pin: Pin) -> bool:
        """Whether it fits in all but its status, which its placement tells."""
        fits = not pin.ended and (self.tag is None or self.tag in pin.tags)
        fits = fits and (self.before is None or pin.created_at < self.before)
        fits = fits and (self.after is None or pin.created_at > self.after)
        fits = fits and all(pin.own_metadata.get(name) == value for name, value in (self.metadata or {}).items())
        return fits and (self.name is None or self._named(pin.name or ""))

    def _named(self, name: str) -> bool:
        wanted = self.name or ""
        if self.match in ("iexact", "ipartial"):
            name, wanted = name.casefold(), wanted.casefold()
        return name == wanted if self.match in ("exact", "iexact") else wanted in name


@dataclass(frozen=True, slots=True)
class PinPage:
    """`next`: where the next page begins; None at the end."""

    pins: list[PinState]
    next: str | None


async def list_pins(core: Core, owner: str, wanted: PinFilter, limit: int, cursor: str | None = None) -> PinPage:
    if wanted.cids is not None:
        return await _named(core, owner, wanted, limit)
    found: list[PinState] = []
    looked, last = 0, None
    async for rows in _backwards(core, owner, wanted, read_cursor(cursor) if cursor else None):
        fitting = await _fitting(core, wanted, rows)
        for row in rows:
            if looked >= LOOKED_AT or len(found) == limit:
                assert last is not None
                return PinPage(found, write_cursor(last))
            looked, last = looked + 1, row
            if row["cid_bin"] in fitting:
                found.append(fitting[row["cid_bin"]])
    return PinPage(found, None)


async def list_by_time(core: Core, owner: str, wanted: PinFilter, limit: int) -> PinPage:
    """For callers who go on with `before` the last one's time: a page has at least one pin unless it is the last, and
    pins of the same moment come in one page."""
    page = await list_pins(core, owner, wanted, limit)
    if wanted.cids is not None and page.next:  # they are few: all of the last one's moment come along
        every = await list_pins(core, owner, wanted, len(wanted.cids))
        last = page.pins[-1].pin.created_at
        return PinPage([state for state in every.pins if state.pin.created_at >= last], page.next)
    while not page.pins and page.next:
        page = await list_pins(core, owner, wanted, limit, page.next)
    if not page.next:
        return page
    last = page.pins[-1].pin.created_at
    earlier = [state for state in page.pins if state.pin.created_at != last]
    if earlier:
        return PinPage(earlier, page.next)
    # All of one moment: then these, and the rest of them, however many there are.
    return PinPage(page.pins + await _rest_of(core, owner, wanted, page, last), page.next)


async def _rest_of(core: Core, owner: str, wanted: PinFilter, page: PinPage, moment: datetime) -> list[PinState]:
    found: list[PinState] = []
    while page.next:
        page = await list_pins(core, owner, wanted, _AT_ONCE, page.next)
        same = [state for state in page.pins if state.pin.created_at == moment]
        found += same
        if len(same) < len(page.pins):
            break
    return found


async def _fitting(core: Core, wanted: PinFilter, rows: list[Row]) -> dict[bytes, PinState]:
    """Pins that these entries of a list lead to, if they are wanted. An entry may be older than its pin, which has
    another owner then, or begun anew."""
    keys = [read_binary(row["cid_bin"]).key for row in rows]
    current = [
        pin_of(there)
        for row, there in zip(rows, await core.catalog.get_many(PINS, keys), strict=True)
        if there is not None and (there["owner"], there["created_at"]) == (row["owner"], row["created_at"])
    ]
    return {state.pin.cid.binary: state for state in await _placed(core, wanted, current)}


async def _backwards(
    core: Core, owner: str, wanted: PinFilter, place: tuple[datetime, Cid] | None
) -> AsyncIterator[list[Row]]:
    """Entries of an owner's list, the newest first."""
    newest = place[0] if place else wanted.before
    day_after: tuple[str, ...] = (day_of(newest) + "~",) if newest else ()
    while True:
        days = await core.catalog.page(OWNER_DAYS, (owner,), _DAYS, after=day_after, descending=True)
        for day in (row["day"] for row in days):
            if wanted.after is not None and day < day_of(wanted.after):
                return
            behind: tuple[object, ...] = ()
            if place is not None and day == day_of(place[0]):
                behind = (place[0], place[1].binary)
            elif wanted.before is not None and day == day_of(wanted.before):
                behind = (wanted.before,)
            while True:
                rows = await core.catalog.page(BY_OWNER, (owner, day), _AT_ONCE, after=behind, descending=True)
                if rows:
                    yield rows
                    behind = (rows[-1]["created_at"], rows[-1]["cid_bin"])
                if len(rows) < _AT_ONCE:
                    break
        if len(days) < _DAYS:
            return
        day_after = (days[-1]["day"],)


async def _named(core: Core, owner: str, wanted: PinFilter, limit: int) -> PinPage:
    keys = [cid.key for cid in wanted.cids or ()]
    pins = [pin_of(row) for row in await core.catalog.get_many(PINS, keys) if row is not None]
    mine = sorted((pin for pin in pins if pin.owner == owner), key=lambda pin: pin.created_at, reverse=True)
    found = await _placed(core, wanted, mine)
    more = len(found) > limit
    return PinPage(found[:limit], write_cursor(found[limit - 1].pin.row()) if more else None)


async def _placed(core: Core, wanted: PinFilter, pins: list[Pin]) -> list[PinState]:
    fitting = [pin for pin in pins if wanted.takes(pin)]
    placements = await core.catalog.get_many(PLACEMENTS, [pin.key for pin in fitting])
    states = [PinState(pin, placement or {}) for pin, placement in zip(fitting, placements, strict=True)]
    return [state for state in states if state.status in wanted.statuses]


def write_cursor(row: Row) -> str:
    return f"{row['created_at'].isoformat()}_{read_binary(row['cid_bin'])}"


def read_cursor(cursor: str) -> tuple[datetime, Cid]:
    moment, _, cid = cursor.partition("_")
    try:
        told = datetime.fromisoformat(moment.replace(" ", "+"))  # a + that came unescaped
        at = told.astimezone(UTC)
    except (ValueError, OverflowError):
        raise bad_request("cursor is not one that a list has given", field="cursor") from None
    if told.tzinfo is None:
        raise bad_request("cursor is not one that a list has given", field="cursor")
    return at, read_cid(cid, "cursor")
