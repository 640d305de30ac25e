"""What tests of the catalog's copies have in common: a content, what is done with it, and who dies on the way."""

from __future__ import annotations

from typing import Any

from minitoolstream.domain.catalog_tables import PLACEMENTS
from minitoolstream.domain.cid import cid_of
from minitoolstream.services.copy_content import key_of
from minitoolstream.services.hold_content import Reference, hold_content
from minitoolstream.services.manage_pins import PinState
from minitoolstream.services.pin_holders import find_pin
from minitoolstream.services.reconcile_copies import reconcile_copies
from minitoolstream.services.settle_copies import Counts
from tests.catalog_kit import CatalogKit

BODY = b"some bytes"
CID = cid_of(BODY)


async def published(kit: CatalogKit, body: bytes = BODY, rf: int = 2, zones: frozenset[str] = frozenset()) -> None:
    name = f"m/{body.hex()[:20]}"
    if name not in kit.kit.payloads.objects:
        kit.kit.payloads.client_put(name, body)
    await hold_content(kit.core, cid_of(body), Reference(name, rf, zones, name, None, len(body)))


async def run(kit: CatalogKit, seconds: float = 5) -> Counts:
    kit.advance(seconds)
    return await reconcile_copies(kit.core)


def holders(kit: CatalogKit, body: bytes = BODY) -> set[str]:
    return {peer for peer, store in kit.peers.stores.items() if key_of(cid_of(body)) in store.objects}


async def placement(kit: CatalogKit, body: bytes = BODY) -> Any:
    one = cid_of(body)
    return await kit.store.get(PLACEMENTS, (one.prefix, one.binary))


async def status(kit: CatalogKit, body: bytes = BODY) -> str:
    pin = await find_pin(kit.core, cid_of(body))
    assert pin is not None
    return PinState(pin, await placement(kit, body) or {}).status


class DiedError(BaseException):
    """As a kill: nothing catches it on its way."""


class Dying:
    """A store that dies at its n-th write."""

    def __init__(self, store: Any, writes: int) -> None:
        self._store = store
        self._left = writes

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in {"write", "write_each", "write_in_order", "put_new", "put_if", "delete_if", "add"}:
            return method

        async def call(*args: Any, **more: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise DiedError
            return await method(*args, **more)

        return call
