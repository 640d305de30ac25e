"""Which peers hold the copies of a content: rendezvous hashing with weights and zones."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pauses import doubled

MAX_RF = 16
MAX_ZONES = 16
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 3600.0
_RANGE = 2.0**64


@dataclass(frozen=True, slots=True)
class Peer:
    """An object store that can hold copies. `takes_new`: False for one that is full."""

    id: str
    zone: str
    weight: float = 1.0
    takes_new: bool = True


def choose_peers(
    digest: bytes, peers: Iterable[Peer], rf: int, zones: Collection[str] = (), held: Collection[str] = ()
) -> frozenset[str]:
    """The `rf` peers for a content, or all there are when there are fewer.

    Copies are spread over zones as evenly as these allow. A peer that comes or goes changes only sets that it belongs
    to. What is full keeps the copies that it has (`held`) and gets none.
    """
    ranked = sorted(
        (peer for peer in peers if (not zones or peer.zone in zones) and (peer.takes_new or peer.id in held)),
        key=lambda peer: (-_score(digest, peer), peer.id),
    )
    used: dict[str, int] = {}
    turns: list[tuple[int, int, str]] = []
    for place, peer in enumerate(ranked):
        turn = used[peer.zone] = used.get(peer.zone, -1) + 1
        turns.append((turn, place, peer.id))
    # The best of each zone, then the second best of each, until there are enough.
    chosen = [peer_id for _, _, peer_id in sorted(turns)[:rf]]
    return frozenset(chosen)


def _score(digest: bytes, peer: Peer) -> float:
    """Of n peers with equal weights each wins with the same chance, and independently of the others."""
    drawn = hashlib.blake2b(peer.id.encode() + b"\0" + digest, digest_size=8).digest()
    unit = (int.from_bytes(drawn, "big") + 0.5) / _RANGE
    return -peer.weight / math.log(unit)


def check_rf(rf: int, peers: Iterable[Peer], zones: Collection[str] = ()) -> int:
    """How many copies there shall be; refused when there are not as many peers."""
    fitting = [peer.id for peer in peers if not zones or peer.zone in zones]
    if not 1 <= rf <= MAX_RF:
        raise MtsError("bad_request", f"rf must be from 1 to {MAX_RF}", {"field": "rf"})
    if rf > len(fitting):
        where = f" in {', '.join(sorted(zones))}" if zones else ""
        if not fitting and not zones:
            where = " that could hold it: MTS_CATALOG_PEERS names none, or all are lost"
        raise MtsError(
            "bad_request", f"rf is {rf}, and there are {len(fitting)} peers{where}", {"field": "rf", "peers": fitting}
        )
    return rf


def next_look(attempts: int) -> float:
    """Seconds until a content is looked at again after so many tries in a row that failed."""
    return doubled(FIRST_PAUSE, attempts, LONGEST_PAUSE)


def nearest(peers: Iterable[Peer], region: str) -> list[Peer]:
    """Peers as a reader in `region` should try them: those of its zone, then those whose zones begin alike."""

    def distance(peer: Peer) -> tuple[int, str]:
        if peer.zone == region:
            return 0, peer.id
        alike = len(_common(peer.zone, region))
        return 1000 - alike, peer.id

    return sorted(peers, key=distance)


def _common(one: str, other: str) -> str:
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return one[:at]
    return min(one, other, key=len)
