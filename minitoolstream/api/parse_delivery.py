"""What readers ask for, in the domain's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minitoolstream.api import schema_delivery as schema
from minitoolstream.api.app import Request
from minitoolstream.api.parse import choice_of, decode, flag_of, limit_of, number_of, partition_of, subject_of
from minitoolstream.domain.checks import check_number
from minitoolstream.domain.consumer import (
    AtTime,
    Condition,
    ConsumerSettings,
    Filter,
    PartitionAck,
    Start,
    check_durable,
    check_filter,
    check_session_id,
    read_after,
    read_filter,
    read_start,
    read_time,
)
from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.limits import MAX_SEQUENCE
from minitoolstream.domain.pin import check_zones
from minitoolstream.domain.subject import check_subject
from minitoolstream.domain.transaction import Ack, LeaseAck, PositionAck, SessionAck, check_transaction_id
from minitoolstream.services.fetch_messages import Selection
from minitoolstream.services.read_messages import Reader

EVENT_STREAM = "text/event-stream"


def durable_of(request: Request) -> tuple[str, str]:
    """The subject and the durable of the path."""
    return subject_of(request), check_durable(request.params["durable"])


def session_of(request: Request) -> str:
    return check_session_id(request.params["session_id"])


def epoch_of(query: Mapping[str, str]) -> int:
    if "epoch" not in query:
        raise bad_request("epoch is missing: send the one that the session was given", field="epoch")
    return number_of(query, "epoch", 0, 0, MAX_SEQUENCE)


def selection_of(request: Request) -> Selection:
    query = request.query
    return Selection(
        subject_of(request),
        limit_of(query),
        partition_of(query),
        read_filter(query["filter"]) if "filter" in query else (),
        choice_of(query, "view", ("messages", "extents")) == "extents",
        flag_of(query, "inline"),
        region_of(request),
    )


def region_of(request: Request) -> str | None:
    """Where the reader is, by `region=` or its header."""
    region = request.query.get("region") or request.headers.get("x-mts-region")
    return None if region is None else next(iter(check_zones([region])))


def start_of(query: Mapping[str, str]) -> Start | None:
    return read_start(query["start"]) if "start" in query else None


def reader_of(query: Mapping[str, str], selection: Selection) -> Reader | None:
    """The durable that is read for, if any, and its session."""
    if "durable" not in query:
        for name in ("session", "epoch", "after"):
            if name in query:
                raise bad_request(f"{name} needs a durable", field=name)
        return None
    if selection.conditions:
        raise bad_request("a durable has its own filter: set it with PUT on the durable", field="filter")
    if selection.partition is not None:
        raise bad_request("a durable is read as a whole; to share its partitions, join a session", field="partition")
    durable = check_durable(query["durable"])
    if "session" not in query:
        for name in ("epoch", "after"):
            if name in query:
                raise bad_request(f"{name} needs a session", field=name)
        return Reader(durable)
    if "start" in query:
        raise bad_request("a session is read from its positions, or from `after`; leave start out", field="start")
    session = check_session_id(query["session"]), epoch_of(query)
    return Reader(durable, session, read_after(query["after"]) if "after" in query else ())


def wants_events(request: Request) -> bool:
    """Server-Sent Events, asked for by their type alone."""
    kinds = [part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "").split(",")]
    return kinds == [EVENT_STREAM]


def last_event_of(request: Request) -> tuple[int, int | None] | None:
    """The last event that the reader of an interrupted stream saw: `sequence`, or a durable's `sequence:fence`."""
    text = request.headers.get("last-event-id")
    if not text:
        return None
    sequence, colon, fence = text.partition(":")
    name = "Last-Event-ID"
    return check_number(sequence, name), check_number(fence, name) if colon else None


def consumer_of(body: schema.ConsumerRequest) -> ConsumerSettings:
    return ConsumerSettings(
        mode=body.mode,
        important=body.important,
        filter=None if body.filter is None else _filter(body.filter),
        max_deliver=body.max_deliver,
        ack_wait=body.ack_wait,
        dead_letter=None if body.dead_letter is None else check_subject(body.dead_letter),
    )


def consumer_request_of(request: Request) -> schema.ConsumerRequest:
    body = decode(request.body or b"{}", schema.ConsumerRequest)
    if body.last_sequence is not None and body.seek is not None:
        raise bad_request("last_sequence and seek exclude each other", field="seek")
    return body


def start_in(value: int | str | schema.StartTime | None, field: str) -> Start | None:
    if value is None:
        return None
    if isinstance(value, schema.StartTime):
        return AtTime(read_time(value.time, field))
    return read_start(value, field)


def _filter(conditions: Sequence[schema.HeaderCondition]) -> Filter:
    found = []
    for one in conditions:
        if (one.equals is None) == (one.prefix is None):
            raise bad_request("a condition has either equals or prefix", field="filter")
        if one.equals is not None:
            found.append(Condition(one.header, "equals", one.equals))
        elif one.prefix is not None:
            found.append(Condition(one.header, "prefix", one.prefix))
    return check_filter(found)


def sequences_in(values: Sequence[int | str]) -> list[int]:
    return [check_number(value, "sequences") for value in values]


def ack_of(request: Request) -> tuple[Ack, str | None]:
    """What is acked, in exactly one of the three ways, and the transaction it waits for, if any."""
    body = decode(request.body, schema.AckRequest)
    session = (body.session_id, body.epoch, body.partitions)
    lease = (body.lease_id, body.sequences)
    ways = [body.sequence is not None, any(one is not None for one in session), any(one is not None for one in lease)]
    if sum(ways) != 1 or (ways[1] and None in session) or (ways[2] and None in lease):
        raise bad_request(
            "send one of: sequence; session_id, epoch and partitions; lease_id and sequences", field="sequence"
        )
    if body.fence is not None and body.sequence is None:
        raise bad_request("fence goes with sequence: partitions have their own", field="fence")
    if body.transaction_id is None:
        if body.read_from is not None:
            raise bad_request("from is for acks in a transaction", field="from")
        return _ack(body), None
    transaction_id, ack = check_transaction_id(body.transaction_id), _ack(body)
    positions = ack.partitions if isinstance(ack, SessionAck) else [ack] if isinstance(ack, PositionAck) else []
    if any(one.read_from is None for one in positions):
        raise bad_request(
            "in a transaction, send along as `from` the `position` that was read from, of each partition in a session: "
            "so a message is counted once, whoever else reads the durable",
            field="from",
        )
    return ack, transaction_id


def _ack(body: schema.AckRequest) -> Ack:
    if body.lease_id is not None and body.sequences is not None:
        return LeaseAck(body.lease_id, sequences_in(body.sequences))
    if body.session_id is not None and body.epoch is not None and body.partitions is not None:
        acks = partition_acks_in(body.partitions)
        return SessionAck(check_session_id(body.session_id), check_number(body.epoch, "epoch"), acks)
    read_from = None if body.read_from is None else check_number(body.read_from, "from")
    fence = None if body.fence is None else check_number(body.fence, "fence")
    return PositionAck(check_number(body.sequence, "sequence"), read_from, fence)


def partition_acks_in(partitions: Sequence[schema.PartitionAck]) -> list[PartitionAck]:
    return [
        PartitionAck(
            check_number(one.partition, "partition"),
            check_number(one.fence, "fence"),
            check_number(one.sequence, "sequence"),
            None if one.read_from is None else check_number(one.read_from, "from"),
        )
        for one in partitions
    ]
