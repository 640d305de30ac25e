"""Packs between PUT and commit (rule 23): discarded after the grace when nobody committed them, never otherwise."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from minitoolstream.bootstrap import open_core
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.pack import Group, InlineMessage, build_pack
from minitoolstream.domain.subject import new_id, pack_name
from minitoolstream.ports import PackResult
from minitoolstream.services.core import Core
from minitoolstream.services.publish_inline import publish_inline
from tests.faults.audit import objects_in_bucket, objects_of_rows
from tests.live import Live, eventually


@asynccontextmanager
async def core_of(live: Live) -> AsyncIterator[Core]:
    """The host's own parts in this process, so that a test can cut between two steps."""
    core = await open_core(live.settings)
    try:
        yield core
    finally:
        await core.close()


def message(subject: str, data: bytes, key: str | None = None) -> InlineMessage:
    return InlineMessage(subject, data, "text/plain", key=key)


def put_pack(live: Live, name: str) -> None:
    live.minio.s3().put_object(Bucket=live.minio.bucket, Key=name, Body=b"MTSP\x01 of a host that died")


def milliseconds() -> int:
    return time.time_ns() // 1_000_000


def test_an_uncommitted_pack_is_discarded_after_its_grace_and_not_before(deaf: Live) -> None:
    name = pack_name(new_id(milliseconds()))
    put_pack(deaf, name)

    deaf.reconcile()
    young = milliseconds() - 6_000 < int(name.rpartition("/")[2].replace("-", "")[:12], 16)
    assert name in objects_in_bucket(deaf) or not young

    eventually(lambda: deaf.reconcile() and name not in objects_in_bucket(deaf))


def test_a_committed_pack_outlives_its_grace(deaf: Live, subject: str) -> None:
    answer = eventually(lambda: _published(deaf, subject))
    name = deaf.messages(subject)[0]["object_name"]
    marker = pack_name(new_id(milliseconds()))
    put_pack(deaf, marker)

    # Packs are settled in the order of their names: the marker's end says that this one was looked at.
    eventually(lambda: deaf.reconcile() and marker not in objects_in_bucket(deaf))

    assert name in objects_in_bucket(deaf)
    (found,) = deaf.messages(subject)
    assert (found["sequence"], deaf.payload(found)) == (answer["sequence"], b"kept")


def _published(live: Live, subject: str) -> Any:
    answer = live.publish(subject, b"kept", idempotency_key="once")
    return answer.json if answer.status in {200, 201} else None


def test_what_is_not_ours_among_the_packs_is_never_touched(deaf: Live) -> None:
    foreign = {f"_mts/packs/{name}" for name in ("!first", "00000000-note.txt", "readme", "zz/last")}
    for name in foreign:
        put_pack(deaf, name)
    orphan = pack_name(new_id(milliseconds()))
    put_pack(deaf, orphan)

    eventually(lambda: deaf.reconcile() and orphan not in objects_in_bucket(deaf))

    assert foreign <= objects_in_bucket(deaf)
    for name in foreign:
        deaf.minio.s3().delete_object(Bucket=deaf.minio.bucket, Key=name)


async def test_a_host_that_dies_between_put_and_commit_leaves_nothing_and_its_message_is_stored_once(
    deaf: Live, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def died(_name: str, _groups: Sequence[Group], **_how: bool) -> list[list[PackResult]]:
        raise unavailable("as if the host had died here")

    async with core_of(deaf) as core:
        with monkeypatch.context() as patch:
            patch.setattr(core.metadata, "commit_pack", died)
            with pytest.raises(MtsError, match="died"):
                await publish_inline(core, message(subject, b"once", "k"))
        left_over = objects_in_bucket(deaf)
        result = await publish_inline(core, message(subject, b"once", "k"))

    assert result.receipt is not None
    assert not result.receipt.duplicate
    (stored,) = deaf.messages(subject)
    orphans = {name for name in left_over if name.startswith("_mts/packs/")} - {stored["object_name"]}
    eventually(lambda: deaf.reconcile() and stored["object_name"] in objects_in_bucket(deaf))
    eventually(lambda: deaf.reconcile() and not (orphans & objects_in_bucket(deaf)) - objects_of_rows(deaf))


async def test_a_commit_whose_answer_was_lost_is_not_repeated(
    deaf: Live, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with core_of(deaf) as core:
        commit = core.metadata.commit_pack

        async def lost(name: str, groups: Sequence[Group], **_how: bool) -> list[list[PackResult]]:
            await commit(name, groups)
            raise unavailable("the answer was lost")

        with monkeypatch.context() as patch:
            patch.setattr(core.metadata, "commit_pack", lost)
            with pytest.raises(MtsError, match="lost"):
                await publish_inline(core, message(subject, b"once", "k"))
        again = await publish_inline(core, message(subject, b"once", "k"))

    assert again.receipt is not None
    assert again.receipt.duplicate
    (stored,) = deaf.messages(subject)
    assert stored["sequence"] == again.receipt.sequence


async def test_a_pack_older_than_half_its_grace_is_refused(deaf: Live, subject: str) -> None:
    pack = build_pack([message(subject, b"too late")])
    async with core_of(deaf) as core:
        name = pack_name(new_id(await core.clock.now_ms() - 3_500))
        with pytest.raises(MtsError) as refused:
            await core.metadata.commit_pack(name, pack.groups)

    assert refused.value.code == "unavailable"
    assert deaf.messages(subject) == []


async def test_a_pack_that_is_in_the_trash_is_refused(deaf: Live, subject: str) -> None:
    """What a retried key made useless is in the trash; nothing can bring it back."""
    pack = build_pack([message(subject, b"x", "k")])
    async with core_of(deaf) as core:
        pack.groups[0].marks[0]["digest"] = "d"
        await core.metadata.commit_pack(pack_name(new_id(await core.clock.now_ms())), pack.groups)
        useless = pack_name(new_id(await core.clock.now_ms()))
        (results,) = await core.metadata.commit_pack(useless, pack.groups)
        assert results[0].receipt is not None
        assert results[0].receipt.duplicate
        with pytest.raises(MtsError) as refused:
            await core.metadata.commit_pack(useless, pack.groups)

    assert refused.value.code == "unavailable"


def test_aborting_a_message_that_waits_in_a_pack_leaves_its_neighbours_alone(deaf: Live, subject: str) -> None:
    deaf.ticket(subject, 1, producer_id="p", seqno=1)
    lines = [b'{"data": "before"}', b'{"data": "waits", "producer_id": "p", "seqno": 2}', b'{"data": "behind"}']
    path, kind = f"/v1/subjects/{subject}/messages/batch", {"content-type": "application/x-ndjson"}
    results = deaf.api("POST", path, b"\n".join(lines), kind).json["results"]
    waiting = results[1]["upload_id"]

    assert deaf.api("DELETE", f"/v1/uploads/{waiting}").json["state"] == "aborted"
    eventually(lambda: deaf.reconcile() and deaf.api("GET", f"/v1/uploads/{waiting}").status == 404)

    assert [deaf.payload(found) for found in deaf.messages(subject)] == [b"before", b"behind"]


def test_a_pack_goes_when_the_last_message_that_waited_in_it_is_aborted(deaf: Live, subject: str) -> None:
    deaf.ticket(subject, 1, producer_id="p", seqno=1)
    before = objects_in_bucket(deaf)
    answer = deaf.publish(subject, b"waits", x_mts_producer_id="p", x_mts_seqno="2")
    assert answer.json["state"] == "stored"
    (name,) = objects_in_bucket(deaf) - before

    deaf.api("DELETE", f"/v1/uploads/{answer.json['upload_id']}")

    eventually(lambda: deaf.reconcile() and name not in objects_in_bucket(deaf))
