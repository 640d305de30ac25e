"""Owners, messages, reconcilers and peers in any order, some of them killed: in the end copies are where they are
wanted, nowhere else, and rows say so."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from minitoolstream.domain.catalog_tables import PEERS, PLACEMENTS, REFS
from minitoolstream.domain.cid import Cid, cid_of
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pin import NOBODY, Wish
from minitoolstream.ports.catalog import Change, Put
from minitoolstream.services.check_catalog import check_catalog
from minitoolstream.services.copy_content import key_of
from minitoolstream.services.expire_pins import expire_pins
from minitoolstream.services.hold_content import Reference, hold_content, let_go
from minitoolstream.services.manage_pins import create_pin, delete_pin, update_pin
from minitoolstream.services.pin_holders import find_pin
from minitoolstream.services.reconcile_copies import reconcile_copies
from tests.catalog_kit import ALICE, BOB, CatalogKit, catalog_kit
from tests.catalog_steps import DiedError

PLACES = ("eu", "us", "asia", "af")
BODIES = tuple(f"body {number}".encode() for number in range(4))
REFERENCES = ("x", "y", "z")
ROUNDS = 8
OWNERS_LISTS = ("not in its owner's list", "in the list of one who has it not")


class Mortal:
    """A store whose caller is overtaken by others at any call, and dies after so many changes. Rows of a step are
    written in any order, as an engine without a batch's log may."""

    def __init__(self, store: Any, chance: random.Random, changes: float) -> None:
        self._store, self._chance, self._left = store, chance, changes

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name in ("write_in_order", "write_each"):
            return self._write_in_order if name == "write_in_order" else self._write_each

        async def call(*given: Any, **more: Any) -> Any:
            await self._others_first()
            if name.startswith(("write", "put", "delete", "add")):
                self._live_on()
            return await method(*given, **more)

        return call if asyncio.iscoroutinefunction(method) else method

    async def _write_in_order(self, steps: Sequence[Sequence[Change]]) -> None:
        for step in steps:
            await self._write_each(step)

    async def _write_each(self, changes: Sequence[Change]) -> None:
        for change in self._chance.sample(changes, len(changes)):
            await self._others_first()
            self._live_on()
            await self._store.write([change])

    async def _others_first(self) -> None:
        for _ in range(self._chance.randrange(3)):
            await asyncio.sleep(0)

    def _live_on(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise DiedError


class Life:
    """What happens to some contents, and who shall hold them in the end."""

    def __init__(self, kit: CatalogKit, chance: random.Random) -> None:
        self.kit, self.chance = kit, chance
        self.wanted: dict[bytes, set[str]] = {body: set() for body in BODIES}
        self.killed: set[bytes] = set()
        for body in BODIES:
            kit.kit.payloads.client_put(_name(body), body)

    async def something(self) -> None:
        body = self.chance.choice(BODIES)
        deeds: list[Callable[[bytes], Awaitable[object]]] = [
            self._pin, self._change, self._unpin, self._hold, self._let_go, self._peer, self._expire,
        ]  # fmt: skip
        try:
            with contextlib.suppress(MtsError):
                await self.chance.choice(deeds)(body)
        except DiedError:
            self.killed.add(body)

    async def reconcile(self) -> None:
        with contextlib.suppress(MtsError, DiedError):
            await reconcile_copies(self.kit.core)

    async def end(self) -> None:
        """Peers are back, what was killed half way is done again, and reconcilers have all the time they need."""
        for store in self.kit.peers.stores.values():
            store.down = False
            store.being_written.clear()
        for body, names in self.wanted.items():
            for name in REFERENCES:
                if name not in names:
                    await let_go(self.kit.core, cid_of(body), [name])
                elif body in self.killed:
                    await hold_content(self.kit.core, cid_of(body), _reference(name, body, 2))
        for _ in range(8):
            self.kit.advance(3700)
            await expire_pins(self.kit.core)
            await reconcile_copies(self.kit.core)
        self.kit.advance(120)

    def _who(self) -> Any:
        return self.chance.choice([ALICE, BOB])

    def _zones(self) -> frozenset[str]:
        return frozenset(self.chance.sample(PLACES, 3) if self.chance.random() < 0.3 else ())

    async def _pin(self, body: bytes) -> None:
        end = self.kit.now + timedelta(seconds=self.chance.randrange(61, 4000)) if self.chance.random() < 0.3 else None
        source = f"0 {len(body)} {_name(body)}"
        wish = Wish(rf=self.chance.randrange(1, 3), zones=self._zones(), expires_at=end, source=source)
        await create_pin(self.kit.core, self._who(), cid_of(body), wish)

    async def _change(self, body: bytes) -> None:
        wish = Wish(rf=self.chance.randrange(1, 3), zones=self._zones())
        await update_pin(self.kit.core, self._who(), cid_of(body), wish)

    async def _unpin(self, body: bytes) -> None:
        await delete_pin(self.kit.core, self._who(), cid_of(body))

    async def _hold(self, body: bytes) -> None:
        name = self.chance.choice(REFERENCES)
        self.wanted[body].add(name)
        await hold_content(self.kit.core, cid_of(body), _reference(name, body, self.chance.randrange(1, 4)))

    async def _let_go(self, body: bytes) -> None:
        name = self.chance.choice(REFERENCES)
        self.wanted[body].discard(name)
        await let_go(self.kit.core, cid_of(body), [name])

    async def _peer(self, body: bytes) -> None:
        """It goes or comes, a copy is locked or free, or it is full for a while or not any more."""
        peer, what = self.chance.choice(PLACES), self.chance.randrange(3)
        store = self.kit.peers.stores[peer]
        if what == 0:
            store.down = not store.down
        elif what == 1:
            store.being_written ^= {key_of(cid_of(body))}
        else:
            until = self.kit.now + timedelta(seconds=self.chance.choice([-1, 300]))
            await self.kit.store.write([Put(PEERS, {"peer_id": peer, "full_until": until})])

    async def _expire(self, _body: bytes) -> None:
        await expire_pins(self.kit.core)


def _name(body: bytes) -> str:
    return f"m/{body.decode()}"


def _reference(name: str, body: bytes, rf: int) -> Reference:
    return Reference(name, rf, frozenset(), _name(body), None, len(body))


@pytest.mark.parametrize("seed", range(10))
async def test_copies_are_where_they_are_wanted_and_nowhere_else(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rows are written while others act, not while they sleep.
    monkeypatch.setattr("minitoolstream.services.write_together._LONGEST_REST", 0)
    chance, kit = random.Random(seed), catalog_kit(tmp_path, *PLACES)
    life = Life(kit, chance)
    for _ in range(ROUNDS):
        kit.core.catalog = cast("Any", Mortal(kit.store, chance, chance.choice([5, 15, 40, 1e9, 1e9])))
        kit.advance(chance.choice([0, 0.001, 1, 70, 1000]))
        deeds = [life.something() for _ in range(chance.randrange(1, 6))]
        await asyncio.gather(*deeds, *(life.reconcile() for _ in range(chance.randrange(3))))
    kit.core.catalog = kit.store
    await life.end()
    for body in BODIES:
        await _is_settled(kit, cid_of(body))
    # Who is killed between a pin and its lists leaves those to the check.
    found = (await check_catalog(kit.core, deep=True, mend=True)).found
    assert [one for one in found if one.kind not in OWNERS_LISTS] == []
    assert (await check_catalog(kit.core, deep=True)).found == []
    await kit.store.close()


async def _is_settled(kit: CatalogKit, cid: Cid) -> None:
    pin, placement = await find_pin(kit.core, cid), await kit.store.get(PLACEMENTS, cid.key)
    holders = {peer for peer, store in kit.peers.stores.items() if key_of(cid) in store.objects}
    refs = await kit.store.page(REFS, (cid.binary,), 9)
    if pin is None:
        assert (holders, placement, refs) == (set(), None, [])
        return
    assert placement is not None
    assert placement["actual"] == placement["desired"] == holders
    assert not placement["in_progress"] | placement["failed"]
    needs = [row["rf"] for row in refs] + ([pin.own_rf] if pin.owner != NOBODY else [])
    assert pin.rf == max(needs)
