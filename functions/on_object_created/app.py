"""The bucket says that an object was created: commit it. Takes every form in which the event comes."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from minitoolstream import container
from minitoolstream.api.app import App, run
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.object_event import MALFORMED, Delivery, read_event
from minitoolstream.services.commit_uploads import commit_created, reject
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
    """False: let it come again. What no try can help goes to the dead letters."""
    if delivery.is_poison:
        return await _bury(core, delivery, MALFORMED)
    try:
        await asyncio.gather(*(commit_created(core, record) for record in delivery.records))
    except MtsError as error:
        if error.code == "not_configured":  # nothing is wrong with the event
            raise
        _log.warning("an event %s: %s", "comes again" if error.retryable else "is given up", error.message)
        return False if error.retryable else await _bury(core, delivery, error.code)
    except Exception:
        # Its neighbours shall not come again for it, and be dead letters with it; the queue ends its tries.
        _log.exception("an event failed and comes again")
        return False
    return True


async def _bury(core: Core, delivery: Delivery, reason: str) -> bool:
    """Where there is no queue for it, the metadata store's record of it is all that stays."""
    try:
        if core.event_letters is None:
            await reject(core, "", reason)
        else:
            core.metrics.rejected(reason)
            await core.event_letters.put(delivery.body, reason)
    except MtsError as error:
        _log.warning("an event comes again, it cannot be recorded: %s", error.message)
        return False
    return True


@app.lambda_function(name="on_object_created")
def on_object_created(event: dict[str, Any], context: Any) -> dict[str, Any]:
    async def handled(core: Core) -> dict[str, Any]:
        outcome = await handle_event(core, event, str(getattr(context, "aws_request_id", "-")))
        _log.info("%s", outcome)
        return outcome

    return run(container.current().use(handled, commits=True))
