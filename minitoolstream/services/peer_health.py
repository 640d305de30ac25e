"""Which peers answer, as this process knows it: looked at now and then, by whoever needs to know."""

from __future__ import annotations

import asyncio
import time

from minitoolstream.domain.errors import MtsError
from minitoolstream.ports import PeerStores

_KEPT = 5.0
_ANSWERS_WITHIN = 1.0


class PeerHealth:
    """A peer that went a moment ago may still count as there: its readers have another URL."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, bool]] = {}
        self._looking: dict[str, asyncio.Task[bool]] = {}

    async def answers(self, peers: PeerStores, peer_id: str) -> bool:
        known = self._known.get(peer_id)
        if known is not None and time.monotonic() - known[0] < _KEPT:
            return known[1]
        looking = self._looking.get(peer_id)
        if looking is None:
            looking = self._looking[peer_id] = asyncio.create_task(self._look(peers, peer_id))
        return await asyncio.shield(looking)

    async def _look(self, peers: PeerStores, peer_id: str) -> bool:
        try:
            async with asyncio.timeout(_ANSWERS_WITHIN):
                await peers.payloads(peer_id).check()
            found = True
        except (MtsError, TimeoutError):
            found = False
        finally:
            self._looking.pop(peer_id, None)
        self._known[peer_id] = (time.monotonic(), found)
        return found
