"""The metadata store on Tarantool: one stored function a method."""

from __future__ import annotations

import asyncio
from binascii import a2b_base64
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import msgspec

from minitoolstream.adapters.tarantool.connection import Connection
from minitoolstream.adapters.tarantool.delivery import conditions_of
from minitoolstream.config import Settings
from minitoolstream.domain.consumer import Filter
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.lanes import hash_of
from minitoolstream.domain.message import Extent
from minitoolstream.domain.pack import Group
from minitoolstream.domain.upload import Receipt, State, StoredObject, Upload, UploadSpec
from minitoolstream.ports import (
    WALK_AT_ONCE,
    Changes,
    Doomed,
    DueUploads,
    ExtentPage,
    GroupResults,
    Metrics,
    NewUpload,
    PackResult,
)


class TarantoolMetadata:
    """Fulfils `ports.MetadataStore`. Long waits go over a connection of their own."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        address, user, password = (
            settings["tarantool.address"],
            settings["tarantool.user"],
            settings.secret("tarantool.password"),
        )
        timeout = settings["tarantool.timeout"]
        self._tarantool = Connection(address, user, password, timeout, metrics)
        self._waiting = Connection(address, user, password, timeout, metrics)
        self._grace = int(settings["uploads.put_grace"])
        self._pack_grace = int(settings["packs.grace"])
        self._times = {
            "life": int(settings["uploads.ticket_life"]),
            "producer_life": int(settings["uploads.producer_ticket_life"]),
            "first_look": int(settings["uploads.first_look"]),
            "max_life": int(settings["uploads.max_life"]),
            "put_grace": self._grace,
        }

    @property
    def connection(self) -> Connection:
        """For the other stores on this Tarantool."""
        return self._tarantool

    async def create_uploads(self, subject: str, specs: Sequence[UploadSpec]) -> list[NewUpload]:
        results = await self._tarantool.call("upload_create", subject, [_spec(spec) for spec in specs], self._times)
        return [
            NewUpload(_made(item["upload"]) if "upload" in item else None, _receipt(item.get("receipt")))
            for item in results
        ]

    async def get_upload(self, upload_id: str) -> tuple[Upload, Receipt] | None:
        found = await self._tarantool.call("upload_get", upload_id)
        return _pair(found) if found else None

    async def set_multipart(self, upload_id: str, multipart_id: str | None, lost: str | None = None) -> Upload:
        return _made(await self._tarantool.call("upload_set_multipart", upload_id, multipart_id, lost))

    async def extend_upload(self, upload_id: str) -> Upload:
        return _made(await self._tarantool.call("upload_extend", upload_id, self._times))

    async def commit_uploads(self, stored: Sequence[StoredObject]) -> list[Receipt | None]:
        items = [[item.upload_id, item.size, item.object_name, item.seen] for item in stored]
        receipts = await self._tarantool.call("upload_commit", items, self._grace)
        return [None if item["state"] == "unknown" else _receipt(item) for item in receipts]

    async def abort_upload(self, upload_id: str) -> tuple[Upload, Receipt, bool]:
        ended = await self._tarantool.call("upload_abort", upload_id, self._grace)
        return *_pair(ended), ended["in_trash"]

    async def expire_upload(self, upload_id: str) -> Receipt:
        return _pair(await self._tarantool.call("upload_expire", upload_id, self._grace))[1]

    async def resume_upload(self, upload_id: str) -> None:
        await self._tarantool.call("upload_resume", upload_id, self._grace)

    async def uploads_due(self, limit: int) -> DueUploads:
        due = await self._tarantool.call("uploads_due", limit)
        return DueUploads([_made(item) for item in due["uploads"]], due["removed"], due["more"])

    async def postpone_upload(self, upload_id: str, parts_seen: int) -> None:
        await self._tarantool.call("upload_postpone", upload_id, parts_seen, self._times)

    async def settle_upload(self, upload_id: str, *, object_is_there: bool) -> None:
        await self._tarantool.call("upload_settle", upload_id, object_is_there)

    async def commit_pack(
        self, object_name: str, groups: Sequence[Group], *, all_or_none: bool = False
    ) -> list[GroupResults]:
        pack = {
            "object_name": object_name,
            "groups": [_group(group) for group in groups],
            "all_or_none": all_or_none,
        }
        results = await self._tarantool.call("publish_batch", pack, self._pack_grace)
        return [_pack_results(object_name, group, result) for group, result in zip(groups, results, strict=True)]

    async def start_producer(
        self, subject: str, producer_id: str, headers: Mapping[str, str] | None = None
    ) -> tuple[int, int | None]:
        session = await self._tarantool.call("producer_start", subject, producer_id, self._grace, dict(headers or {}))
        return session["epoch"], session.get("last_seqno")

    async def get_messages(
        self,
        subject: str,
        start: int,
        limit: int,
        *,
        partition: int | None = None,
        whole: bool = False,
        conditions: Filter = (),
    ) -> ExtentPage:
        page = await self._tarantool.call(
            "messages_get", subject, start, limit, partition, whole, conditions_of(conditions) or None
        )
        extents = [Extent(*row) for row in page["rows"]]
        return ExtentPage(extents, page["next_sequence"], page["latest_sequence"], page["watermark"])

    async def walk_extents(
        self, subject: str, first: int, last: int, *, partition: int | None = None, at_once: int = WALK_AT_ONCE
    ) -> AsyncGenerator[list[Extent], None]:
        def ask(start: int) -> asyncio.Task[Any]:
            return asyncio.ensure_future(self._tarantool.call("extents_get", subject, start, at_once, partition))

        coming = ask(first) if first <= last else None
        try:
            while coming is not None:
                page = await coming
                following = page["next_sequence"]
                coming = ask(following) if following <= min(last, page["watermark"]) else None
                await asyncio.sleep(0)  # it is sent before these rows are looked at
                yield _unpacked(a2b_base64(page["rows"]))
        finally:
            if coming is not None:
                coming.cancel()

    async def get_message(self, sequence: int) -> Extent | None:
        row = await self._tarantool.call("message_get", sequence)
        return Extent(*row) if row else None

    async def sequence_at(self, subject: str, seconds: int) -> int:
        return int(await self._tarantool.call("sequence_at", subject, seconds))

    async def latest_sequence(self, subject: str) -> int:
        return int(await self._tarantool.call("latest_get", subject))

    async def wait_for_changes(self, cursor: tuple[str, int], timeout: float) -> Changes:
        found = await self._waiting.call("changes_wait", *cursor, timeout, timeout=timeout + 5)
        return Changes((found["boot"], found["cursor"]), found["lost"], found["ids"], found["names"])

    async def trash_due(self, limit: int) -> list[Doomed]:
        return [Doomed(*row) for row in await self._tarantool.call("trash_due", limit)]

    async def trash_done(self, names: Sequence[str]) -> None:
        await self._tarantool.call("trash_done", list(names))

    async def trash_postpone(self, names: Sequence[str], seconds: int) -> None:
        await self._tarantool.call("trash_postpone", list(names), seconds)

    async def packs_cursor(self) -> str:
        return str(await self._tarantool.call("packs_cursor", self._pack_grace))

    async def settle_packs(self, cursor: str, names: Sequence[str]) -> tuple[int, int]:
        result = await self._tarantool.call("packs_settle", cursor, list(names), self._pack_grace)
        return result["settled"], result["discarded"]

    async def trim_idempotency(self) -> int:
        return int(await self._tarantool.call("idempotency_trim"))

    async def reject_event(self, object_name: str, reason: str) -> None:
        await self._tarantool.call("event_reject", object_name, reason)

    async def take_lease(self, name: str, owner: str, seconds: float) -> bool:
        return bool(await self._tarantool.call("lease_take", name, owner, seconds))

    async def now_ms(self) -> int:
        return int(await self._tarantool.call("time_get"))

    async def status(self) -> dict[str, Any]:
        return dict(await self._tarantool.call("status_get"))

    async def subjects(self, after: str, limit: int, prefix: str = "") -> tuple[list[dict[str, Any]], bool]:
        found = await self._tarantool.call("subjects_get", after, limit, prefix)
        return list(found["subjects"]), bool(found["more"])

    async def check(self) -> None:
        await self._tarantool.call("time_get", timeout=1.5)

    async def close(self) -> None:
        await self._waiting.close()
        await self._tarantool.close()


_decode_extents = msgspec.msgpack.Decoder(list[Extent]).decode


def _unpacked(rows: bytes) -> list[Extent]:
    try:
        return _decode_extents(rows)
    except msgspec.ValidationError:  # the specification's own `publish_message` takes headers with values of any type
        return [Extent(row[0], _texts(row[1]), *row[2:]) for row in msgspec.msgpack.decode(rows)]
    except UnicodeError:
        raise MtsError("internal", "a message in Tarantool has text that is not UTF-8") from None


def _texts(headers: Mapping[Any, Any]) -> dict[str, str]:
    return {str(name): value if isinstance(value, str) else _json(value) for name, value in headers.items()}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_UPLOAD_FIELDS = tuple(Upload.__dataclass_fields__)


def _made(fields: dict[str, Any]) -> Upload:
    values = {name: fields.get(name) for name in _UPLOAD_FIELDS}
    values["state"] = State(fields["state"])
    return Upload(**values)  # type: ignore[arg-type]


def _receipt(fields: dict[str, Any] | None) -> Receipt | None:
    if fields is None:
        return None
    return Receipt(
        upload_id=fields.get("upload_id"),
        state=State(fields["state"]),
        sequence=fields.get("sequence"),
        partition=fields.get("partition"),
        offset=fields.get("offset"),
        duplicate=bool(fields.get("duplicate")),
        waits_for=fields.get("waits_for"),
        reason=fields.get("reason"),
        transaction_id=fields.get("transaction_id"),
    )


def _pair(found: dict[str, Any]) -> tuple[Upload, Receipt]:
    receipt = _receipt(found["receipt"])
    assert receipt is not None
    return _made(found["upload"]), receipt


def _spec(spec: UploadSpec) -> dict[str, Any]:
    return {
        "size": spec.size,
        "content_type": spec.content_type,
        "sha256": spec.sha256,
        "headers": dict(spec.headers),
        "producer_id": spec.producer_id,
        "seqno": spec.seqno,
        "epoch": spec.epoch,
        "sizes": list(spec.sizes) if spec.sizes else None,
        "part_size": spec.part_size,
        "group": spec.group,
        "hash": None if spec.group is None else hash_of(spec.group),
        "codec": spec.codec,
        "transaction_id": spec.transaction_id,
        "key": spec.key,
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "subject": group.subject,
        "headers": dict(group.headers),
        "content_type": group.content_type,
        "codec": group.codec,
        "byte_from": group.byte_from,
        "sizes": group.sizes,
        "own": group.own or None,
        "marks": group.marks or None,
        "transaction_id": group.transaction_id,
    }


def _pack_results(name: str, group: Group, result: dict[str, Any]) -> GroupResults:
    if "error" in result:  # of a transaction: all or none
        return GroupResults([PackResult(None, _error(result["error"]))] * len(group.sizes))
    answers: list[PackResult | None] = [None] * len(group.sizes)
    committed = State.COMMITTED  # Python 3.11 runs a function whenever a member is named
    for first, count, sequence, partition, offset in result["runs"]:
        answers[first : first + count] = [
            PackResult(Receipt(committed, None, sequence + step, partition, offset + step), None, name)
            for step in range(count)
        ]
    for first, count, upload_id in result.get("staged", ()):
        staged = PackResult(Receipt(State.STORED, upload_id, transaction_id=group.transaction_id))
        answers[first : first + count] = [staged] * count
    for other in result["others"]:
        if "error" in other:
            answers[other["index"]] = PackResult(None, _error(other["error"]))
        else:
            answers[other["index"]] = PackResult(_receipt(other))
    return GroupResults([answer for answer in answers if answer is not None], result.get("retention"))


def _error(fields: dict[str, Any]) -> MtsError:
    return MtsError(fields["code"], fields["message"], fields.get("details"))
