"""Durables, sessions, leases and what was read for them, in the shapes on the wire."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from minitoolstream.api import schema_delivery as schema
from minitoolstream.api import show
from minitoolstream.api.app import Response
from minitoolstream.domain.consumer import Consumer, Filter, Session, Share
from minitoolstream.domain.message import wire_number
from minitoolstream.services.acknowledge import Acknowledged
from minitoolstream.services.fetch_messages import MessagePage, Page
from minitoolstream.services.lease_messages import LeasedMessages
from minitoolstream.services.read_messages import Reading

_encode = msgspec.json.Encoder().encode


def reading(value: Reading) -> Response:
    """A page as an answer; what many readers get at once is encoded once."""
    page = value.page
    if value.position is None:
        body = page.forms.get("json")
        if body is None:
            body = page.forms["json"] = _encode(_page(page))
    else:
        body = _encode(_durable_page(value, value.position))
    return Response(body, 200, {"content-type": "application/json"})


def _page(page: Page) -> object:
    return show.page(page) if isinstance(page, MessagePage) else show.extents(page)


def _durable_page(value: Reading, position: int) -> schema.DurablePage | schema.DurableExtentPage:
    page, shares = value.page, None if value.shares is None else _shares(value.shares)
    fence = None if value.shares is not None else value.fence  # a session's partitions have their own
    places = wire_number(page.next_sequence), wire_number(page.latest_sequence), wire_number(position), fence, shares
    if isinstance(page, MessagePage):
        return schema.DurablePage(page.messages, *places)
    return schema.DurableExtentPage(show.extents(page).extents, *places)


def _shares(shares: Sequence[Share]) -> list[schema.SharePartition]:
    return [schema.SharePartition(one.partition, one.fence, wire_number(one.position)) for one in shares]


def acked(value: Acknowledged) -> schema.Acked:
    position = None if value.position is None else wire_number(value.position)
    return schema.Acked(position, value.messages, value.transaction_id)


def consumer(value: Consumer) -> schema.Consumer:
    return schema.Consumer(
        durable=value.durable,
        subject=value.subject,
        mode=value.mode,
        last_sequence=wire_number(value.last_sequence),
        latest_sequence=wire_number(value.latest_sequence),
        lag=value.lag,
        partitions=[
            schema.ConsumerPartition(
                lane.partition,
                wire_number(lane.position),
                lane.lag,
                None if lane.offset is None else wire_number(lane.offset),
                lane.session_id,
            )
            for lane in value.partitions
        ],
        created_at=value.created_at,
        important=value.important,
        filter=_conditions(value.filter),
        max_deliver=value.max_deliver,
        ack_wait=value.ack_wait,
        dead_letter=value.dead_letter,
        outstanding=value.outstanding,
        sessions=value.sessions,
    )


def _conditions(conditions: Filter) -> list[schema.HeaderCondition]:
    return [
        schema.HeaderCondition(one.header, equals=one.value)
        if one.op == "equals"
        else schema.HeaderCondition(one.header, prefix=one.value)
        for one in conditions
    ]


def session(value: Session) -> schema.Session:
    return schema.Session(value.session_id, value.epoch, value.ttl, _shares(value.partitions))


def leased(value: LeasedMessages) -> schema.Leased:
    if value.lease_id is None:
        return schema.Leased([])
    return schema.Leased(value.messages, value.lease_id, value.expires_at_ms / 1000)
