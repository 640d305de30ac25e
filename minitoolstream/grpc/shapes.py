"""Between the words of the `.proto` files and those of the domain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minitoolstream.domain.checks import check_content_type, check_headers, check_upload
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.limits import MAX_FETCH_LIMIT
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE, Message
from minitoolstream.domain.pack import InlineMessage
from minitoolstream.domain.subject import check_subject
from minitoolstream.domain.upload import Receipt, UploadSpec
from minitoolstream.pb import egress_v1_pb2 as egress
from minitoolstream.pb import ingress_v1_pb2 as ingress
from minitoolstream.pb.names import CODEC, CONTENT_TYPE, DATA_SIZE, PAYLOAD_MISSING
from minitoolstream.services.bring_payloads import Brought
from minitoolstream.services.issue_tickets import SignedPart, Ticket, part_count
from minitoolstream.services.upload_parts import PartsPage


def subject_in(subject: str) -> str:
    """In the specification's words when it is empty."""
    if not subject:
        raise bad_request("subject cannot be empty", field="subject")
    return check_subject(subject)


def limit_in(value: int, default: int, field: str = "limit") -> int:
    """More than a page holds is a page."""
    if value < 0:
        raise bad_request(f"{field} must not be negative", field=field)
    return min(value or default, MAX_FETCH_LIMIT)


def inline_message(subject: str, data: bytes, headers: Mapping[str, str], most: int) -> InlineMessage:
    subject = subject_in(subject)
    if len(data) > most:
        raise MtsError(
            "too_large",
            f"a message of {len(data)} bytes is more than the {most} that one call takes: use PublishStream, or "
            "IssueTicket",
            {"field": "data", "limit": most},
        )
    content_type, kept = _typed(headers)
    return InlineMessage(subject, data, content_type, kept)


def _typed(sent: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The payload's type, and the headers to keep: the type is given back to readers from there. What is no media type
    is a header like any other."""
    headers = check_headers(sent)
    name = next((name for name in headers if name.lower() == CONTENT_TYPE), None)
    if name is None:
        return DEFAULT_CONTENT_TYPE, headers
    try:
        content_type = check_content_type(headers[name])
    except MtsError:
        return DEFAULT_CONTENT_TYPE, headers
    if name == CONTENT_TYPE and content_type != DEFAULT_CONTENT_TYPE:
        del headers[name]
    return content_type, headers


def upload_spec(upload: ingress.Upload) -> tuple[str, UploadSpec]:
    """The subject, and what is announced."""
    content_type, headers = _typed(upload.headers)
    announced = UploadSpec(
        size=upload.size,
        content_type=content_type,
        sha256=upload.sha256 or None,
        headers=headers,
        producer_id=upload.producer_id or None,
        epoch=upload.epoch if upload.HasField("epoch") else None,
        group=upload.group or None,
        codec=upload.codec or None,
    )
    return subject_in(upload.subject), check_upload(announced, None, upload.seqno if upload.HasField("seqno") else None)


def headers_for_reader(message: Message, *, missing: bool = False) -> dict[str, str]:
    """As they were published, with what the server knows of the payload."""
    headers = dict(message.headers)
    headers[DATA_SIZE] = str(message.size)
    if message.content_type != DEFAULT_CONTENT_TYPE and not any(name.lower() == CONTENT_TYPE for name in headers):
        headers[CONTENT_TYPE] = message.content_type
    if message.codec is not None:
        headers[CODEC] = message.codec
    if missing:
        headers[PAYLOAD_MISSING] = "true"
    return headers


def add_messages(messages: Any, brought: Brought) -> None:
    """To an answer's own list: a message that is made elsewhere is copied into it."""
    for message, data in brought.messages:
        messages.add(**_v1_fields(message, data))


def v1_message(message: Message, data: bytes | None) -> egress.Message:
    return egress.Message(**_v1_fields(message, data))


def _v1_fields(message: Message, data: bytes | None) -> dict[str, Any]:
    return {
        "sequence": int(message.sequence),
        "subject": message.subject,
        "data": data or b"",
        "headers": headers_for_reader(message, missing=data is None),
        "create_at": message.create_at,
    }


def v1_receipt(receipt: Receipt) -> ingress.Receipt:
    return ingress.Receipt(
        upload_id=receipt.upload_id or "",
        state=receipt.state,
        sequence=receipt.sequence or 0,
        partition=receipt.partition or 0,
        offset=receipt.offset or 0,
        duplicate=receipt.duplicate,
        reason=receipt.reason or "",
    )


def v1_ticket(ticket: Ticket) -> ingress.IssueTicketResponse:
    upload = ticket.upload
    answer = ingress.IssueTicketResponse(
        upload_id=upload.id, object_name=upload.object_name, expires_at=upload.expires_at
    )
    if ticket.request is not None:
        put = ticket.request
        answer.requests.add(method=put.method, url=put.url, headers=dict(put.headers), size=upload.size)
        return answer
    signed = ticket.parts or []
    answer.requests.extend(map(_part, signed))
    following = signed[-1].number + 1
    answer.next_part = following if following <= part_count(upload) else 0
    return answer


def v1_parts(page: PartsPage) -> ingress.IssueTicketResponse:
    return ingress.IssueTicketResponse(
        upload_id=page.upload.id,
        object_name=page.upload.object_name,
        requests=map(_part, page.signed),
        next_part=page.next or 0,
        expires_at=page.upload.expires_at,
    )


def _part(part: SignedPart) -> ingress.SignedRequest:
    request = part.request
    return ingress.SignedRequest(
        method=request.method,
        url=request.url,
        headers=dict(request.headers),
        part_number=part.number,
        size=part.size,
    )
