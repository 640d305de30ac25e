"""Readers that say where they are get the URL of the nearest copy, and that of the message's own payload behind it."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence

from minitoolstream.domain.catalog_tables import PLACEMENTS, REFS_BY_SUBJECT
from minitoolstream.domain.cid import Cid, read_binary
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import Message
from minitoolstream.domain.placement import Peer, nearest
from minitoolstream.ports import GetRequest
from minitoolstream.services.copy_content import key_of
from minitoolstream.services.core import Core
from minitoolstream.services.follow_subjects import part_of

HOME = ""
_log = logging.getLogger(__name__)


async def point_to_nearest(core: Core, messages: Sequence[Message], region: str) -> None:
    """Where the catalog or a peer is away, messages keep the URLs that they have."""
    peers = {peer.id: peer for peer in core.peers.peers()}
    if not peers or not messages:
        return
    try:
        contents = await _contents(core, messages)
        keys = [cid.key for cid in contents.values()]
        placements = await core.catalog.get_many(PLACEMENTS, keys)
        healthy = dict(
            zip(peers, await asyncio.gather(*(core.health.answers(core.peers, one) for one in peers)), strict=True)
        )
    except MtsError as error:
        _log.warning("readers in %s are not sent to copies: %s", region, error.message)
        return
    actual = {sequence: row["actual"] if row else () for sequence, row in zip(contents, placements, strict=True)}
    for message in messages:
        there = [peers[one] for one in actual.get(int(message.sequence), ()) if healthy.get(one)]
        chosen = _chosen(core, there, region)
        if chosen and message.url is not None:
            _point(core, message, chosen, contents[int(message.sequence)])


def _chosen(core: Core, there: list[Peer], region: str) -> str:
    home = core.settings["catalog.zone"]
    candidates = [*([Peer(HOME, home)] if home else []), *there]
    best = nearest(candidates, region)
    # Without a word on where the messages' own bucket is, a copy counts as nearer when it is in the reader's zone.
    return best[0].id if best and (home or best[0].zone == region) else HOME


def _point(core: Core, message: Message, peer_id: str, cid: Cid) -> None:
    request = GetRequest(key_of(cid), message.content_type)
    (url,) = core.peers.signer(peer_id).get_many([request], expires_in=int(core.settings["downloads.url_life"]))
    message.fallback_url, message.fallback_range = message.url, message.range
    message.url, message.range = url, None
    message.sha256 = message.sha256 or cid.sha256


async def _contents(core: Core, messages: Sequence[Message]) -> dict[int, Cid]:
    parts: dict[tuple[str, int], list[int]] = defaultdict(list)
    for message in messages:
        parts[message.subject, part_of(int(message.sequence))].append(int(message.sequence))
    found: dict[int, Cid] = {}
    for (subject, part), sequences in parts.items():
        wanted = set(sequences)
        rows = await core.catalog.page(
            REFS_BY_SUBJECT,
            (subject, part),
            max(sequences) - min(sequences) + 1,
            after=(min(sequences) - 1,),
            until=(max(sequences),),
        )
        found |= {row["sequence"]: read_binary(row["cid_bin"]) for row in rows if row["sequence"] in wanted}
    return found
