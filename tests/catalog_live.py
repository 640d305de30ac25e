"""A host with a catalog and three MinIO peers, for tests that share it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minitoolstream.stack.credentials import new_secret
from tests.live import Live, start_live
from tests.servers import MinioServer, start_minio

ZONES = {"eu": "eu-west", "us": "us-east", "asia": "asia-east"}


@dataclass
class CatalogLive:
    live: Live
    peers: dict[str, MinioServer]
    alice: str
    bob: str

    def api(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return self.live.api(method, path, body, headers)

    def reconcile(self) -> Any:
        answer = self.api("POST", "/v1/catalog/reconcile")
        assert answer.status == 200, answer.body
        return answer.json

    def holders(self, cid: str) -> set[str]:
        """Which peers have the object, asked from outside."""
        found = set()
        for name, server in self.peers.items():
            listed = server.s3().list_objects_v2(Bucket=server.bucket, Prefix=f"cid/{cid}")
            found |= {name} if listed.get("KeyCount") else set()
        return found

    def stop(self) -> None:
        self.live.stop()
        for server in self.peers.values():
            server.stop()


def start_catalog_live(folder: Path) -> CatalogLive:
    peers = {name: start_minio(folder / name) for name in ZONES}
    alice, bob = new_secret(), new_secret()
    live = start_live(
        folder / "live",
        extra_env={
            "MTS_CATALOG_PEERS": ",".join(
                f"{name}={server.endpoint}/{server.bucket}?zone={ZONES[name]}" for name, server in peers.items()
            ),
            "MTS_CATALOG_PEER_KEYS": ",".join(
                f"{name}={server.access_key}:{server.secret_key}" for name, server in peers.items()
            ),
            "MTS_CATALOG_TOKENS": f"alice={alice},bob={bob}",
            "MTS_CATALOG_INTERVAL": "1d",
            "MTS_CATALOG_LOST_AFTER": "1h",
            "MTS_SERVER_WORKERS": "1",
        },
    )
    return CatalogLive(live, peers, alice, bob)
