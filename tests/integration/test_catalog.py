"""The catalog as its users see it: HTTP, tokens of owners, three MinIO peers."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from minitoolstream.cli.main import cli
from minitoolstream.client import Client
from minitoolstream.domain.cid import Cid, cid_of
from tests.catalog_live import CatalogLive, start_catalog_live
from tests.live import eventually

PINS = "/v1/catalog/pins"
pytestmark = pytest.mark.xdist_group("catalog")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogLive]:
    started = start_catalog_live(tmp_path_factory.mktemp("catalog"))
    yield started
    started.stop()


def test_a_messages_payload_is_pinned_copied_and_removed(world: CatalogLive, subject: str) -> None:
    body = f"payload of {subject}".encode()
    sequence = world.live.publish(subject, body).json["sequence"]
    made = world.api("POST", PINS, {"sequence": sequence, "rf": 2, "name": "one"})
    assert (made.status, made.json["cid"]) == (201, cid_of(body).text)
    assert world.reconcile()["copied"] == 2
    pin = world.api("GET", f"{PINS}/{made.json['cid']}").json
    assert pin["status"] == "pinned"
    assert set(pin["placement"]["actual"]) == world.holders(pin["cid"])
    for name in pin["placement"]["actual"]:
        server = world.peers[name]
        stored = server.s3().get_object(Bucket=server.bucket, Key=f"cid/{pin['cid']}")["Body"].read()
        assert hashlib.sha256(stored).hexdigest() == cid_of(body).sha256


def test_a_message_with_a_checksum_tells_its_content_id(
    world: CatalogLive, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = f"known as {subject}".encode()
    live, cid = world.live, cid_of(body)
    ticket = live.ticket(subject, len(body), sha256=cid.sha256)
    live.put(ticket, body)
    sequence = live.receipt(ticket["upload_id"])["sequence"]
    unhashed = live.publish(subject, body).json["sequence"]
    assert live.api("GET", f"/v1/messages/{sequence}").json["cid"] == cid.text
    assert "cid" not in live.api("GET", f"/v1/messages/{unhashed}").json
    with Client(live.url, live.token) as client:
        assert [message.cid for message in client.fetch(subject).messages] == [cid.text, None]
    monkeypatch.setenv("MTS_URL", live.url)
    monkeypatch.setenv("MTS_TOKEN", live.token)
    assert json.loads(CliRunner().invoke(cli, ["get", str(sequence), "--json"]).output)["cid"] == cid.text
    pinned = world.api("POST", PINS, {"sequence": unhashed}).json
    assert pinned["cid"] == cid.text


def test_a_large_content_is_copied_in_parts(world: CatalogLive, subject: str) -> None:
    body = hashlib.sha256(subject.encode()).digest() * 600_000
    cid, server = cid_of(body).text, world.peers["eu"]
    server.s3().put_object(Bucket=server.bucket, Key=f"cid/{cid}", Body=body)
    assert world.api("POST", PINS, {"cid": cid, "rf": 3}).status == 201
    world.reconcile()
    assert world.holders(cid) == set(world.peers)
    us = world.peers["us"]
    about = us.s3().head_object(Bucket=us.bucket, Key=f"cid/{cid}")
    assert about["ContentLength"] == len(body)
    assert "-3" in about["ETag"]


def test_owners_have_their_own_pins(world: CatalogLive) -> None:
    cid = cid_of(b"of alice").text
    assert world.api("POST", PINS, {"cid": cid, "tags": ["x"]}, world.alice).status == 201
    assert world.api("GET", f"{PINS}/{cid}", token=world.alice).json["owner"] == "alice"
    for method, path, body in (
        ("GET", f"{PINS}/{cid}", None),
        ("PUT", f"{PINS}/{cid}", {"name": "mine"}),
        ("DELETE", f"{PINS}/{cid}", None),
        ("POST", PINS, {"cid": cid}),
        ("POST", PINS, {"sequence": 1}),
        ("POST", "/v1/catalog/reconcile", None),
        ("POST", "/v1/catalog/check", {}),
    ):
        assert world.api(method, path, body, world.bob).status == 403, path
    assert world.api("GET", PINS, token=world.bob).json["pins"] == []
    assert world.api("GET", f"{PINS}?owner=alice", token=world.bob).status == 400
    assert world.api("GET", PINS, token="wrong").status == 401
    elsewhere = world.api("GET", "/v1/subjects", token=world.alice)
    assert elsewhere.status == 401
    assert "for /v1/catalog and /pins alone" in elsewhere.json["error"]["message"]
    assert "wrong" in world.api("GET", "/v1/subjects", token="wrong").json["error"]["message"]
    assert cid in [pin["cid"] for pin in world.api("GET", f"{PINS}?owner=alice").json["pins"]]


def test_a_stale_version_is_a_409_with_the_current_one(world: CatalogLive) -> None:
    cid = cid_of(b"versions").text
    world.api("POST", PINS, {"cid": cid}, world.alice)
    assert world.api("PUT", f"{PINS}/{cid}", {"version": 1, "name": "a"}, world.alice).json["version"] == 2
    refused = world.api("PUT", f"{PINS}/{cid}", {"version": 1, "name": "b"}, world.alice)
    assert (refused.status, refused.code) == (409, "version_conflict")
    assert refused.json["error"]["details"] == {"version": 2}
    assert world.api("DELETE", f"{PINS}/{cid}?version=7", token=world.alice).status == 409
    assert world.api("DELETE", f"{PINS}/{cid}?version=2", token=world.alice).status == 200
    assert world.api("GET", f"{PINS}/{cid}", token=world.alice).status == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"cid": "nonsense"},
        {"cid": cid_of(b"x").text, "sequence": 1},
        {"cid": cid_of(b"x").text, "rf": 0},
        {"cid": cid_of(b"x").text, "rf": 4},
        {"cid": cid_of(b"x").text, "zones": ["mars"]},
        {"cid": cid_of(b"x").text, "tags": ["t" * 200]},
        {"cid": cid_of(b"x").text, "metadata": {"k": "v" * 3000}},
        {"cid": cid_of(b"x").text, "expires_at": 1},
        {"cid": cid_of(b"x").text, "expires_at": "tomorrow"},
        {"cid": cid_of(b"x").text, "version": 9},
    ],
)
def test_bad_input_is_a_400(world: CatalogLive, body: dict[str, object]) -> None:
    answer = world.api("POST", PINS, body)
    assert (answer.status, answer.code) == (400, "bad_request")


def kubo_gives_up(delegate: str) -> bool:
    """Of the answer to `ipfs pin remote add`: what is no multiaddr is passed over, and one that names no node is an
    error of the command."""
    return delegate.startswith("/") and re.search(r"/(p2p|ipfs)/[A-Za-z0-9]+$", delegate) is None


def test_clients_of_the_ipfs_pinning_api_work(world: CatalogLive) -> None:
    body = b"pinned by an ipfs client"
    cid = cid_of(body).text
    server = world.peers["eu"]
    server.s3().put_object(Bucket=server.bucket, Key=f"cid/{cid}", Body=body)
    made = world.api("POST", "/pins", {"cid": cid, "name": "file", "meta": {"app": "x"}}, world.bob)
    assert made.status == 202
    assert made.json["status"] in ("queued", "pinning")
    assert made.json["pin"] == {"cid": cid, "name": "file", "meta": {"app": "x"}}
    assert 1 <= len(made.json["delegates"]) <= 20  # what the schema of the API asks for
    assert not [one for one in made.json["delegates"] if kubo_gives_up(one)]
    request_id = made.json["requestid"]
    assert world.api("GET", "/pins", token=world.bob).json == {"count": 0, "results": []}
    world.reconcile()
    found = world.api("GET", f"/pins/{request_id}", token=world.bob).json
    assert found["status"] == "pinned"
    listed = world.api("GET", f"/pins?cid={cid}&status=pinned,failed&limit=5", token=world.bob).json
    assert (listed["count"], listed["results"][0]["requestid"]) == (1, request_id)
    assert world.api("GET", "/pins?meta=%7B%22app%22%3A%22x%22%7D", token=world.bob).json["count"] == 1
    assert world.api("GET", "/pins?name=FIL&match=ipartial", token=world.bob).json["count"] == 1
    other = cid_of(b"another").text
    replaced = world.api("POST", f"/pins/{request_id}", {"cid": other}, world.bob)
    assert (replaced.status, replaced.json["pin"]["cid"]) == (202, other)
    assert world.api("GET", f"/pins/{request_id}", token=world.bob).status == 404
    tree = Cid(0x70, cid_of(b"root of a tree").digest)
    for path in ("/pins", f"/pins/{other}"):
        refused = world.api("POST", path, {"cid": tree.text}, world.bob)
        assert (refused.status, refused.json["error"]["reason"]) == (400, "BAD_REQUEST")
        assert "only raw contents" in refused.json["error"]["details"]
    assert world.api("DELETE", f"/pins/{other}", token=world.bob).status == 202


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("/pins?status=lost", 400, "BAD_REQUEST"),
        ("/pins?match=fuzzy", 400, "BAD_REQUEST"),
        ("/pins?limit=1001", 400, "BAD_REQUEST"),
        ("/pins?meta=text", 400, "BAD_REQUEST"),
        ("/pins?before=yesterday", 400, "BAD_REQUEST"),
        ("/pins?unknown=1", 400, "BAD_REQUEST"),
        ("/pins/Qmwrong", 400, "BAD_REQUEST"),
        (f"/pins/{cid_of(b'never pinned')}", 404, "NOT_FOUND"),
        ("/pins/one/two", 404, "NOT_FOUND"),
    ],
)
def test_errors_of_the_ipfs_pinning_api_have_its_shape(world: CatalogLive, path: str, status: int, reason: str) -> None:
    answer = world.api("GET", path, token=world.bob)
    assert (answer.status, answer.json["error"]["reason"]) == (status, reason)
    assert set(answer.json["error"]) == {"reason", "details"}
    assert isinstance(answer.json["error"]["details"], str)
    refused = world.api("GET", path, token="wrong")
    assert set(refused.json["error"]) == {"reason", "details"}


def test_a_batch_has_results_for_each(world: CatalogLive) -> None:
    cids = [cid_of(f"batch {number}".encode()).text for number in range(30)]
    made = world.api("POST", "/v1/catalog/batches", {"kind": "pin", "cids": cids, "operation_id": "b1"}, world.alice)
    assert made.status == 202
    again = world.api("POST", "/v1/catalog/batches", {"kind": "pin", "cids": cids, "operation_id": "b1"}, world.alice)
    assert again.json["batch_id"] == made.json["batch_id"]
    world.reconcile()
    path = f"/v1/catalog/batches/{made.json['batch_id']}"
    done = world.api("GET", path, token=world.alice).json
    assert (done["state"], done["done"], done["failed"]) == ("done", 30, 0)
    assert world.api("GET", path, token=world.bob).status == 404
    first = world.api("GET", f"{path}/items?limit=20", token=world.alice).json
    rest = world.api("GET", f"{path}/items?after={first['next']}", token=world.alice).json
    assert [item["cid"] for item in first["items"] + rest["items"]] == cids
    unpin = {"kind": "unpin", "cids": [*cids[:2], cid_of(b"never").text]}
    batch = world.api("POST", "/v1/catalog/batches", unpin, world.alice).json
    world.reconcile()
    ended = world.api("GET", f"/v1/catalog/batches/{batch['batch_id']}/items", token=world.alice).json["items"]
    assert [item["result"] for item in ended] == ["unpinned", "unpinned", "was not pinned"]


def test_figures_and_peers_are_shown(world: CatalogLive, subject: str) -> None:
    sequence = world.live.publish(subject, subject.encode()).json["sequence"]
    world.api("POST", PINS, {"sequence": sequence, "rf": 3})
    world.reconcile()
    stats = world.api("GET", "/v1/catalog/stats").json
    assert stats["pins"] == sum(stats["prefixes"]) > 0
    assert all(held > 0 for held in stats["peers"].values())
    assert {peer["peer_id"]: peer["state"] for peer in world.api("GET", "/v1/catalog/peers").json["peers"]} == {
        "eu": "live",
        "us": "live",
        "asia": "live",
    }
    cid = cid_of(subject.encode()).text
    assert world.api("GET", f"{PINS}/{cid}/events").json["events"][0]["event"] == "pinned"


def test_a_subject_asks_for_copies_and_readers_get_the_nearest(
    world: CatalogLive, subject: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {"copies": {"rf": 1, "zones": ["eu-west"]}}
    made = world.api("PUT", f"/v1/subjects/{subject}", wanted)
    assert made.json["settings"]["copies"] == wanted["copies"]
    body = f"near {subject}".encode()
    sequence = world.live.publish(subject, body).json["sequence"]
    assert world.reconcile()["held"] == 1
    assert world.holders(cid_of(body).text) == {"eu"}
    near = world.api("GET", f"/v1/subjects/{subject}/messages?region=eu-west").json["messages"][0]
    assert near["url"].startswith(world.peers["eu"].endpoint)
    assert near["fallback_url"].startswith(world.live.minio.endpoint)
    assert world.live.payload(near) == body
    far = world.api("GET", f"/v1/subjects/{subject}/messages?region=mars").json["messages"][0]
    assert far["url"].startswith(world.live.minio.endpoint)
    with Client(world.live.url, world.live.token, region="eu-west") as client:
        found = client.fetch(subject).messages[0]
        assert (found.url or "").startswith(world.peers["eu"].endpoint)
        assert client.payload(found) == body
        # Other bytes of the same length: the content's id tells, and the payload itself is there.
        eu = world.peers["eu"]
        eu.s3().put_object(Bucket=eu.bucket, Key=f"cid/{cid_of(body)}", Body=body[::-1])
        assert found.sha256 == cid_of(body).sha256
        assert client.payload(found) == body
        client.download(found, tmp_path / "beside a corrupt copy")
        assert (tmp_path / "beside a corrupt copy").read_bytes() == body
        # The copy goes behind the reader's back.
        eu.s3().delete_object(Bucket=eu.bucket, Key=f"cid/{cid_of(body)}")
        assert client.payload(found) == body
        client.download(found, tmp_path / "payload")
        assert (tmp_path / "payload").read_bytes() == body
    monkeypatch.setenv("MTS_URL", world.live.url)
    monkeypatch.setenv("MTS_TOKEN", world.live.token)
    shown = CliRunner().invoke(cli, ["get", str(sequence), "--region", "eu-west", "--json"])
    assert json.loads(shown.output)["url"].startswith(world.peers["eu"].endpoint)
    missing = {"kind": "copy missing", "cid": cid_of(body).text, "about": "eu"}
    assert missing in world.api("POST", "/v1/catalog/check", {"deep": True, "mend": True}).json["found"]
    world.reconcile()
    assert world.holders(cid_of(body).text) == {"eu"}
    assert missing not in world.api("POST", "/v1/catalog/check", {"deep": True}).json["found"]


def test_what_expires_takes_its_copies_along(world: CatalogLive, subject: str) -> None:
    world.api("PUT", f"/v1/subjects/{subject}", {"copies": {"rf": 2}, "max_messages": 1})
    for number in range(2):
        world.live.publish(subject, f"{subject} {number}".encode())
    world.reconcile()
    world.api("POST", "/v1/sweep")
    eventually(lambda: len(world.live.messages(subject)) == 1)
    world.reconcile()
    assert world.holders(cid_of(f"{subject} 0".encode()).text) == set()
    assert len(world.holders(cid_of(f"{subject} 1".encode()).text)) == 2
    world.api("DELETE", f"/v1/subjects/{subject}")
    world.reconcile()
    assert world.holders(cid_of(f"{subject} 1".encode()).text) == set()


def test_what_is_deleted_for_good_loses_its_copies(world: CatalogLive, subject: str) -> None:
    letters = f"{subject}.dlq"
    bodies = [f"{subject} {number}".encode() for number in range(3)]
    api = world.api
    for name in (subject, letters):
        assert api("PUT", f"/v1/subjects/{name}", {"copies": {"rf": 2}}).status in (200, 201)
    sequences = [world.live.publish(subject, body).json["sequence"] for body in bodies]
    workers = f"/v1/subjects/{subject}/consumers/workers"
    api("PUT", workers, {"mode": "shared", "max_deliver": 1, "start": "first"})
    lease = api("POST", f"{workers}/lease", {"limit": 2}).json["lease_id"]
    api("POST", f"{workers}/nack", {"lease_id": lease, "sequences": sequences[1:2]})
    (letter,) = api("GET", f"/v1/subjects/{letters}/messages").json["messages"]
    assert world.reconcile()["held"] == 4
    assert len(world.holders(cid_of(bodies[1]).text)) == 2
    with Client(world.live.url, world.live.token) as client:
        deletion = client.delete_message(sequences[1])
    assert (deletion.done, deletion.sequences) == (True, (sequences[1], letter["sequence"]))
    assert world.reconcile()["let_go"] == 2
    assert world.holders(cid_of(bodies[1]).text) == set()
    assert [len(world.holders(cid_of(body).text)) for body in bodies[::2]] == [2, 2]


def test_more_copies_than_peers_are_refused_for_a_subject(world: CatalogLive, subject: str) -> None:
    assert world.api("PUT", f"/v1/subjects/{subject}", {"copies": {"rf": 4}}).status == 400
    assert world.api("PUT", f"/v1/subjects/{subject}", {"copies": {"zones": ["x"]}}).status == 400


def test_the_commands_of_a_subject_show_the_copies_asked_for(
    world: CatalogLive, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MTS_URL", world.live.url)
    monkeypatch.setenv("MTS_TOKEN", world.live.token)
    asked = ["--copies", "2", "--copy-zone", "eu-west", "--copy-zone", "us-east"]
    for command in (["create", subject, *asked], ["info", subject]):
        shown = CliRunner().invoke(cli, ["subject", *command]).output
        assert re.search(r"^copies +2 in eu-west, us-east$", shown, re.MULTILINE), shown
    assert "\ncopies" not in CliRunner().invoke(cli, ["subject", "alter", subject, "--copies", "0"]).output


def test_commands_show_the_catalog(world: CatalogLive, subject: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTS_URL", world.live.url)
    monkeypatch.setenv("MTS_TOKEN", world.live.token)
    sequence = world.live.publish(subject, f"commands {subject}".encode()).json["sequence"]
    cid = cid_of(f"commands {subject}".encode()).text

    def mts(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(cli, ["catalog", *arguments])
        assert done.exit_code == code, done.output
        return done.output

    assert cid in mts("pin", "--sequence", str(sequence), "--rf", "2", "--name", subject, "--tag", "t")
    assert "copied" in mts("reconcile")
    assert "status   pinned" in mts("get", cid)
    assert subject in mts("list", "--name", subject)
    assert "eu-west" in mts("peers")
    assert "█" in mts("stats")
    assert "unpinned" in mts("unpin", cid)
    assert "not pinned" in mts("get", cid, code=3)
    assert "bad_request" in mts("get", "nonsense", "--json", code=2)
    assert "either cid or sequence" in mts("pin", cid, "--sequence", "1", code=2)
    assert "/nowhere cannot be read: No such file or directory\n" in mts("batch", "pin", "/nowhere", code=2)


def test_a_command_shows_what_became_of_each_content_of_a_batch(
    world: CatalogLive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MTS_URL", world.live.url)
    monkeypatch.setenv("MTS_TOKEN", world.alice)
    cids = [cid_of(f"items {number}".encode()).text for number in range(1002)]
    world.api("POST", PINS, {"cid": cids[0]}, world.bob)
    world.api("POST", PINS, {"cid": cids[1]}, world.alice)
    (tmp_path / "ids").write_text("\n".join(cids))

    def mts(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["catalog", "batch", *arguments])
        assert done.exit_code == 0, done.output
        return done.output

    batch_id = mts("unpin", str(tmp_path / "ids")).partition(":")[0]
    assert mts("items", batch_id).splitlines()[1] == f"1\t{cids[1]}\twaits"
    world.reconcile()
    assert f"why: mts catalog batch items {batch_id}" in mts("status", batch_id)
    lines = mts("items", batch_id).splitlines()
    assert lines[0].startswith(f"0\t{cids[0]}\tfailed\tforbidden: ")
    assert lines[1:3] == [f"1\t{cids[1]}\tunpinned", f"2\t{cids[2]}\twas not pinned"]
    assert [line.split("\t")[1] for line in lines] == cids
    shown = [json.loads(line) for line in mts("items", batch_id, "--json").splitlines()]
    assert shown[1] == {"position": 1, "cid": cids[1], "result": "unpinned"}


def test_commands_say_why_there_is_no_copy(world: CatalogLive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MTS_URL", world.live.url)
    monkeypatch.setenv("MTS_TOKEN", world.live.token)
    monkeypatch.setenv("MTS_HOME", str(tmp_path))
    cid, asia = cid_of(b"nobody has it").text, world.peers["asia"]

    def mts(*arguments: str) -> str:
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, done.output
        return done.output

    mts("catalog", "pin", cid, "--rf", "3")
    asia.kill()
    try:
        assert "why: mts catalog get CID" in mts("catalog", "reconcile")
        shown = mts("catalog", "get", cid)
        assert "failed   eu, attempt 1: peer asia: the object store does not answer" in shown
        assert "failed   asia, attempt 1: the object store does not answer" in shown
        assert "again    20" in shown
        for command in (("catalog", "peers"), ("status",)):
            assert re.search(
                r"^! peer asia is down since 20\S+Z: the object store does not answer", mts(*command), re.MULTILINE
            )
    finally:
        asia.start()
    world.api("DELETE", f"{PINS}/{cid}")
    world.reconcile()
    assert "! peer" not in mts("status")
