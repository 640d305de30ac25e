"""Durables: positions, sessions, leases, dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from minitoolstream.domain.consumer import Consumer, ConsumerSettings, Filter, Lease, PartitionAck, Session, Share
from minitoolstream.ports.metadata import ExtentPage


@dataclass(frozen=True, slots=True)
class DurablePage:
    """A page from where a durable stands. `fence` changes when it is moved by other than an ack; `shares` are the
    partitions of the session that asked, if one did."""

    page: ExtentPage
    position: int
    filter: Filter
    fence: int
    shares: tuple[Share, ...] = ()


class DeliveryStore(Protocol):
    """Durables, their sessions and leases. Every answer is durable when it comes."""

    async def put_consumer(
        self, subject: str, durable: str, settings: ConsumerSettings, start: int | None
    ) -> tuple[Consumer, bool]:
        """The durable, and whether this call made it; `start` counts only then."""

    async def get_consumer(self, subject: str, durable: str) -> Consumer: ...

    async def list_consumers(self, subject: str, after: str, limit: int) -> tuple[list[Consumer], bool]:
        """By name, up to `limit` or fewer, and whether there are more."""

    async def delete_consumer(self, subject: str, durable: str) -> None: ...

    async def seek(self, subject: str, durable: str, sequence: int) -> Consumer: ...

    async def read(
        self,
        subject: str,
        durable: str,
        limit: int,
        *,
        after: tuple[int, int | None] | None = None,
        whole: bool = False,
        session: tuple[str, int] | None = None,
        after_by_partition: Sequence[tuple[int, ...]] = (),
    ) -> DurablePage:
        """What is not acked yet. Moves nothing. `after` (a sequence, and a fence or None) and `after_by_partition`
        (partition, sequence, and a fence or not) say how far the reader got; void when the fence is an old one."""

    async def ack(self, subject: str, durable: str, sequence: int, fence: int | None = None) -> int:
        """Cumulative; answers the position. With the fence of the page that was read, refused if it is an old one."""

    async def ack_partitions(
        self, subject: str, durable: str, session_id: str, epoch: int, acks: Sequence[PartitionAck]
    ) -> int: ...

    async def join_session(self, subject: str, durable: str, session_id: str, ttl: int) -> Session: ...

    async def heartbeat(self, subject: str, durable: str, session_id: str, epoch: int) -> Session: ...

    async def leave_session(self, subject: str, durable: str, session_id: str, epoch: int) -> None: ...

    async def lease(self, subject: str, durable: str, limit: int, seconds: float | None) -> Lease:
        """`seconds` None: as long as the durable's `ack_wait`."""

    async def extend_lease(
        self, subject: str, durable: str, lease_id: str, seconds: float, sequences: Sequence[int] | None
    ) -> int:
        """Until when, in milliseconds by the server's clock."""

    async def ack_leased(self, subject: str, durable: str, lease_id: str, sequences: Sequence[int]) -> int: ...

    async def nack(
        self, subject: str, durable: str, lease_id: str, sequences: Sequence[int], delay: float, *, untried: bool
    ) -> tuple[int, int]:
        """How many were given back, and how many became dead letters instead; `untried` does not count as a try."""

    async def dead_letter_subjects(self, subject: str) -> list[str]:
        """Where the dead letters of a subject are: its own dead-letter subject, and those that its durables name."""

    async def dead_letters(self, subject: str, start: int, limit: int) -> ExtentPage:
        """Those of one subject, wherever they are, in the order of their sequences."""

    async def replay_dead_letters(self, subject: str, sequences: Sequence[int] | None, limit: int) -> tuple[int, bool]:
        """How many went back, and whether more are left."""

    async def purge_dead_letters(self, subject: str, limit: int) -> tuple[int, bool]: ...

    async def tick(self, limit: int) -> int:
        """Drop dead sessions, dead-letter what is due; how much was done."""
