"""What a request may contain. Each check returns the clean value or raises an error that names the field."""

from __future__ import annotations

import re
from collections.abc import Mapping

from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.limits import (
    MAX_CONTENT_TYPE_LENGTH,
    MAX_GROUP_LENGTH,
    MAX_HEADERS,
    MAX_HEADERS_BYTES,
    MAX_IDEMPOTENCY_KEY_LENGTH,
    MAX_MESSAGES_PER_PACK,
    MAX_PAYLOAD_BYTES,
    MAX_PRODUCER_ID_LENGTH,
    MAX_SEQUENCE,
)
from minitoolstream.domain.pack import FRAME_PREFIX
from minitoolstream.domain.subject_settings import check_codec
from minitoolstream.domain.upload import UploadSpec

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_CONTENT_TYPE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+(\s*;[\x20-\x7e]*)?\Z")
_VISIBLE = re.compile(r"[\x21-\x7e]+\Z")
_DIGITS = re.compile(r"[0-9]+\Z")
_MOST_DIGITS = 20
_NOT_IN_A_HEADER = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def check_number(value: int | str | None, field: str) -> int:
    """A sequence, seqno or offset: a number, or a string of digits."""
    if isinstance(value, str):
        if not _DIGITS.match(value):
            raise bad_request(f"{field} {value[:40]!r} is not a whole number", field=field)
        value = int(value) if len(value) <= _MOST_DIGITS else MAX_SEQUENCE + 1
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise bad_request(f"{field} must be a whole number between 0 and 2^63-1", field=field)
    if value > MAX_SEQUENCE:
        raise bad_request(f"{field} is too large: the largest number is 2^63-1", field=field)
    return value


def check_text(value: object, field: str) -> str:
    """A text that UTF-8 can carry; callers of the SDK may hand in whatever they like."""
    if not isinstance(value, str):
        raise bad_request(f"{field} must be text, not {type(value).__name__}", field=field)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise bad_request(f"{field} is not valid UTF-8", field=field) from None
    return value


def fits_a_header(text: str) -> bool:
    """Whether an HTTP header can carry it: no line breaks or other controls, nothing that UTF-8 cannot write."""
    return _NOT_IN_A_HEADER.search(text) is None


def check_size(size: int) -> int:
    if size < 0:
        raise bad_request("size must not be negative", field="size")
    if size > MAX_PAYLOAD_BYTES:
        raise MtsError("too_large", "size is more than 5 TiB, which no object store takes", {"field": "size"})
    return size


def check_content_type(value: str) -> str:
    if len(check_text(value, "content_type")) > MAX_CONTENT_TYPE_LENGTH or not _CONTENT_TYPE.match(value):
        raise bad_request(f"content_type {value[:80]!r} is not a media type such as text/plain", field="content_type")
    return value


def check_sha256(value: str | None) -> str | None:
    if value is not None and not _SHA256.match(value):
        raise bad_request("sha256 must be 64 lower-case hex digits", field="sha256")
    return value


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Message headers: strings that UTF-8 can carry, in bounds."""
    if len(headers) > MAX_HEADERS:
        raise bad_request(f"more than {MAX_HEADERS} headers", field="headers")
    total = 0
    for name, value in headers.items():
        if not name:
            raise bad_request("a header has an empty name", field="headers")
        try:
            total += len(name.encode()) + len(value.encode())
        except UnicodeEncodeError:
            raise bad_request(f"header {name[:40]!r} is not valid UTF-8", field="headers") from None
        except AttributeError:
            raise bad_request(f"header {name!r}: names and values are text", field="headers") from None
    if total > MAX_HEADERS_BYTES:
        raise bad_request(f"headers are larger than {MAX_HEADERS_BYTES} bytes together", field="headers")
    return dict(headers)


def check_producer(
    producer_id: str | None, seqno: int | str | None, epoch: int | None
) -> tuple[str | None, int | None, int | None]:
    """A named producer gives an id and a seqno, both or neither."""
    if producer_id is None:
        if seqno is not None or epoch is not None:
            raise bad_request("seqno and epoch need a producer_id", field="producer_id")
        return None, None, None
    if not 0 < len(check_text(producer_id, "producer_id")) <= MAX_PRODUCER_ID_LENGTH:
        raise bad_request(f"producer_id must have 1 to {MAX_PRODUCER_ID_LENGTH} characters", field="producer_id")
    if seqno is None:
        raise bad_request("a producer_id needs a seqno", field="seqno")
    if epoch is not None:
        epoch = check_number(epoch, "epoch")
    return producer_id, check_number(seqno, "seqno"), epoch


def check_group(group: str | None) -> str | None:
    """What keeps messages together: those of a group share a partition."""
    if group is None:
        return None
    if not 0 < len(check_text(group, "group")) <= MAX_GROUP_LENGTH:
        raise bad_request(f"group must have 1 to {MAX_GROUP_LENGTH} characters", field="group")
    return group


def check_idempotency_key(key: str, field: str = "Idempotency-Key") -> str:
    if len(check_text(key, field)) > MAX_IDEMPOTENCY_KEY_LENGTH or not _VISIBLE.match(key):
        raise bad_request(f"{field} must be 1 to {MAX_IDEMPOTENCY_KEY_LENGTH} visible ASCII characters", field=field)
    return key


def check_pack_sizes(size: int, sizes: list[int] | None) -> tuple[int, ...] | None:
    """The frame sizes of a pack that the producer uploads itself; they must fit into the object."""
    if sizes is None:
        return None
    if not 0 < len(sizes) <= MAX_MESSAGES_PER_PACK:
        raise bad_request(f"sizes must list 1 to {MAX_MESSAGES_PER_PACK} messages", field="sizes")
    if any(frame < 0 for frame in sizes):
        raise bad_request("sizes must not be negative", field="sizes")
    if sum(sizes) + FRAME_PREFIX * len(sizes) > size:
        raise bad_request(f"sizes need more than the {size} bytes of the object", field="sizes")
    return tuple(sizes)


def check_upload(spec: UploadSpec, sizes: list[int] | None, seqno: int | str | None) -> UploadSpec:
    """A whole announcement."""
    producer_id, number, epoch = check_producer(spec.producer_id, seqno, spec.epoch)
    return UploadSpec(
        size=check_size(spec.size),
        content_type=check_content_type(spec.content_type),
        sha256=check_sha256(spec.sha256),
        headers=check_headers(spec.headers),
        producer_id=producer_id,
        seqno=number,
        epoch=epoch,
        sizes=check_pack_sizes(spec.size, sizes),
        group=check_group(spec.group),
        codec=check_codec(spec.codec),
        transaction_id=spec.transaction_id,
    )
