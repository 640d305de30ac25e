"""From requests to the domain's words: shape first, then every limit. Whatever is wrong is said by field."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import TypeVar

import msgspec

from minitoolstream.api.app import Request
from minitoolstream.api.own_headers import HEADER_PREFIX, check_own_headers
from minitoolstream.api.schema import InlineRequest, PartsRequest, UploadRequest, UploadsRequest
from minitoolstream.domain.checks import (
    check_content_type,
    check_group,
    check_headers,
    check_idempotency_key,
    check_number,
    check_producer,
    check_upload,
)
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.limits import (
    MAX_FETCH_LIMIT,
    MAX_MESSAGES_PER_PACK,
    MAX_UPLOADS_PER_REQUEST,
    MAX_WAIT_SECONDS,
    PARTS_PER_PAGE,
)
from minitoolstream.domain.media_types import FRAMES, JSON_LINES, JSON_MESSAGE
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE
from minitoolstream.domain.pack import AlikeMessages, InlineMessage, read_alike_batch, read_batch
from minitoolstream.domain.subject import check_subject, check_upload_id
from minitoolstream.domain.subject_settings import check_codec
from minitoolstream.domain.transaction import check_transaction_id
from minitoolstream.domain.upload import UploadSpec

_TRANSACTION = "x-mts-transaction-id"
_TAKEN_WITH_JSON = frozenset({_TRANSACTION})
_KEY = "idempotency-key"
_MD5_LENGTH = 32
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?\Z")

T = TypeVar("T")


def decode(body: bytes, kind: type[T]) -> T:
    """JSON of exactly this shape."""
    try:
        return msgspec.json.decode(body, type=kind)
    except RecursionError:
        raise bad_request("the body does not fit: it is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"the body does not fit: {error}") from None


def subject_of(request: Request) -> str:
    return check_subject(request.params["subject"])


def upload_id_of(request: Request) -> str:
    return check_upload_id(request.params["upload_id"])


def uploads_of(request: Request) -> tuple[list[UploadSpec], bool]:
    """The announcements, and whether it was a single one."""
    many = b'"uploads"' in request.body and _is_map_with(request.body, "uploads")
    if not many:
        return [_keyed(_spec(decode(request.body, UploadRequest)), request.headers.get(_KEY))], True
    if _KEY in request.headers:
        raise bad_request("an Idempotency-Key is for one announcement", field="Idempotency-Key")
    uploads = decode(request.body, UploadsRequest).uploads
    if not 0 < len(uploads) <= MAX_UPLOADS_PER_REQUEST:
        raise bad_request(f"uploads must list 1 to {MAX_UPLOADS_PER_REQUEST} items", field="uploads")
    specs = []
    for index, upload in enumerate(uploads):
        try:
            specs.append(_spec(upload))
        except MtsError as error:
            raise MtsError(error.code, f"uploads[{index}]: {error.message}", error.details) from None
    return specs, False


def _is_map_with(body: bytes, key: str) -> bool:
    return key in decode(body, dict[str, msgspec.Raw])


def _spec(upload: UploadRequest) -> UploadSpec:
    announced = UploadSpec(
        size=upload.size,
        content_type=upload.content_type,
        sha256=upload.sha256,
        headers=upload.headers,
        producer_id=upload.producer_id,
        epoch=upload.epoch,
        group=upload.group,
        codec=upload.codec,
        transaction_id=_transaction(upload.transaction_id),
    )
    return check_upload(announced, upload.sizes, upload.seqno)


def _keyed(spec: UploadSpec, key: str | None) -> UploadSpec:
    """An open upload holds up its transaction: one whose ticket was lost on its way must be found again."""
    if key is None:
        return spec
    if spec.transaction_id is None or spec.producer_id is not None:
        raise bad_request(
            "an announcement takes an Idempotency-Key in a transaction and without a producer_id; "
            "elsewhere a ticket that nobody uses expires by itself",
            field="Idempotency-Key",
        )
    return replace(spec, key=check_idempotency_key(key))


def _transaction(transaction_id: str | None) -> str | None:
    return None if transaction_id is None else check_transaction_id(transaction_id)


def parts_of(request: Request) -> tuple[list[tuple[int, str | None]] | None, int]:
    """The parts to sign by number with their MD5s, or None and the number to start from."""
    wanted = decode(request.body or b"{}", PartsRequest)
    if wanted.parts is None:
        return None, wanted.start
    if not 0 < len(wanted.parts) <= PARTS_PER_PAGE:
        raise bad_request(f"parts must list 1 to {PARTS_PER_PAGE} items", field="parts")
    for part in wanted.parts:
        digits = part.md5 is None or (len(part.md5) == _MD5_LENGTH and set(part.md5) <= set("0123456789abcdef"))
        if not digits:
            raise bad_request(f"md5 of part {part.number} must be 32 lower-case hex digits", field="parts")
    return [(part.number, part.md5) for part in wanted.parts], 1


def inline_of(request: Request) -> InlineMessage:
    """An inline publish: the raw body, or a JSON message."""
    headers = request.headers
    _check_encoding(headers)
    key = headers.get(_KEY)
    if key is not None:
        key = check_idempotency_key(key)
    if headers.get("content-type", "").partition(";")[0].strip() == JSON_MESSAGE:
        check_own_headers(headers, _TAKEN_WITH_JSON, "; in a JSON message it is a field of the body")
        message = _inline(subject_of(request), decode(request.body, InlineRequest))
    else:
        message = _raw_inline(request)
    if key is not None and message.producer_id is not None:
        raise bad_request(
            "Idempotency-Key and producer_id exclude each other: a seqno already makes the publish idempotent",
            field="Idempotency-Key",
        )
    message.key = key
    if _TRANSACTION in headers:
        message.transaction_id = check_transaction_id(headers[_TRANSACTION])
    return message


def _check_encoding(headers: Mapping[str, str]) -> None:
    """A body is stored as it came: what HTTP packed would be given to readers who are not told."""
    encoding = headers.get("content-encoding")
    if encoding and encoding.lower() != "identity":
        raise bad_request(
            f"Content-Encoding {encoding[:40]!r} is not taken: send the body as it is; that a payload is compressed "
            "(gzip, zstd) is said by the header X-Mts-Codec, or by `codec` of a JSON message or of an item of a batch",
            field="Content-Encoding",
        )


def _raw_inline(request: Request) -> InlineMessage:
    headers = request.headers
    own = {
        _utf8(name.removeprefix(HEADER_PREFIX), name): _utf8(value, name)
        for name, value in headers.items()
        if name.startswith(HEADER_PREFIX)
    }
    epoch = headers.get("x-mts-epoch")
    producer_id, seqno, number = check_producer(
        _optional_utf8(headers, "x-mts-producer-id"),
        headers.get("x-mts-seqno"),
        None if epoch is None else check_number(epoch, "X-Mts-Epoch"),
    )
    return InlineMessage(
        subject=subject_of(request),
        data=request.body,
        content_type=check_content_type(headers.get("content-type", DEFAULT_CONTENT_TYPE)),
        headers=check_headers(own),
        producer_id=producer_id,
        seqno=seqno,
        epoch=number,
        group=check_group(_optional_utf8(headers, "x-mts-group")),
        codec=check_codec(headers.get("x-mts-codec")),
    )


def _utf8(value: str, name: str) -> str:
    """HTTP header values arrive as Latin-1; what was meant is UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        raise bad_request(f"header {name[:40]!r} is not valid UTF-8", field=name) from None


def _optional_utf8(headers: Mapping[str, str], name: str) -> str | None:
    value = headers.get(name)
    return None if value is None else _utf8(value, name)


def _inline(subject: str, item: InlineRequest) -> InlineMessage:
    producer_id, seqno, epoch = check_producer(item.producer_id, item.seqno, item.epoch)
    default = DEFAULT_CONTENT_TYPE if item.encoding == "base64" else "text/plain; charset=utf-8"
    return InlineMessage(
        subject=subject,
        data=_payload(item),
        content_type=check_content_type(item.content_type or default),
        headers=check_headers(item.headers),
        producer_id=producer_id,
        seqno=seqno,
        epoch=epoch,
        group=check_group(item.group),
        codec=check_codec(item.codec),
        transaction_id=_transaction(item.transaction_id),
    )


def _payload(item: InlineRequest) -> bytes:
    try:
        if item.encoding == "utf-8":
            return item.data.encode()
        if item.encoding == "base64":
            return base64.b64decode(item.data, validate=True)
    except UnicodeEncodeError:
        raise bad_request("data is not valid UTF-8", field="data") from None
    except ValueError:
        raise bad_request('data is not base64; leave "encoding" out to send text', field="data") from None
    raise bad_request('encoding must be "utf-8" or "base64"', field="encoding")


class _FrameMeta(msgspec.Struct, forbid_unknown_fields=True):
    content_type: str = DEFAULT_CONTENT_TYPE
    headers: dict[str, str] = {}
    producer_id: str | None = None
    seqno: int | str | None = None
    epoch: int | None = None
    group: str | None = None
    codec: str | None = None


def batch_of(request: Request) -> AlikeMessages | list[InlineMessage | MtsError]:
    """Every item of a batch, or what is wrong with it alone."""
    items = _items_of(request)
    if _TRANSACTION in request.headers:
        transaction_id = check_transaction_id(request.headers[_TRANSACTION])
        for item in [items.like] if isinstance(items, AlikeMessages) else items:
            if isinstance(item, InlineMessage):
                item.transaction_id = transaction_id
    return items


def _items_of(request: Request) -> AlikeMessages | list[InlineMessage | MtsError]:
    subject = subject_of(request)
    _check_encoding(request.headers)
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if _KEY in request.headers:
        raise bad_request("a batch takes no Idempotency-Key; a producer_id and seqnos make it safe to repeat")
    if kind == FRAMES:
        if alike := _alike(subject, request.body):
            return alike
        frames = list(islice(read_batch(request.body), MAX_MESSAGES_PER_PACK + 1))
        _check_count(len(frames))
        return _framed(subject, frames)
    if kind in {JSON_LINES, "application/jsonl"}:
        _check_count(1 + request.body.strip().count(b"\n"))
        lines = [line for line in request.body.split(b"\n") if line.strip()]
        _check_count(len(lines))
        return [_line(subject, line) for line in lines]
    raise bad_request(f"send a batch as {JSON_LINES} or {FRAMES}, not {kind or 'without a content type'}")


def _check_count(count: int) -> None:
    """Before the items are read: a body of line ends must not become millions of them."""
    if not 0 < count <= MAX_MESSAGES_PER_PACK:
        raise bad_request(f"a batch holds 1 to {MAX_MESSAGES_PER_PACK} messages")


def _line(subject: str, line: bytes) -> InlineMessage | MtsError:
    try:
        item = decode(line, InlineRequest)
        if item.transaction_id is not None:
            raise bad_request("a batch is in a transaction as a whole: name it in X-Mts-Transaction-Id")
        return _inline(subject, item)
    except MtsError as error:
        return error.with_traceback(None)


def _alike(subject: str, body: bytes) -> AlikeMessages | None:
    """Most batches have the same metadata in each item: it is read and checked once, and no item for itself."""
    found = read_alike_batch(body)
    if found is None:
        return None
    meta, payloads = found
    like = _described(subject, meta)
    if isinstance(like, MtsError) or like.producer_id is not None or like.group is not None:
        return None
    return AlikeMessages(like, payloads)


def _framed(subject: str, frames: list[tuple[bytes, bytes]]) -> list[InlineMessage | MtsError]:
    """Equal metadata is read once here too."""
    known: dict[bytes, InlineMessage | MtsError] = {}
    items: list[InlineMessage | MtsError] = []
    for meta, data in frames:
        like = known.get(meta)
        if like is None:
            like = known[meta] = _described(subject, meta)
        if isinstance(like, InlineMessage):
            like = InlineMessage(
                subject,
                data,
                like.content_type,
                like.headers,
                like.producer_id,
                like.seqno,
                like.epoch,
                like.group,
                like.codec,
            )
        items.append(like)
    return items


def _described(subject: str, meta: bytes) -> InlineMessage | MtsError:
    try:
        item = decode(meta or b"{}", _FrameMeta)
        producer_id, seqno, epoch = check_producer(item.producer_id, item.seqno, item.epoch)
        content_type, headers = check_content_type(item.content_type), check_headers(item.headers)
        group, codec = check_group(item.group), check_codec(item.codec)
    except MtsError as error:
        return error.with_traceback(None)
    return InlineMessage(subject, b"", content_type, headers, producer_id, seqno, epoch, group, codec)


def number_of(query: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    value = check_number(text, name)
    if not low <= value <= high:
        raise bad_request(f"{name} must be between {low} and {high}", field=name)
    return value


def limit_of(query: Mapping[str, str]) -> int:
    return number_of(query, "limit", 100, 1, MAX_FETCH_LIMIT)


def partition_of(query: Mapping[str, str]) -> int | None:
    return check_number(query["partition"], "partition") if "partition" in query else None


def flag_of(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "false")
    if text not in {"true", "false"}:
        raise bad_request(f"{name} must be true or false", field=name)
    return text == "true"


def choice_of(query: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = query.get(name, choices[0])
    if text not in choices:
        raise bad_request(f"{name} must be one of {', '.join(choices)}", field=name)
    return text


def wait_of(query: Mapping[str, str]) -> float:
    text = query.get("wait", "0")
    wait = float(text) if _SECONDS.match(text) else -1.0
    if not 0 <= wait <= MAX_WAIT_SECONDS:
        raise bad_request(f"wait must be 0 to {MAX_WAIT_SECONDS:g} seconds", field="wait")
    return wait
