"""A core on fakes, for tests of services: metadata and payloads in memory, signatures anyone can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from minitoolstream.adapters.catalog.peers import S3Peers
from minitoolstream.adapters.memory.audit import MemoryAudit
from minitoolstream.adapters.memory.bucket import MemoryBucket
from minitoolstream.adapters.memory.deletions import MemoryDeletions
from minitoolstream.adapters.memory.metadata import MemoryMetadata
from minitoolstream.adapters.memory.payloads import MemoryPayloads
from minitoolstream.adapters.memory.recovery import MemoryJournal
from minitoolstream.adapters.memory.retention import MemoryRetention
from minitoolstream.adapters.memory.tracking import MemoryTracking
from minitoolstream.bootstrap import assemble, open_catalog
from minitoolstream.config import Settings, load_settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.lanes import Lanes
from minitoolstream.domain.object_event import ObjectCreated
from minitoolstream.domain.subject_settings import Subject
from minitoolstream.domain.upload import Receipt, Upload, UploadSpec
from minitoolstream.ports import DeliveryStore, GetRequest, RestoreStore, SignedRequest, TransactionStore
from minitoolstream.services.core import Core
from minitoolstream.services.issue_tickets import Ticket, issue_tickets
from tests.scripted_deliveries import ScriptedDeliveries

NOWHERE = Path("/nonexistent")


def settings(**changes: Any) -> Settings:
    """The defaults with changes; double underscores stand for dots."""
    return load_settings({"MTS_HOME": str(NOWHERE)}, cwd=NOWHERE).with_values(**changes)


class PlainSigner:
    """Fulfils `ports.Signer`: what would be signed stands in the answer."""

    def put(
        self,
        name: str,
        *,
        size: int,
        content_type: str,
        expires_in: int,
        sha256: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> SignedRequest:
        headers = {"content-type": content_type, "if-none-match": "*"}
        headers |= {f"x-amz-meta-{key}": value for key, value in (metadata or {}).items()}
        if sha256:
            headers["x-amz-checksum-sha256"] = sha256
        return SignedRequest("PUT", f"put:{name}?size={size}&expires={expires_in}", headers)

    def put_part(
        self, name: str, *, multipart_id: str, number: int, size: int, expires_in: int, md5: str | None = None
    ) -> SignedRequest:
        url = f"part:{name}?id={multipart_id}&number={number}&size={size}&expires={expires_in}"
        return SignedRequest("PUT", url, {"content-md5": md5} if md5 else {})

    def get_many(self, requests: Sequence[GetRequest], *, expires_in: int) -> list[str]:
        return [f"get:{request.name}?range={request.byte_range}&expires={expires_in}" for request in requests]


@dataclass
class QuietSubjects:
    """Fulfils `ports.SubjectStore` for tests of other things: no settings, and lanes only where a test puts some."""

    known_lanes: dict[str, Lanes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def put(self, subject: str, changes: Mapping[str, Any]) -> tuple[Subject, bool]:
        raise NotImplementedError

    async def get(self, subject: str) -> Subject:
        raise MtsError("unknown_subject", f"there is no subject {subject}")

    async def delete(self, subject: str) -> bool:
        raise MtsError("unknown_subject", f"there is no subject {subject}")

    async def clear_deleted(self, limit: int) -> tuple[int, bool]:
        return 0, limit == 0

    async def lanes(self, subject: str) -> Lanes | None:
        self.asked.append(subject)
        return self.known_lanes.get(subject)

    async def split_partitions(self) -> int:
        return 0

    async def trim_routes(self) -> int:
        return 0


@dataclass
class CountingMetrics:
    """Fulfils `ports.Metrics`."""

    messages_committed: int = 0
    messages_delivered: int = 0
    messages_expired: int = 0
    objects_deleted: int = 0
    reasons: list[str] = field(default_factory=list)
    gauges: dict[str, float] = field(default_factory=dict)

    def operation(self, part: str, operation: str, status: str) -> None: ...

    def rejected(self, reason: str) -> None:
        self.reasons.append(reason)

    def committed(self, count: int) -> None:
        self.messages_committed += count

    def delivered(self, count: int) -> None:
        self.messages_delivered += count

    def expired(self, count: int) -> None:
        self.messages_expired += count

    def deleted(self, count: int) -> None:
        self.objects_deleted += count

    def gauge(self, name: str, value: float) -> None:
        self.gauges[name] = value


def measure_again(core: Core) -> None:
    """The server's clock was moved: what a process knows about it is wrong."""
    core.clock._measured_at = None


@dataclass
class Snapshots:
    """The part of `ports.RestoreStore` that a backup needs; rows go back into real servers only."""

    content: bytes = b"a snapshot"
    reading: bool = False

    async def begin_backup(self) -> tuple[str, int]:
        self.reading = True
        return f"{7:020}.snap", len(self.content)

    async def read_backup(self, _name: str, offset: int, size: int) -> bytes:
        return self.content[offset : offset + size]

    async def end_backup(self) -> None:
        self.reading = False


@dataclass
class CoreKit:
    core: Core
    metadata: MemoryMetadata
    payloads: MemoryPayloads
    metrics: CountingMetrics
    subjects: QuietSubjects
    deliveries: ScriptedDeliveries
    transactions: ScriptedDeliveries
    retention: MemoryRetention
    bucket: MemoryBucket
    journal: MemoryJournal
    snapshots: Snapshots

    def advance(self, seconds: float) -> None:
        self.metadata.clock.advance(seconds)
        measure_again(self.core)

    async def ticket(self, size: int, subject: str = "orders", **more: Any) -> Ticket:
        spec = UploadSpec(size, more.pop("content_type", "text/plain"), **more)
        (issued,) = await issue_tickets(self.core, subject, [spec])
        assert isinstance(issued, Ticket)
        return issued

    def put(self, upload: Upload, body: bytes) -> ObjectCreated:
        """The producer's PUT, and the event that would come of it."""
        self.payloads.client_put(upload.object_name, body)
        return ObjectCreated(self.core.settings["minio.bucket"], upload.object_name, len(body))

    async def receipt(self, upload: Upload) -> Receipt:
        found = await self.metadata.get_upload(upload.id)
        assert found is not None
        return found[1]


def core_kit(min_part: int = 1, **changes: Any) -> CoreKit:
    """Parts may be as small as `min_part` bytes, so that a test's payload is some bytes long."""
    given = settings(**changes)
    metadata, payloads, metrics = MemoryMetadata(given), MemoryPayloads(min_part=min_part), CountingMetrics()
    payloads.clock = metadata.clock
    subjects, deliveries, transactions = QuietSubjects(), ScriptedDeliveries(), ScriptedDeliveries()
    retention, bucket = MemoryRetention(metadata), MemoryBucket()
    journal, snapshots = MemoryJournal(metadata), Snapshots()
    core = assemble(
        given,
        metadata=metadata,
        deliveries=cast(DeliveryStore, deliveries),
        subjects=subjects,
        transactions=cast(TransactionStore, transactions),
        retention=retention,
        bucket=bucket,
        journal=journal,
        restores=cast(RestoreStore, snapshots),
        deletions=MemoryDeletions(metadata),
        audit=MemoryAudit(metadata),
        tracking=MemoryTracking(),
        catalog=open_catalog(given),
        peers=S3Peers(given),
        payloads=payloads,
        signer=PlainSigner(),
        metrics=metrics,
    )
    return CoreKit(
        core, metadata, payloads, metrics, subjects, deliveries, transactions, retention, bucket, journal, snapshots
    )
