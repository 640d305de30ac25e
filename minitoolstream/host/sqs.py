"""The object store's events from an SQS queue, where they do not come by webhook."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.host.functions import EventHandler
from minitoolstream.host.webhook import read_event_body
from minitoolstream.services.core import Core

WAIT_SECONDS = 2
"""A stopping host waits for the poll in flight, so it is short; a poll costs next to nothing."""
MAX_PAUSE = 30.0
log = logging.getLogger("mts.sqs")


def open_queue(settings: Settings) -> Any:
    """A client for the queue, which lives beside the object store: an emulator has one address for all, AWS has not."""
    # Here and not above: the import takes half a second, and few hosts have a queue.
    import boto3
    from botocore.config import Config

    endpoint = settings["minio.endpoint"]
    if ".amazonaws.com" in endpoint:
        endpoint = None
    elif "://" not in endpoint:
        endpoint = f"{'https' if settings['minio.use_ssl'] else 'http'}://{endpoint}"
    return boto3.client(
        "sqs",
        endpoint_url=endpoint,
        region_name=settings["minio.region"],
        aws_access_key_id=settings.secret("minio.access_key"),
        aws_secret_access_key=settings.secret("minio.secret_key"),
        aws_session_token=settings["minio.session_token"],
        config=Config(connect_timeout=2, read_timeout=WAIT_SECONDS + 5, retries={"max_attempts": 1}),
    )


class Poller:
    """Polls until it is cancelled. A message is deleted when it was handled, or never can be."""

    def __init__(self, queue: Any, queue_url: str, core: Core, handle_event: EventHandler) -> None:
        self._queue = queue
        self._url = queue_url
        self._core = core
        self._handle_event = handle_event
        # A thread of its own: the loop's shared ones may all be busy.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqs")

    async def run(self) -> None:
        pause = 0.0
        while not self._core.draining.is_set():
            try:
                await self.poll()
                pause = 0.0
            except Exception as error:
                pause = min(MAX_PAUSE, pause * 2 or 0.5)
                log.warning("the queue cannot be read, trying again in %.1f s: %s", pause, _kind(error))
                await asyncio.sleep(pause)

    async def poll(self) -> int:
        """One round; returns how many messages were deleted."""
        answer = await self._call(
            self._queue.receive_message,
            QueueUrl=self._url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=WAIT_SECONDS,
        )
        messages = answer.get("Messages", [])
        if not messages:
            return 0
        outcomes = await asyncio.gather(*(self._handled(message) for message in messages))
        done = [{"Id": str(at), "ReceiptHandle": messages[at]["ReceiptHandle"]} for at, ok in enumerate(outcomes) if ok]
        if done:
            await self._call(self._queue.delete_message_batch, QueueUrl=self._url, Entries=done)
        return len(done)

    async def _handled(self, message: dict[str, Any]) -> bool:
        """False: leave it in the queue, it may work later."""
        try:
            event = read_event_body(message["Body"])
            await self._handle_event(self._core, event, f"sqs-{message.get('MessageId', '')}")
        except MtsError as error:
            if error.retryable or error.code == "not_configured":  # our settings are wrong, not the event
                log.warning("an event stays in the queue: %s", error.message)
                return False
            self._reject(error.code)
        except Exception:
            # The queue's redrive policy ends the tries.
            log.exception("an event failed and stays in the queue")
            return False
        return True

    def _reject(self, reason: str) -> None:
        self._core.metrics.rejected(reason)
        log.warning("an event was rejected: %s", reason)

    async def _call(self, function: Any, **arguments: Any) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        answer: dict[str, Any] = await loop.run_in_executor(self._thread, partial(function, **arguments))
        return answer


def _kind(error: Exception) -> str:
    """What the queue calls it; its words may show more than a log should."""
    code = getattr(error, "response", {}).get("Error", {}).get("Code", "")
    return f"{type(error).__name__} {code}".rstrip()
