"""From the domain's words to the shapes on the wire."""

from __future__ import annotations

from minitoolstream.api import schema
from minitoolstream.api.errors import error_body
from minitoolstream.domain.limits import JSON_SAFE_INTEGER
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE, wire_number
from minitoolstream.domain.upload import Receipt, State
from minitoolstream.ports import PackResult
from minitoolstream.services.fetch_messages import MessagePage, SignedExtent, SignedExtents
from minitoolstream.services.issue_tickets import SignedPart, Ticket, part_count
from minitoolstream.services.upload_parts import PartsPage


def _number(value: int | None) -> int | str | None:
    return None if value is None else wire_number(value)


def receipt(value: Receipt) -> Receipt | schema.ReceiptAnswer:
    """A receipt is its own shape on the wire as long as its numbers are safe there."""
    if (value.sequence or 0) <= JSON_SAFE_INTEGER:  # an offset is never above its sequence
        return value
    return schema.ReceiptAnswer(
        state=value.state,
        upload_id=value.upload_id,
        sequence=_number(value.sequence),
        partition=value.partition,
        offset=_number(value.offset),
        duplicate=value.duplicate,
        waits_for=value.waits_for,
        reason=value.reason,
        transaction_id=value.transaction_id,
    )


def ticket(value: Ticket | Receipt) -> schema.Ticket | schema.ReceiptAnswer | Receipt:
    if isinstance(value, Receipt):
        return receipt(value)
    upload = value.upload
    shown = schema.Ticket(upload.id, upload.object_name, "PUT", upload.expires_at)
    if value.request is not None:
        shown.url, shown.headers = value.request.url, dict(value.request.headers)
    else:
        signed, count = value.parts or [], part_count(upload)
        assert upload.part_size is not None
        following = signed[-1].number + 1
        shown.parts = schema.Parts(
            part_size=upload.part_size,
            count=count,
            urls=[_part(part) for part in signed],
            next=following if following <= count else None,
        )
    return shown


def _part(part: SignedPart) -> schema.PartUrl:
    return schema.PartUrl(part.number, part.size, part.request.url, dict(part.request.headers))


def parts(page: PartsPage) -> schema.Parts:
    assert page.upload.part_size is not None
    return schema.Parts(
        part_size=page.upload.part_size,
        count=page.count,
        urls=[_part(part) for part in page.signed],
        arrived=[schema.StoredPartAnswer(part.number, part.size, part.etag) for part in page.arrived],
        next=page.next,
        expires_at=page.upload.expires_at,
    )


def batch(results: list[PackResult]) -> dict[str, object]:
    shown: list[Receipt | schema.ReceiptAnswer] = []
    committed, safe = State.COMMITTED, JSON_SAFE_INTEGER
    failed = waiting = 0
    for result in results:
        value = result.receipt
        if value is None:
            assert result.error is not None
            failed += 1
            shown.append(schema.BatchResult(state="refused", error=error_body(result.error)["error"]))
            continue
        if value.state is not committed:
            waiting += 1
        shown.append(value if (value.sequence or 0) <= safe else receipt(value))
    return {"results": shown, "committed": len(results) - failed - waiting, "failed": failed}


def page(value: MessagePage) -> schema.Page:
    return schema.Page(value.messages, wire_number(value.next_sequence), wire_number(value.latest_sequence))


def extents(value: SignedExtents) -> schema.ExtentPage:
    return schema.ExtentPage(
        [_extent(item) for item in value.extents],
        wire_number(value.next_sequence),
        wire_number(value.latest_sequence),
    )


def _extent(item: SignedExtent) -> schema.Extent:
    extent = item.extent
    span = extent.byte_range
    return schema.Extent(
        sequence=wire_number(extent.sequence),
        subject=extent.subject,
        partition=extent.partition,
        offset=wire_number(extent.offset),
        count=extent.count,
        create_at=extent.create_at,
        headers=extent.headers,
        size=extent.size,
        sizes=extent.sizes or [extent.size],
        object_name=extent.object_name,
        url=None if extent.missing else item.url,
        content_type=extent.content_type or DEFAULT_CONTENT_TYPE,
        framed=span is not None,
        unverified=bool(extent.unverified),
        own=[schema.OwnMetadata(*entry) for entry in extent.own or ()],
        codec=extent.codec,
        sha256=extent.sha256 if span is None else None,  # of a pack it is the whole object's
        range=f"bytes={span[0]}-{span[1]}" if span else None,
        payload_missing=bool(extent.missing),
    )
