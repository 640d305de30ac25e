"""The bucket says that an object was created: commit it. Takes every form in which the event comes."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from minitoolstream.api.app import App, run
from minitoolstream.bootstrap import current_core
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.object_event import Delivery, read_event
from minitoolstream.services.commit_uploads import commit_created
from minitoolstream.services.core import Core

app = App("on-object-created")
_log = logging.getLogger(__name__)


async def handle_event(core: Core, event: Any, _request_id: str) -> dict[str, Any]:
    """Commit all records of an event. From SQS, only the messages that failed come again."""
    deliveries = read_event(event)
    if any(delivery.message_id is not None for delivery in deliveries):
        outcomes = await asyncio.gather(*(_succeeds(core, delivery) for delivery in deliveries))
        failed = [delivery.message_id for delivery, ok in zip(deliveries, outcomes, strict=True) if not ok]
        return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}
    records = [record for delivery in deliveries for record in delivery.records]
    if len(records) == 1:  # as nearly always; to gather it would cost a task
        receipts = [await commit_created(core, records[0])]
    else:
        receipts = await asyncio.gather(*(commit_created(core, record) for record in records))
    return {"committed": sum(1 for receipt in receipts if receipt is not None and receipt.sequence is not None)}


async def _succeeds(core: Core, delivery: Delivery) -> bool:
    try:
        await asyncio.gather(*(commit_created(core, record) for record in delivery.records))
    except MtsError as error:
        _log.warning("an event %s: %s", "comes again" if error.retryable else "is dropped", error.message)
        return not error.retryable
    return True


@app.lambda_function(name="on_object_created")
def on_object_created(event: dict[str, Any], context: Any) -> dict[str, Any]:
    async def handled() -> dict[str, Any]:
        return await handle_event(await current_core(), event, str(getattr(context, "aws_request_id", "-")))

    return run(handled())
