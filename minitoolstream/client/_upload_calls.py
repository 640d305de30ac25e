"""The API's calls about uploads, one method each."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from minitoolstream.api import schema
from minitoolstream.client._transport import Transport, decode
from minitoolstream.client._types import receipt_of
from minitoolstream.domain.checks import check_content_type, check_group, check_headers, check_number, check_text
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MAX_WAIT_SECONDS
from minitoolstream.domain.message import wire_number
from minitoolstream.domain.subject import check_subject, check_upload_id
from minitoolstream.domain.upload import Receipt

COMPLETE_TIMEOUT = 120.0
"""The store joins the parts before it answers."""
JSON = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a producer says about a payload besides its bytes."""

    content_type: str
    headers: Mapping[str, str] = field(default_factory=dict)
    producer_id: str | None = None
    seqno: int | None = None
    epoch: int | None = None
    group: str | None = None
    codec: str | None = None
    transaction_id: str | None = None

    def __post_init__(self) -> None:
        """What cannot be sent is refused here, by its name."""
        check_content_type(self.content_type)
        check_headers(self.headers)
        check_group(self.group)
        if self.producer_id is not None:
            check_text(self.producer_id, "producer_id")
        for field_name in ("seqno", "epoch"):
            if getattr(self, field_name) is not None:
                check_number(getattr(self, field_name), field_name)


class UploadCalls:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def ticket(self, subject: str, announced: Announcement, size: int, sha256: str) -> schema.Ticket | Receipt:
        """A ticket; or the receipt, when a named producer's message is stored already."""
        body = schema.UploadRequest(
            size=size,
            content_type=announced.content_type,
            sha256=sha256,
            headers=dict(announced.headers),
            producer_id=announced.producer_id,
            seqno=None if announced.seqno is None else wire_number(announced.seqno),
            epoch=announced.epoch,
            group=announced.group,
            codec=announced.codec,
        )
        # Repeatable: a second ticket that nobody uses holds no payload and expires. In a transaction it would hold up
        # the commit, so there it is the same one.
        keyed = announced.transaction_id is not None and announced.producer_id is None
        response = await self._transport.send(
            "POST",
            f"/v1/subjects/{check_subject(subject)}/uploads",
            body=json_in(body, announced.transaction_id),
            headers={**JSON, "idempotency-key": uuid.uuid4().hex} if keyed else JSON,
        )
        if response.status == 201:
            return decode(response, schema.Ticket)
        return receipt_of(decode(response, schema.ReceiptAnswer))

    async def receipt(self, upload_id: str, wait: float = 0) -> Receipt:
        """What became of an upload; waits up to `wait` seconds for it to be committed."""
        if not 0 <= wait <= MAX_WAIT_SECONDS:
            raise MtsError("bad_request", f"wait is at most {MAX_WAIT_SECONDS:g} seconds", {"field": "wait"})
        path = f"/v1/uploads/{check_upload_id(upload_id)}"
        query = {"wait": f"{wait:g}"} if wait else None
        return receipt_of(await self._transport.call("GET", path, schema.ReceiptAnswer, query=query, timeout=wait + 30))

    async def complete(self, upload_id: str) -> Receipt:
        path = f"/v1/uploads/{check_upload_id(upload_id)}/complete"
        return receipt_of(await self._transport.call("POST", path, schema.ReceiptAnswer, timeout=COMPLETE_TIMEOUT))

    async def abort(self, upload_id: str) -> Receipt:
        path = f"/v1/uploads/{check_upload_id(upload_id)}"
        return receipt_of(await self._transport.call("DELETE", path, schema.ReceiptAnswer))

    async def parts(self, upload_id: str) -> tuple[schema.Parts, dict[int, schema.StoredPartAnswer]]:
        """The form of a multipart upload, and all parts that arrived."""
        path = f"/v1/uploads/{check_upload_id(upload_id)}/parts"
        answer = await self._transport.call("GET", path, schema.Parts)
        return answer, {part.number: part for part in answer.arrived}

    async def sign_parts(self, upload_id: str, md5s: Sequence[tuple[int, str]]) -> list[schema.PartUrl]:
        """URLs for these parts, each good for this very content: the store checks the MD5."""
        path = f"/v1/uploads/{check_upload_id(upload_id)}/parts"
        body = schema.PartsRequest(parts=[schema.PartToSign(number, md5) for number, md5 in md5s])
        answer = await self._transport.call("POST", path, schema.Parts, body=msgspec.json.encode(body), headers=JSON)
        return answer.urls


def json_in(request: msgspec.Struct, transaction_id: str | None) -> bytes:
    """A request, in a transaction if there is one."""
    if transaction_id is None:
        return msgspec.json.encode(request)
    return msgspec.json.encode({**msgspec.to_builtins(request), "transaction_id": transaction_id})
