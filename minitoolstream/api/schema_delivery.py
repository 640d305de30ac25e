"""The shapes of durables, sessions, leases and dead letters on the wire."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from minitoolstream.api.schema import Extent, Message
from minitoolstream.domain.limits import (
    MAX_CONDITIONS,
    MAX_FETCH_LIMIT,
    MAX_LEASE_SECONDS,
    MAX_PARTITIONS_PER_ACK,
    MAX_SESSION_SECONDS,
    MAX_WAIT_SECONDS,
    MIN_SESSION_SECONDS,
)

Sequences = Annotated[list[int | str], Meta(min_length=1, max_length=MAX_FETCH_LIMIT)]
LeaseSeconds = Annotated[float, Meta(ge=1, le=MAX_LEASE_SECONDS)]


class StartTime(msgspec.Struct, forbid_unknown_fields=True):
    """Unix seconds, or ISO 8601."""

    time: float | str


Start = Annotated[
    int | str | StartTime, Meta(description="a sequence, first, last, new, or a time: the first message since then")
]


class HeaderCondition(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A header that equals a value, or begins with a prefix."""

    header: str
    equals: str | None = None
    prefix: str | None = None


Conditions = Annotated[list[HeaderCondition], Meta(max_length=MAX_CONDITIONS)]


class ConsumerRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A durable's settings; what is left out stays as it is. `start` counts when the durable is made by this call,
    `last_sequence` acks everything up to it, `seek` moves the durable."""

    mode: Literal["ordered", "shared"] | None = None
    start: Start | None = None
    important: bool | None = None
    filter: Conditions | None = None
    max_deliver: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    ack_wait: Annotated[int, Meta(ge=1, le=MAX_LEASE_SECONDS)] | None = None
    dead_letter: str | None = None
    last_sequence: int | str | None = None
    seek: Start | None = None


class ConsumerPartition(msgspec.Struct, omit_defaults=True):
    """`position`: the sequence up to which all is acked; `offset`: that of the last acked message, if any."""

    partition: int
    position: int | str
    lag: int
    offset: int | str | None = None
    session_id: str | None = None


class Consumer(msgspec.Struct, omit_defaults=True):
    """`last_sequence`: everything up to it is acked. `outstanding`: handed out by leases and not acked yet."""

    durable: str
    subject: str
    mode: str
    last_sequence: int | str
    latest_sequence: int | str
    lag: int
    partitions: list[ConsumerPartition]
    created_at: int
    important: bool = False
    filter: list[HeaderCondition] = []
    max_deliver: int | None = None
    ack_wait: int | None = None
    dead_letter: str | None = None
    outstanding: int = 0
    sessions: int = 0


class Consumers(msgspec.Struct, omit_defaults=True):
    """In the order of their names; with `next`, there are more `after` that one."""

    consumers: list[Consumer]
    next: str | None = None


class SharePartition(msgspec.Struct):
    """A partition that a session reads; send `fence` with its acks."""

    partition: int
    fence: int
    position: int | str


class DurablePage(msgspec.Struct, omit_defaults=True):
    """A page, with the durable's position and fence, or with a session its partitions. Send `fence` with its acks."""

    messages: list[Message]
    next_sequence: int | str
    latest_sequence: int | str
    position: int | str | None = None
    fence: int | None = None
    partitions: list[SharePartition] | None = None


class DurableExtentPage(msgspec.Struct, omit_defaults=True):
    extents: list[Extent]
    next_sequence: int | str
    latest_sequence: int | str
    position: int | str | None = None
    fence: int | None = None
    partitions: list[SharePartition] | None = None


class PartitionAck(msgspec.Struct, forbid_unknown_fields=True):
    partition: Annotated[int, Meta(ge=0)]
    fence: Annotated[int, Meta(ge=0)]
    sequence: int | str
    read_from: int | str | None = msgspec.field(default=None, name="from")


class AckRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One of: `sequence` and the page's `fence` (ordered, cumulative); `session_id`, `epoch` and `partitions` (ordered,
    by a session); `lease_id` and `sequences` (shared). In a transaction it counts with the commit, if the position that
    was read from, `from`, is still the durable's (or partition's), and leases and fences are still held."""

    sequence: int | str | None = None
    fence: Annotated[int, Meta(ge=0)] | None = None
    session_id: str | None = None
    epoch: Annotated[int, Meta(ge=0)] | None = None
    partitions: Annotated[list[PartitionAck], Meta(min_length=1, max_length=MAX_PARTITIONS_PER_ACK)] | None = None
    lease_id: str | None = None
    sequences: Sequences | None = None
    transaction_id: str | None = None
    read_from: int | str | None = msgspec.field(default=None, name="from")


class Acked(msgspec.Struct, omit_defaults=True):
    """The durable's position, or how many messages of the lease, or the transaction that will ack."""

    last_sequence: int | str | None = None
    acked: int | None = None
    transaction_id: str | None = None


class LeaseRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`seconds`: as long as the durable's `ack_wait` unless given."""

    limit: Annotated[int, Meta(ge=1, le=MAX_FETCH_LIMIT)] = 1
    seconds: LeaseSeconds | None = None
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS)] = 0
    inline: bool = False


class Leased(msgspec.Struct, omit_defaults=True):
    """Each message says how often it was handed out. Without messages there is no lease."""

    messages: list[Message]
    lease_id: str | None = None
    expires_at: float | None = None


class ExtendRequest(msgspec.Struct, forbid_unknown_fields=True):
    """All that is left of the lease, or some of it."""

    lease_id: str
    seconds: LeaseSeconds
    sequences: Sequences | None = None


class Extended(msgspec.Struct):
    expires_at: float


class NackRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Hand them out again, after `delay` seconds. `untried`: nobody has looked at them, so it was no try."""

    lease_id: str
    sequences: Sequences
    delay: Annotated[float, Meta(ge=0, le=MAX_LEASE_SECONDS)] = 0
    untried: bool = False


class Nacked(msgspec.Struct):
    """`dead_lettered`: those whose tries are used up."""

    nacked: int
    dead_lettered: int


class SessionRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A name that the reader chooses; a second reader with the same one fences the first."""

    session_id: str
    ttl: Annotated[int, Meta(ge=MIN_SESSION_SECONDS, le=MAX_SESSION_SECONDS)] = 30


class HeartbeatRequest(msgspec.Struct, forbid_unknown_fields=True):
    epoch: Annotated[int, Meta(ge=0)]


class Session(msgspec.Struct):
    """Send a heartbeat well within `ttl` seconds; its answer may have other partitions."""

    session_id: str
    epoch: int
    ttl: int
    partitions: list[SharePartition]


class ReplayRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Some dead letters by their sequences, or, without them, the oldest."""

    sequences: Sequences | None = None


class Replayed(msgspec.Struct):
    """With `more`, ask again."""

    replayed: int
    more: bool


class Purged(msgspec.Struct):
    purged: int
    more: bool


class Deleted(msgspec.Struct):
    deleted: bool = True
