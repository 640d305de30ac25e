"""A core on fakes, for tests of services: metadata and payloads in memory, signatures anyone can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minitoolstream.adapters.memory.metadata import MemoryMetadata
from minitoolstream.adapters.memory.payloads import MemoryPayloads
from minitoolstream.bootstrap import assemble
from minitoolstream.config import Settings, load_settings
from minitoolstream.domain.object_event import ObjectCreated
from minitoolstream.domain.upload import Receipt, Upload, UploadSpec
from minitoolstream.ports import GetRequest, SignedRequest
from minitoolstream.services.core import Core
from minitoolstream.services.issue_tickets import Ticket, issue_tickets

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
class CountingMetrics:
    """Fulfils `ports.Metrics`."""

    messages_committed: int = 0
    messages_delivered: int = 0
    reasons: list[str] = field(default_factory=list)

    def operation(self, part: str, operation: str, status: str) -> None: ...

    def rejected(self, reason: str) -> None:
        self.reasons.append(reason)

    def committed(self, count: int) -> None:
        self.messages_committed += count

    def delivered(self, count: int) -> None:
        self.messages_delivered += count


def measure_again(core: Core) -> None:
    """The server's clock was moved: what a process knows about it is wrong."""
    core.clock._measured_at = None


@dataclass
class CoreKit:
    core: Core
    metadata: MemoryMetadata
    payloads: MemoryPayloads
    metrics: CountingMetrics

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
    core = assemble(given, metadata=metadata, payloads=payloads, signer=PlainSigner(), metrics=metrics)
    return CoreKit(core, metadata, payloads, metrics)
