"""Sessions of named producers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from minitoolstream.api import schema
from minitoolstream.client._transport import Transport
from minitoolstream.client._types import ProducerSession
from minitoolstream.client._upload_calls import JSON
from minitoolstream.domain.checks import check_headers, check_text
from minitoolstream.domain.subject import check_subject


async def start_producer(
    transport: Transport, subject: str, producer_id: str, headers: Mapping[str, str] | None = None
) -> ProducerSession:
    answer = await transport.call(
        "POST",
        f"/v1/subjects/{check_subject(subject)}/producers",
        schema.ProducerSession,
        body=msgspec.json.encode(
            schema.ProducerRequest(check_text(producer_id, "producer_id"), check_headers(headers or {}))
        ),
        headers=JSON,
    )
    return ProducerSession(answer.producer_id, answer.epoch, int(answer.last_seqno or 0))
