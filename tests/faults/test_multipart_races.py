"""Complete and abort at the same time (rule 9): both may succeed in the store, only one in the stream."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.bootstrap import open_core
from minitoolstream.client import AsyncClient
from minitoolstream.client._upload_calls import UploadCalls
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.upload import Receipt, UploadSpec
from minitoolstream.services.get_receipt import known_upload
from minitoolstream.services.issue_tickets import issue_tickets
from tests.faults.audit import multiparts_in_bucket, objects_in_bucket
from tests.live import Answer, Live, eventually, send

ROUNDS = 12
PAYLOAD = random.Random(9).randbytes(5 * 2**20 + 1)


def uploaded(live: Live, subject: str, **more: Any) -> Any:
    """A ticket whose parts have all arrived."""
    ticket = live.ticket(subject, len(PAYLOAD), **more)
    size = ticket["parts"]["part_size"]
    for part in ticket["parts"]["urls"]:
        chunk = PAYLOAD[(part["number"] - 1) * size :][: part["size"]]
        assert send("PUT", part["url"], chunk).status == 200
    return ticket


def at_once(live: Live, *calls: tuple[str, str]) -> list[Answer]:
    barrier = threading.Barrier(len(calls))

    def one(call: tuple[str, str]) -> Answer:
        barrier.wait()
        return live.api(*call)

    with ThreadPoolExecutor(len(calls)) as executor:
        return list(executor.map(one, calls))


def test_complete_and_abort_racing_never_give_both_a_message_and_a_deletion(deaf: Live, subject: str) -> None:
    outcomes = {"committed": 0, "aborted": 0}
    names: dict[str, str] = {}
    for number in range(ROUNDS):
        lane = f"{subject}.{number}"
        ticket = uploaded(deaf, lane, producer_id="p", seqno=1)
        upload = f"/v1/uploads/{ticket['upload_id']}"

        completed, _, aborted = at_once(
            deaf, ("POST", f"{upload}/complete"), ("POST", f"{upload}/complete"), ("DELETE", upload)
        )

        assert completed.status in {200, 409}, completed.body
        state = deaf.receipt(ticket["upload_id"], wait=0)["state"]
        outcomes[state] += 1
        if state == "committed":
            assert (aborted.status, aborted.code) == (409, "upload_final")
        else:
            assert aborted.json["state"] == "aborted"
            assert deaf.messages(lane) == []
        names[ticket["object_name"]] = state

    committed = {name for name, state in names.items() if state == "committed"}
    eventually(lambda: deaf.reconcile() and objects_in_bucket(deaf) & names.keys() == committed)
    assert [name for name in names if multiparts_in_bucket(deaf, name)] == []
    for number in range(ROUNDS):
        for message in deaf.messages(f"{subject}.{number}"):
            assert deaf.payload(message) == PAYLOAD


def test_many_completes_at_once_give_one_message(deaf: Live, subject: str) -> None:
    ticket = uploaded(deaf, subject, producer_id="p", seqno=1)
    call = ("POST", f"/v1/uploads/{ticket['upload_id']}/complete")

    answers = at_once(deaf, *[call] * 8)

    assert {(answer.status, answer.json["state"]) for answer in answers} == {(200, "committed")}
    assert len({answer.json["sequence"] for answer in answers}) == 1
    assert len(deaf.messages(subject)) == 1


def test_a_store_that_lost_the_parts_gets_them_again(deaf: Live, subject: str) -> None:
    """A store that is killed while it joins parts may keep neither them nor the object."""
    ticket = uploaded(deaf, subject, producer_id="p", seqno=1)
    store, key = deaf.minio.s3(), {"Bucket": deaf.minio.bucket, "Key": ticket["object_name"]}
    (lost,) = multiparts_in_bucket(deaf, ticket["object_name"])
    store.abort_multipart_upload(**key, UploadId=lost["UploadId"])
    complete = f"/v1/uploads/{ticket['upload_id']}/complete"
    assert deaf.api("POST", complete).code == "upload_incomplete"

    again = uploaded(deaf, subject, producer_id="p", seqno=1)

    assert again["upload_id"] == ticket["upload_id"]
    assert deaf.api("POST", complete).json["state"] == "committed"
    assert [deaf.payload(message) for message in deaf.messages(subject)] == [PAYLOAD]


async def test_a_file_whose_parts_were_joined_before_the_host_was_killed_is_not_sent_again(
    deaf: Live, subject: str, tmp_path: Path
) -> None:
    path = tmp_path / "film.mp4"
    path.write_bytes(PAYLOAD)
    core = await open_core(deaf.settings)

    async def killed(_calls: UploadCalls, upload_id: str) -> Receipt:
        """As far as the host comes: the parts are one object, nothing is committed."""
        upload, _ = await known_upload(core, upload_id)
        assert upload.multipart_id is not None
        parts = await core.payloads.list_parts(upload.object_name, upload.multipart_id)
        assert await core.payloads.complete_multipart(upload.object_name, upload.multipart_id, parts or [])
        raise unavailable("the host is gone")

    async with AsyncClient(deaf.url, deaf.token, state_dir=tmp_path / "state") as client:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(UploadCalls, "complete", killed)
            with pytest.raises(MtsError, match="the host is gone"):
                await client.publish_file(subject, path)
        (name,) = {name for name in objects_in_bucket(deaf) if f"/{subject}/" in name}
        receipt = await client.publish_file(subject, path)
    await core.close()

    assert name.endswith(receipt.upload_id or "-")
    assert [deaf.payload(message) for message in deaf.messages(subject)] == [PAYLOAD]


def test_an_object_made_after_the_abort_is_found_and_deleted(deaf: Live, subject: str) -> None:
    """The store may complete what was aborted a moment before; here it happens for sure, by its own hand."""
    ticket = uploaded(deaf, subject)
    deaf.api("DELETE", f"/v1/uploads/{ticket['upload_id']}")
    deaf.minio.s3().put_object(Bucket=deaf.minio.bucket, Key=ticket["object_name"], Body=PAYLOAD)

    assert deaf.api("POST", f"/v1/uploads/{ticket['upload_id']}/complete").json["state"] == "aborted"

    eventually(lambda: deaf.reconcile() and ticket["object_name"] not in objects_in_bucket(deaf))
    assert deaf.messages(subject) == []


async def test_a_multipart_begun_while_its_upload_was_aborted_is_found_and_ended(
    deaf: Live, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = await open_core(deaf.settings)
    begin, begun = core.payloads.create_multipart, []

    async def begin_too_late(name: str, *, content_type: str, metadata: Mapping[str, str]) -> str:
        deaf.api("DELETE", f"/v1/uploads/{name.rpartition('/')[2]}")
        begun.append(name)
        return await begin(name, content_type=content_type, metadata=metadata)

    monkeypatch.setattr(core.payloads, "create_multipart", begin_too_late)
    try:
        with pytest.raises(MtsError) as refused:
            await issue_tickets(core, subject, [UploadSpec(len(PAYLOAD), "text/plain")])
    finally:
        await core.close()

    assert refused.value.code == "upload_final"
    assert len(multiparts_in_bucket(deaf, begun[0])) == 1, "the store has begun what nobody will finish"
    eventually(lambda: deaf.reconcile() and not multiparts_in_bucket(deaf, begun[0]))
