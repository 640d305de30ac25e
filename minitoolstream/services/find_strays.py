"""Copies that no row names: of a peer that was taken out of the configuration and has come back, say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

from minitoolstream.domain.catalog_tables import PLACEMENTS
from minitoolstream.domain.cid import Cid, read_cid
from minitoolstream.domain.errors import MtsError
from minitoolstream.ports.catalog import Change, Put
from minitoolstream.services.copy_content import PREFIX
from minitoolstream.services.core import Core
from minitoolstream.services.place_copies import look_at

_PAGE = 500
_MAY_BE_PINNED = timedelta(hours=1)
"""Who wants to pin what only they have puts it there first."""


async def find_strays(core: Core, peer: str) -> AsyncIterator[Cid]:
    """Contents of which the peer has a copy since long, and no row knows it."""
    store, after = core.peers.payloads(peer), ""
    while page := await store.list_after(PREFIX, after, _PAGE):
        after = page[-1].name
        found = [(info.name, cid) for info in page if (cid := _cid_of(info.name)) is not None]
        placements = await core.catalog.get_many(PLACEMENTS, [cid.key for _, cid in found])
        for (name, cid), row in zip(found, placements, strict=True):
            if row is not None and peer in row["desired"] | row["actual"] | row["in_progress"] | row["failed"]:
                continue
            about = await store.about(name)  # it may have gone meanwhile
            if about is not None and core.wall().timestamp() - about.modified > _MAY_BE_PINNED.total_seconds():
                yield cid


def adopt(core: Core, cid: Cid, peer: str) -> list[Change]:
    """Named again, it is the reconciler's: it stays where it is wanted, and goes where it is not."""
    now = core.wall()
    named = Put(PLACEMENTS, {**cid.columns, "updated_at": now}, plus={"in_progress": frozenset({peer})})
    return [named, look_at(cid, now)]


def _cid_of(name: str) -> Cid | None:
    """None of what is not ours."""
    text = name.removeprefix(PREFIX)
    try:
        cid = read_cid(text)
    except MtsError:
        return None
    return cid if cid.text == text else None
