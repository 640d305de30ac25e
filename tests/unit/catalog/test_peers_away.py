"""Peers that hang, lack credentials or answer with something else: they hold up nothing but their own copies."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from minitoolstream.adapters.memory.payloads import MemoryPayloads
from minitoolstream.domain.catalog_tables import PEERS
from minitoolstream.domain.cid import cid_of
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.pin import Wish
from minitoolstream.services.check_catalog import check_catalog
from minitoolstream.services.claims import take_claim
from minitoolstream.services.copy_content import key_of
from minitoolstream.services.hold_content import let_go
from minitoolstream.services.manage_pins import create_pin
from minitoolstream.services.patience import Patience
from minitoolstream.services.reconcile_copies import _Share
from minitoolstream.services.watch_peers import watch_peers
from tests.catalog_kit import ALICE, CatalogKit
from tests.catalog_steps import BODY, CID, holders, published, run


async def test_a_peer_that_cannot_be_asked_does_not_hide_the_next(kit: CatalogKit) -> None:
    kit.peers.stores["asia"].client_put(key_of(CID), BODY)
    await create_pin(kit.core, ALICE, CID, Wish(rf=3))
    payloads = kit.peers.payloads

    def without_keys(peer: str) -> Any:
        if peer == "eu":
            raise MtsError("not_configured", "no credentials for the peer eu: set MTS_CATALOG_PEER_KEYS")
        return payloads(peer)

    kit.peers.payloads = without_keys  # type: ignore[method-assign,assignment]
    await run(kit)
    assert holders(kit) == {"us", "asia"}


class Hanging(MemoryPayloads):
    """Answers its checks, and nothing else before `patience` is over."""

    asked = 0
    patience = 0.05

    async def _hang(self, *_given: Any, **_more: Any) -> Any:
        self.asked += 1
        await asyncio.sleep(self.patience)
        raise unavailable("the object store does not answer")

    put_new = get_begin = get_range = find = delete_many = _hang


async def test_a_peer_that_hangs_is_not_waited_for_by_each_content(kit: CatalogKit) -> None:
    kit.peers.stores["eu"] = hanging = Hanging()
    bodies = [f"body {number}".encode() for number in range(200)]
    for body in bodies:
        await published(kit, body, rf=3)
    await run(kit)
    assert all(holders(kit, body) == {"us", "asia"} for body in bodies)
    assert hanging.asked <= 40


async def test_a_source_that_hangs_is_not_waited_for_by_each_content(kit: CatalogKit) -> None:
    bodies = [f"body {number}".encode() for number in range(100)]
    kit.peers.stores["asia"] = hanging = Hanging()
    for body in bodies:
        kit.peers.stores["us"].client_put(key_of(cid_of(body)), body)
        await create_pin(kit.core, ALICE, cid_of(body), Wish(rf=1, zones=frozenset({"eu"})))
    kit.peers.known = dict(sorted(kit.peers.known.items()))
    assert (await run(kit)).copied == 100
    assert hanging.asked <= 40


async def test_a_peer_that_is_lost_and_hangs_is_not_waited_for_where_its_copies_are_to_go(kit: CatalogKit) -> None:
    bodies = [f"body {number}".encode() for number in range(200)]
    for body in bodies:
        await published(kit, body, rf=1)
    await run(kit)
    kit.peers.stores["eu"], away = Hanging(), kit.peers.stores["eu"]
    for body in bodies:
        await let_go(kit.core, cid_of(body), [f"m/{body.hex()[:20]}"])
    await run(kit)
    hanging = kit.peers.stores["eu"]
    assert isinstance(hanging, Hanging)
    assert hanging.asked <= 200 // 3 + 20
    kit.peers.stores["eu"] = away
    await run(kit, 600)
    assert away.objects == {}
    kit.advance(120)
    assert (await check_catalog(kit.core, deep=True)).found == []


async def test_a_full_peer_can_be_read(kit: CatalogKit) -> None:
    class Full(MemoryPayloads):
        async def put_new(self, *_given: Any, **_more: Any) -> None:
            raise unavailable("no space left", full=True)

    kit.peers.stores["eu"] = full = Full()
    bodies = [f"body {number}".encode() for number in range(9)]
    for body in bodies:
        full.client_put(key_of(cid_of(body)), body)
        await create_pin(kit.core, ALICE, cid_of(body), Wish(rf=2, zones=frozenset({"us", "asia"})))
        await published(kit, body[:5] + b"!" + body, rf=3)
    await run(kit)
    assert all(holders(kit, body) == {"eu", "us", "asia"} for body in bodies)


async def test_a_slice_that_was_lost_removes_nothing_any_more(kit: CatalogKit) -> None:
    """Others of its slices are taken for longer meanwhile."""
    share = _Share(kit.core, "one")
    share.slices, share.ends = [1, 2], math.inf
    assert await take_claim(kit.core, "slice/2", "another")
    await share.take()
    assert (share.has(1), share.has(2)) == (True, False)


async def test_a_peer_that_was_away_for_a_moment_of_a_long_run_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("minitoolstream.services.patience.time.monotonic", lambda: now)
    patience, away = Patience(), unavailable("away")
    for _ in range(3):
        patience.check("eu")
        patience.failed("eu", away)
    with pytest.raises(MtsError, match="away") as caught:
        patience.check("eu")
    assert caught.value.details["not_asked"]
    now += 60
    patience.check("eu")
    patience.failed("eu", away)  # one more is enough
    with pytest.raises(MtsError, match="away"):
        patience.check("eu")
    now += 60
    patience.check("eu")
    patience.answered("eu")
    patience.failed("eu", away)
    patience.check("eu")


async def test_a_deep_check_waits_for_a_peer_that_hangs_some_times_alone(kit: CatalogKit) -> None:
    bodies = [f"body {number}".encode() for number in range(30)]
    for body in bodies:
        await published(kit, body, rf=3)
    await run(kit)
    kit.advance(120)
    kit.peers.stores["eu"] = hanging = Hanging()
    report = await check_catalog(kit.core, deep=True)
    assert [found.kind for found in report.found] == ["peer not reached"] * 30
    assert hanging.asked == 3


async def test_why_a_peer_is_down_is_told_anew_and_since_when_is_not(kit: CatalogKit) -> None:
    why = "one reason"

    class Down(MemoryPayloads):
        async def check(self) -> None:
            raise unavailable(why)

    kit.peers.stores["eu"] = Down()
    first = kit.now
    told = []
    for seconds, reason in ((0, "one reason"), (600, "another reason"), (301, "another reason")):
        kit.advance(seconds)
        why = reason
        await watch_peers(kit.core)
        row = await kit.store.get(PEERS, ("eu",))
        assert row is not None
        assert row["since"] == first
        told.append((row["state"], row["reason"]))
    assert told == [("down", "one reason"), ("down", "another reason"), ("lost", "another reason")]
