"""From requests to the domain's words: shape first, then every limit. Whatever is wrong is said by field."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from itertools import islice
from typing import TypeVar

import msgspec

from minitoolstream.api.app import Request
from minitoolstream.api.schema import InlineRequest, PartsRequest, UploadRequest, UploadsRequest
from minitoolstream.domain.checks import (
    check_content_type,
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
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE
from minitoolstream.domain.pack import InlineMessage, read_batch
from minitoolstream.domain.subject import check_subject, check_upload_id
from minitoolstream.domain.upload import UploadSpec

JSON_MESSAGE = "application/vnd.mts.message+json"
FRAMES = "application/vnd.mts.frames"
JSON_LINES = "application/x-ndjson"
_HEADER_PREFIX = "x-mts-header-"
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
        return [_spec(decode(request.body, UploadRequest))], True
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
    )
    return check_upload(announced, upload.sizes, upload.seqno)


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
    key = headers.get("idempotency-key")
    if key is not None:
        key = check_idempotency_key(key)
    if headers.get("content-type", "").partition(";")[0].strip() == JSON_MESSAGE:
        message = _inline(subject_of(request), decode(request.body, InlineRequest))
    else:
        message = _raw_inline(request)
    if key is not None and message.producer_id is not None:
        raise bad_request(
            "Idempotency-Key and producer_id exclude each other: a seqno already makes the publish idempotent",
            field="Idempotency-Key",
        )
    message.key = key
    return message


def _raw_inline(request: Request) -> InlineMessage:
    headers = request.headers
    own = {
        _utf8(name.removeprefix(_HEADER_PREFIX), name): _utf8(value, name)
        for name, value in headers.items()
        if name.startswith(_HEADER_PREFIX)
    }
    epoch = headers.get("x-mts-epoch")
    producer_id, seqno, number = check_producer(
        _optional_utf8(headers.get("x-mts-producer-id")),
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
    )


def _utf8(value: str, name: str) -> str:
    """HTTP header values arrive as Latin-1; what was meant is UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        raise bad_request(f"header {name[:40]!r} is not valid UTF-8", field=name) from None


def _optional_utf8(value: str | None) -> str | None:
    return None if value is None else _utf8(value, "X-Mts-Producer-Id")


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


def batch_of(request: Request) -> list[InlineMessage | MtsError]:
    """Every item of a batch, or what is wrong with it alone."""
    subject = subject_of(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if "idempotency-key" in request.headers:
        raise bad_request("a batch takes no Idempotency-Key; a producer_id and seqnos make it safe to repeat")
    if kind == FRAMES:
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
        return _inline(subject, decode(line, InlineRequest))
    except MtsError as error:
        return error.with_traceback(None)


def _framed(subject: str, frames: list[tuple[bytes, bytes]]) -> list[InlineMessage | MtsError]:
    """Most items of a batch have the same metadata, to the byte: it is read and checked once."""
    known: dict[bytes, InlineMessage | MtsError] = {b"": InlineMessage(subject, b"", DEFAULT_CONTENT_TYPE)}
    items: list[InlineMessage | MtsError] = []
    for meta, data in frames:
        like = known.get(meta)
        if like is None:
            like = known[meta] = _described(subject, meta)
        if isinstance(like, InlineMessage):
            like = InlineMessage(
                subject, data, like.content_type, like.headers, like.producer_id, like.seqno, like.epoch
            )
        items.append(like)
    return items


def _described(subject: str, meta: bytes) -> InlineMessage | MtsError:
    try:
        item = decode(meta, _FrameMeta)
        producer_id, seqno, epoch = check_producer(item.producer_id, item.seqno, item.epoch)
        content_type, headers = check_content_type(item.content_type), check_headers(item.headers)
    except MtsError as error:
        return error.with_traceback(None)
    return InlineMessage(subject, b"", content_type, headers, producer_id, seqno, epoch)


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


def start_of(query: Mapping[str, str]) -> int | str:
    text = query.get("start", "1")
    return text if text in {"first", "last", "new"} else check_number(text, "start")


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
