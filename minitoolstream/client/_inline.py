"""Publishing a payload that is in memory: inline when small, by ticket when not."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Mapping

from minitoolstream.api import schema
from minitoolstream.client._source import BytesSource
from minitoolstream.client._transport import Transport
from minitoolstream.client._types import receipt_of
from minitoolstream.client._upload import Upload
from minitoolstream.client._upload_calls import Announcement, json_in
from minitoolstream.domain.checks import check_idempotency_key
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.limits import MIB
from minitoolstream.domain.media_types import JSON_MESSAGE
from minitoolstream.domain.message import wire_number
from minitoolstream.domain.subject import check_subject
from minitoolstream.domain.upload import Receipt

INLINE_LIMIT = 4 * MIB
_RAW_LIMIT_AS_JSON = INLINE_LIMIT * 3 // 4 - MIB // 4
"""Base64 makes four bytes of three; the rest is room for the headers."""
_PLAIN_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+\Z")
_PLAIN_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?\Z")


async def publish_bytes(
    transport: Transport,
    subject: str,
    data: bytes,
    announced: Announcement,
    idempotency_key: str | None,
    *,
    inline_limit: int = INLINE_LIMIT,
) -> Receipt:
    """Inline when it fits; the same payload by ticket when the host says it is too large."""
    check_subject(subject)
    if announced.producer_id is not None and idempotency_key is not None:
        raise bad_request(
            "give producer_id or idempotency_key, not both: each alone prevents duplicates",
            field="idempotency_key",
        )
    if idempotency_key is not None:
        check_idempotency_key(idempotency_key, "idempotency_key")
    plain = _fits_http(announced)
    if len(data) <= min(inline_limit, INLINE_LIMIT if plain else _RAW_LIMIT_AS_JSON):
        try:
            return await _publish_inline(transport, subject, data, announced, idempotency_key, plain=plain)
        except MtsError as error:
            if error.code != "too_large":
                raise
    if idempotency_key is not None:
        raise MtsError(
            "too_large",
            "idempotency_key works for inline publishes only, and this payload is too large for one; "
            "use producer_id and seqno",
            {"size": len(data), "inline_limit": inline_limit},
        )
    return await Upload(transport, subject, BytesSource(data), announced).run()


async def _publish_inline(
    transport: Transport,
    subject: str,
    data: bytes,
    announced: Announcement,
    idempotency_key: str | None,
    *,
    plain: bool,
) -> Receipt:
    headers, body = _raw_form(data, announced) if plain else _json_form(data, announced)
    if announced.producer_id is None:
        # A key of our own, so that a retry after a broken connection never stores the message twice.
        headers["idempotency-key"] = idempotency_key or uuid.uuid4().hex
    answer = await transport.call(
        "POST",
        f"/v1/subjects/{subject}/messages",
        schema.ReceiptAnswer,
        body=body,
        headers=headers,
        repeatable=announced.producer_id is None or announced.seqno is not None,
    )
    return receipt_of(answer)


def _raw_form(data: bytes, announced: Announcement) -> tuple[dict[str, str], bytes]:
    headers = {"content-type": announced.content_type}
    headers.update({f"x-mts-header-{name}": value for name, value in announced.headers.items()})
    facts = {
        "producer-id": announced.producer_id,
        "seqno": announced.seqno,
        "epoch": announced.epoch,
        "group": announced.group,
        "codec": announced.codec,
        "transaction-id": announced.transaction_id,
    }
    headers.update({f"x-mts-{name}": str(value) for name, value in facts.items() if value is not None})
    return headers, data


def _json_form(data: bytes, announced: Announcement) -> tuple[dict[str, str], bytes]:
    request = schema.InlineRequest(
        data=base64.b64encode(data).decode(),
        encoding="base64",
        content_type=announced.content_type,
        headers=dict(announced.headers),
        producer_id=announced.producer_id,
        seqno=None if announced.seqno is None else wire_number(announced.seqno),
        epoch=announced.epoch,
        group=announced.group,
        codec=announced.codec,
    )
    return {"content-type": JSON_MESSAGE}, json_in(request, announced.transaction_id)


def _fits_http(announced: Announcement) -> bool:
    """Whether the message's facts survive as HTTP headers: ASCII, with names in lower case."""
    if announced.content_type.partition(";")[0].strip().lower() == JSON_MESSAGE:
        return False
    texts = [announced.content_type, *announced.headers.values()]
    texts += [name for name in (announced.producer_id, announced.group) if name is not None]
    return _all_match(_PLAIN_VALUE, texts) and _all_match(_PLAIN_NAME, announced.headers)


def _all_match(pattern: re.Pattern[str], texts: Mapping[str, str] | list[str]) -> bool:
    return all(isinstance(text, str) and pattern.match(text) for text in texts)
