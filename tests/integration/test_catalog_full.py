"""Peers that take nothing, told by a real store's answers."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from minio import MinioAdmin
from minio.credentials.providers import StaticProvider

from minitoolstream.adapters.catalog.peers import S3Peers
from minitoolstream.api import show_catalog
from minitoolstream.config import load_settings
from minitoolstream.domain.cid import cid_of
from minitoolstream.domain.pin import Wish
from minitoolstream.services.catalog_figures import read_peers
from minitoolstream.services.copy_content import key_of
from minitoolstream.services.manage_pins import create_pin, get_pin
from minitoolstream.services.reconcile_copies import reconcile_copies
from tests.catalog_kit import ALICE, catalog_kit
from tests.servers import MinioServer


def peers_of(folder: Path, server: MinioServer, *names: str) -> S3Peers:
    """Buckets of one server, each a peer."""
    environ = {
        "MTS_HOME": str(folder / "home"),
        "MTS_CATALOG_PEERS": ",".join(f"{name}={server.endpoint}/{name}?zone={name}" for name in names),
        "MTS_CATALOG_PEER_KEYS": ",".join(
            f"{name}={server.root.access_key}:{server.root.secret_key}" for name in names
        ),
    }
    return S3Peers(load_settings(environ, cwd=folder))


def set_quota(server: MinioServer, bucket: str, size: int) -> None:
    root = StaticProvider(server.root.access_key, server.root.secret_key)
    MinioAdmin(endpoint=server.endpoint.removeprefix("http://"), credentials=root, secure=False).bucket_quota_set(
        bucket, size
    )


async def test_a_peer_whose_quota_is_used_up_is_full_and_another_takes_the_copy(
    minio_server: MinioServer, tmp_path: Path
) -> None:
    kit = catalog_kit(tmp_path)
    for name in ("quota-one", "quota-two"):
        minio_server.s3().create_bucket(Bucket=name)
    kit.core.peers = peers_of(tmp_path, minio_server, "quota-one", "quota-two")
    body = b"more than the quota allows"
    kit.kit.payloads.client_put("m/x", body)
    made, _ = await create_pin(kit.core, ALICE, cid_of(body), Wish(rf=1, source=f"0 {len(body)} m/x"))
    (first,) = made.placement["desired"]
    (second,) = {"quota-one", "quota-two"} - {first}
    set_quota(minio_server, first, len(body))
    kit.advance(5)
    assert (await reconcile_copies(kit.core)).failed == 1
    peers = {peer.peer_id: show_catalog.peer(peer) for peer in await read_peers(kit.core)}
    assert {name: peer.full for name, peer in peers.items()} == {first: True, second: False}
    assert peers[first].full_until == show_catalog.moment(kit.now + timedelta(minutes=10))
    assert "full" in (peers[first].reason or "")
    assert peers[second].reason is None
    kit.advance(5)
    assert (await reconcile_copies(kit.core)).copied == 1
    found = await get_pin(kit.core, ALICE, cid_of(body))
    assert (found.status, found.placement["actual"]) == ("pinned", {second})
    stored = minio_server.s3().get_object(Bucket=second, Key=key_of(cid_of(body)))["Body"].read()
    assert stored == body
    await kit.core.peers.close()
    await kit.store.close()


async def test_a_peer_whose_bucket_is_not_there_says_so(minio_server: MinioServer, tmp_path: Path) -> None:
    """Making buckets is not ours: the credentials of a peer are for one that is there."""
    kit = catalog_kit(tmp_path)
    kit.core.peers = peers_of(tmp_path, minio_server, "never-made")
    body = b"for a bucket that is not there"
    kit.kit.payloads.client_put("m/y", body)
    await create_pin(kit.core, ALICE, cid_of(body), Wish(rf=1, source=f"0 {len(body)} m/y"))
    kit.advance(5)
    await reconcile_copies(kit.core)
    said = "the bucket never-made does not exist: make it, or correct MTS_CATALOG_PEERS"
    (failure,) = (await get_pin(kit.core, ALICE, cid_of(body))).failures
    (peer,) = await read_peers(kit.core)
    assert (failure["error_message"], peer.row["reason"]) == (said, said)
    await kit.core.peers.close()
    await kit.store.close()
