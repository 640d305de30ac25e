"""Holders that come and go between two reads of others, and looks that are met before what they are about."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from minitoolstream.domain.catalog_tables import PINS, REFS, Table
from minitoolstream.domain.pin import Wish
from minitoolstream.services.copy_content import key_of
from minitoolstream.services.hold_content import Reference, hold_content, let_go
from minitoolstream.services.manage_pins import create_pin, delete_pin, update_pin
from minitoolstream.services.pin_holders import find_pin
from minitoolstream.services.reconcile_copies import reconcile_copies
from tests.catalog_kit import ALICE, CatalogKit
from tests.catalog_steps import BODY, CID, holders, published, run


class Between:
    """A catalog, and what somebody else does once behind a read of this table or before a change of it."""

    def __init__(self, store: Any, table: Table, work: Callable[[], Awaitable[Any]], method: str) -> None:
        self._store, self._table, self._work, self._method = store, table, work, method

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name != self._method:
            return method

        async def call(table: Table, *given: Any, **more: Any) -> Any:
            before = name.startswith("put")
            if table is self._table and before:
                await self._once()
            found = await method(table, *given, **more)
            if table is self._table and not before:
                await self._once()
            return found

        return call

    async def _once(self) -> None:
        work, self._work = self._work, _nothing
        await work()


async def _nothing() -> None: ...


@pytest.mark.parametrize("silent", [1, 2])
async def test_a_store_that_says_nothing_of_a_copy_that_is_to_go_is_asked_again(kit: CatalogKit, silent: int) -> None:
    """As one does whose answer does not come: the name is not among those that are gone."""
    await published(kit, rf=1)
    await run(kit)
    (peer,) = holders(kit)
    kit.peers.stores[peer].being_written.add(key_of(CID))
    await let_go(kit.core, CID, [f"m/{BODY.hex()[:20]}"])
    for _ in range(silent):
        await run(kit, 60)
    assert await find_pin(kit.core, CID) is not None
    kit.peers.stores[peer].being_written.clear()
    await run(kit, 60)
    assert (holders(kit), await find_pin(kit.core, CID)) == (set(), None)


@pytest.mark.parametrize("by", ["owner", "message"])
async def test_what_is_unpinned_while_the_reconciler_looks_at_it_is_looked_at_again(kit: CatalogKit, by: str) -> None:
    """The entry that is written ahead is met before the pin has changed."""
    if by == "owner":
        kit.peers.stores["eu"].client_put(key_of(CID), BODY)
        await create_pin(kit.core, ALICE, CID, Wish(rf=2))
    else:
        await published(kit)
    await run(kit)
    await run(kit)
    kit.core.catalog = cast(Any, Between(kit.store, PINS, lambda: reconcile_copies(kit.core), "put_if"))
    if by == "owner":
        await delete_pin(kit.core, ALICE, CID)
    else:
        await let_go(kit.core, CID, [f"m/{BODY.hex()[:20]}"])
    kit.core.catalog = kit.store
    await run(kit)
    assert (holders(kit), await find_pin(kit.core, CID)) == (set(), None)


async def test_a_change_in_the_moment_of_a_look_is_looked_at_again(kit: CatalogKit) -> None:
    """Both entries are of the same millisecond."""
    kit.peers.stores["eu"].client_put(key_of(CID), BODY)
    await create_pin(kit.core, ALICE, CID, Wish(rf=1))
    await run(kit)
    await run(kit)
    queued = asyncio.Event()
    changed = asyncio.Event()

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(kit.store, name)

        async def write_in_order(self, steps: Sequence[Sequence[Any]]) -> None:
            queued.set()
            await changed.wait()
            await kit.store.write_in_order(steps)

    async def look() -> None:
        kit.core.catalog = cast(Any, Slow())
        looking.append(asyncio.create_task(reconcile_copies(kit.core)))
        await queued.wait()
        kit.core.catalog = cast(Any, kit.store)

    looking: list[asyncio.Task[Any]] = []
    kit.core.catalog = cast(Any, Between(kit.store, PINS, look, "put_if"))
    await update_pin(kit.core, ALICE, CID, Wish(rf=3))
    changed.set()
    await looking[0]
    kit.core.catalog = kit.store
    await run(kit)
    assert len(holders(kit)) == 3


async def hold(kit: CatalogKit, name: str, rf: int) -> None:
    await hold_content(kit.core, CID, Reference(name, rf, frozenset(), f"m/{name}", None, len(BODY)))


async def test_a_message_that_comes_between_two_reads_of_another_has_its_copies(kit: CatalogKit) -> None:
    kit.kit.payloads.client_put("m/x", BODY)
    await hold(kit, "x", 1)
    kit.core.catalog = cast(Any, Between(kit.store, REFS, lambda: hold(kit, "z", 3), "page"))
    await hold(kit, "y", 1)
    kit.core.catalog = kit.store
    pin = await find_pin(kit.core, CID)
    assert pin is not None
    assert pin.rf == 3


async def test_a_message_that_comes_while_an_owner_pins_has_its_copies(kit: CatalogKit) -> None:
    await hold(kit, "x", 1)
    get, page = kit.store.get, kit.store.page
    read = asyncio.Event()

    class Apart:
        """A pin is read behind its messages, between which another comes."""

        def __getattr__(self, name: str) -> Any:
            return getattr(kit.store, name)

        async def page(self, table: Table, *given: Any, **more: Any) -> Any:
            found = await page(table, *given, **more)
            if table is REFS and not read.is_set():
                kit.core.catalog = kit.store
                await hold(kit, "z", 3)
                kit.core.catalog = cast(Any, self)
                read.set()
            return found

        async def get(self, table: Table, key: Any) -> Any:
            if table is PINS:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(read.wait(), 0.3)
            return await get(table, key)

    kit.core.catalog = cast(Any, Apart())
    state, _ = await create_pin(kit.core, ALICE, CID, Wish(rf=1))
    assert state.pin.rf == 3


async def test_more_messages_than_are_looked_at_do_not_outvote_one(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitoolstream.services.pin_holders.REFS_READ", 3)
    for name in "abcd":
        await hold(kit, name, 1)
    await hold(kit, "z", 3)
    await hold(kit, "aa", 1)
    await let_go(kit.core, CID, ["b"])
    pin = await find_pin(kit.core, CID)
    assert pin is not None
    assert pin.rf == 3
