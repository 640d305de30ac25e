"""Durables, sessions and leases on Tarantool: one stored function a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minitoolstream.adapters.tarantool.connection import Connection
from minitoolstream.domain.consumer import (
    Condition,
    Consumer,
    ConsumerPartition,
    ConsumerSettings,
    Filter,
    Lease,
    PartitionAck,
    Session,
    Share,
)
from minitoolstream.domain.message import Extent
from minitoolstream.ports import DurablePage, ExtentPage


class TarantoolDelivery:
    """Fulfils `ports.DeliveryStore`, over a connection that others use too."""

    def __init__(self, connection: Connection) -> None:
        self._tarantool = connection

    async def put_consumer(
        self, subject: str, durable: str, settings: ConsumerSettings, start: int | None
    ) -> tuple[Consumer, bool]:
        wanted = {
            "mode": settings.mode,
            "start": start,
            "important": settings.important,
            "filter": None if settings.filter is None else conditions_of(settings.filter),
            "max_deliver": settings.max_deliver,
            "ack_wait": settings.ack_wait,
            "dead_letter": settings.dead_letter,
        }
        result = await self._tarantool.call("consumer_put", subject, durable, _given(wanted))
        return _consumer(result["consumer"]), bool(result["created"])

    async def get_consumer(self, subject: str, durable: str) -> Consumer:
        return _consumer(await self._tarantool.call("consumer_get", subject, durable))

    async def list_consumers(self, subject: str, after: str, limit: int) -> tuple[list[Consumer], bool]:
        found = await self._tarantool.call("consumers_get", subject, after, limit)
        return [_consumer(fields) for fields in found["consumers"]], bool(found["more"])

    async def delete_consumer(self, subject: str, durable: str) -> None:
        await self._tarantool.call("consumer_delete", subject, durable)

    async def seek(self, subject: str, durable: str, sequence: int) -> Consumer:
        return _consumer(await self._tarantool.call("consumer_seek", subject, durable, sequence))

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
        session_id, epoch = session or (None, None)
        sequence, fence = after or (None, None)
        wanted = {
            "limit": limit,
            "after": sequence,
            "fence": fence,
            "whole": whole,
            "session_id": session_id,
            "epoch": epoch,
            "after_by_partition": [list(one) for one in after_by_partition] or None,
        }
        found = await self._tarantool.call("consumer_read", subject, durable, _given(wanted))
        return DurablePage(
            _page(found),
            found["position"],
            _filter(found.get("filter")),
            found["fence"],
            _shares(found.get("partitions")),
        )

    async def ack(self, subject: str, durable: str, sequence: int, fence: int | None = None) -> int:
        acked = await self._tarantool.call("consumer_ack", subject, durable, sequence, fence)
        return int(acked["last_sequence"])

    async def ack_partitions(
        self, subject: str, durable: str, session_id: str, epoch: int, acks: Sequence[PartitionAck]
    ) -> int:
        items = [[ack.partition, ack.fence, ack.sequence] for ack in acks]
        acked = await self._tarantool.call("consumer_ack_partitions", subject, durable, session_id, epoch, items)
        return int(acked["last_sequence"])

    async def join_session(self, subject: str, durable: str, session_id: str, ttl: int) -> Session:
        return _session(await self._tarantool.call("session_join", subject, durable, session_id, ttl))

    async def heartbeat(self, subject: str, durable: str, session_id: str, epoch: int) -> Session:
        return _session(await self._tarantool.call("session_heartbeat", subject, durable, session_id, epoch))

    async def leave_session(self, subject: str, durable: str, session_id: str, epoch: int) -> None:
        await self._tarantool.call("session_leave", subject, durable, session_id, epoch)

    async def lease(self, subject: str, durable: str, limit: int, seconds: float | None) -> Lease:
        found = await self._tarantool.call("delivery_lease", subject, durable, limit, seconds)
        return Lease(
            found.get("lease_id"),
            tuple(Extent(*row) for row in found["rows"]),
            tuple((first, last, deliveries) for first, last, deliveries in found["tries"]),
            found.get("expires_at_ms") or 0,
            found.get("next_due_in_ms"),
        )

    async def extend_lease(
        self, subject: str, durable: str, lease_id: str, seconds: float, sequences: Sequence[int] | None
    ) -> int:
        some = None if sequences is None else list(sequences)
        extended = await self._tarantool.call("delivery_extend", subject, durable, lease_id, seconds, some)
        return int(extended["expires_at_ms"])

    async def ack_leased(self, subject: str, durable: str, lease_id: str, sequences: Sequence[int]) -> int:
        acked = await self._tarantool.call("delivery_ack", subject, durable, lease_id, list(sequences))
        return int(acked["acked"])

    async def nack(
        self, subject: str, durable: str, lease_id: str, sequences: Sequence[int], delay: float, *, untried: bool
    ) -> tuple[int, int]:
        given = await self._tarantool.call("delivery_nack", subject, durable, lease_id, list(sequences), delay, untried)
        return given["nacked"], given["dead_lettered"]

    async def dead_letter_subjects(self, subject: str) -> list[str]:
        return list(await self._tarantool.call("dead_letter_subjects", subject))

    async def dead_letters(self, subject: str, start: int, limit: int) -> ExtentPage:
        return _page(await self._tarantool.call("dead_letters_get", subject, start, limit))

    async def replay_dead_letters(self, subject: str, sequences: Sequence[int] | None, limit: int) -> tuple[int, bool]:
        some = None if sequences is None else list(sequences)
        done = await self._tarantool.call("dead_letters_replay", subject, some, limit)
        return done["replayed"], bool(done["more"])

    async def purge_dead_letters(self, subject: str, limit: int) -> tuple[int, bool]:
        done = await self._tarantool.call("dead_letters_purge", subject, limit)
        return done["purged"], bool(done["more"])

    async def tick(self, limit: int) -> int:
        done = await self._tarantool.call("consumers_tick", limit)
        return max(int(done["sessions_dropped"] + done["dead_lettered"] + done["cleared"]), int(done["more"]))


def _page(found: Mapping[str, Any]) -> ExtentPage:
    extents = [Extent(*row) for row in found["rows"]]
    return ExtentPage(extents, found["next_sequence"], found["latest_sequence"], found["watermark"])


def conditions_of(conditions: Filter) -> list[dict[str, str]]:
    """A filter as the stored functions take it."""
    return [{"header": one.header, "op": one.op, "value": one.value} for one in conditions]


def _given(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Lua tells apart what is missing and what is null."""
    return {name: value for name, value in wanted.items() if value is not None}


def _filter(conditions: Sequence[Mapping[str, Any]] | None) -> Filter:
    return tuple(Condition(one["header"], one["op"], one["value"]) for one in conditions or ())


def _shares(partitions: Sequence[Mapping[str, int]] | None) -> tuple[Share, ...]:
    return tuple(Share(one["partition"], one["fence"], one["position"]) for one in partitions or ())


def _session(fields: Mapping[str, Any]) -> Session:
    return Session(fields["session_id"], fields["epoch"], fields["ttl"], _shares(fields["partitions"]))


def _consumer(fields: Mapping[str, Any]) -> Consumer:
    return Consumer(
        durable=fields["durable"],
        subject=fields["subject"],
        mode=fields["mode"],
        last_sequence=fields["last_sequence"],
        latest_sequence=fields["latest_sequence"],
        lag=fields["lag"],
        partitions=tuple(
            ConsumerPartition(
                lane["partition"], lane["position"], lane["lag"], lane.get("offset"), lane.get("session_id")
            )
            for lane in fields["partitions"]
        ),
        filter=_filter(fields.get("filter")),
        important=bool(fields.get("important")),
        max_deliver=fields.get("max_deliver"),
        ack_wait=fields.get("ack_wait"),
        dead_letter=fields.get("dead_letter"),
        outstanding=fields.get("outstanding") or 0,
        sessions=fields.get("sessions") or 0,
        created_at=fields.get("created_at") or 0,
    )
