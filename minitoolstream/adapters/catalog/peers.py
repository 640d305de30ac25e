"""The peers' object stores, each with credentials of its own."""

from __future__ import annotations

from collections.abc import Sequence

from minitoolstream.adapters.s3.client import S3Payloads
from minitoolstream.adapters.s3.requests import Advice
from minitoolstream.adapters.s3.signer import S3Signer
from minitoolstream.adapters.s3.sigv4 import SigV4, endpoint_url
from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError, not_found
from minitoolstream.domain.placement import Peer
from minitoolstream.ports import PayloadStore, Signer

_ADVICE = Advice("make it, or correct MTS_CATALOG_PEERS", "MTS_CATALOG_PEER_KEYS")


class S3Peers:
    """Fulfils `ports.PeerStores`. Nothing is connected before its first use."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._places = {place.id: place for place in settings["catalog.peers"]}
        self._peers = [Peer(one.id, one.zone, one.weight) for one in self._places.values()]
        self._stores: dict[str, S3Payloads] = {}
        self._signers: dict[str, S3Signer] = {}

    def peers(self) -> Sequence[Peer]:
        return self._peers

    def payloads(self, peer_id: str) -> PayloadStore:
        if peer_id not in self._stores:
            self._stores[peer_id] = S3Payloads(self._sigv4(peer_id), advice=_ADVICE)
        return self._stores[peer_id]

    def signer(self, peer_id: str) -> Signer:
        if peer_id not in self._signers:
            self._signers[peer_id] = S3Signer(self._sigv4(peer_id))
        return self._signers[peer_id]

    async def close(self) -> None:
        for store in self._stores.values():
            await store.close()

    def _sigv4(self, peer_id: str) -> SigV4:
        place = self._places.get(peer_id)
        if place is None:
            raise not_found(f"there is no peer {peer_id} in catalog.peers", peer=peer_id)
        access, _, secret = (self._settings["catalog.peer_keys"] or {}).get(peer_id, "").partition(":")
        if not access or not secret:
            raise MtsError("not_configured", f"no credentials for the peer {peer_id}: set MTS_CATALOG_PEER_KEYS")
        return SigV4(endpoint_url(place.endpoint, use_ssl=False), place.bucket, place.region, access, secret)
