"""Events that ended in the queue of dead letters: look at them, send them back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from minitoolstream.domain.errors import MtsError

GAVE_UP = "tries_used_up"
"""The reason when the queue moved it: nobody wrote one down."""
_HIDDEN = 60  # seconds in which nobody else gets what we look at
_AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class Letter:
    id: str
    sent_at: float
    reason: str
    tries: int
    body: str
    handle: str


def open_queues(endpoint: str | None, region: str) -> Any:
    """A client of SQS with the caller's own credentials, found as boto3 finds them."""
    import boto3
    from botocore.config import Config

    config = Config(connect_timeout=3, read_timeout=10, retries={"max_attempts": 3})
    return boto3.client("sqs", endpoint_url=endpoint, region_name=region, config=config)


def read_letters(queues: Any, url: str, limit: int) -> list[Letter]:
    """The letters, which stay where they are."""
    found = list(_received(queues, url, limit))
    _show(queues, url, found)
    return found


def redrive(queues: Any, dead_url: str, url: str, limit: int) -> int:
    """Send letters back to the queue of events; how many. One that comes back meanwhile is left, and shown again at the
    end. Killed in between, one may be sent twice: a commit that is made again changes nothing."""
    sent: set[str] = set()
    left: list[Letter] = []
    count = 0
    for letter in _received(queues, dead_url, limit):
        if letter.body in sent:  # known by what it says: their clock need not be ours
            left.append(letter)
            continue
        _call(queues.send_message, QueueUrl=url, MessageBody=letter.body)
        _call(queues.delete_message, QueueUrl=dead_url, ReceiptHandle=letter.handle)
        sent.add(letter.body)
        count += 1
    _show(queues, dead_url, left)
    return count


def _show(queues: Any, url: str, letters: list[Letter]) -> None:
    """Others may have them. What fails here is shown in a minute, or somebody has it already."""
    for letter in letters:
        with suppress(MtsError):
            _call(queues.change_message_visibility, QueueUrl=url, ReceiptHandle=letter.handle, VisibilityTimeout=0)


def _received(queues: Any, url: str, limit: int) -> Iterator[Letter]:
    seen: set[str] = set()
    while len(seen) < limit:
        answer = _call(
            queues.receive_message,
            QueueUrl=url,
            MaxNumberOfMessages=min(_AT_ONCE, limit - len(seen)),
            VisibilityTimeout=_HIDDEN,
            WaitTimeSeconds=1,
            MessageAttributeNames=["reason"],
            AttributeNames=["SentTimestamp", "ApproximateReceiveCount"],
        )
        letters = [letter for letter in map(_letter, answer.get("Messages", [])) if letter.id not in seen]
        if not letters:
            return
        seen.update(letter.id for letter in letters)
        yield from letters


def _letter(message: dict[str, Any]) -> Letter:
    attributes = message.get("Attributes", {})
    reason = message.get("MessageAttributes", {}).get("reason", {}).get("StringValue", GAVE_UP)
    return Letter(
        message["MessageId"],
        int(attributes.get("SentTimestamp", 0)) / 1000,
        reason,
        int(attributes.get("ApproximateReceiveCount", 0)),
        message["Body"],
        message["ReceiptHandle"],
    )


def _call(function: Any, **arguments: Any) -> dict[str, Any]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        answer: dict[str, Any] = function(**arguments)
    except (BotoCoreError, ClientError) as error:
        if "NonExistentQueue" in str(error):
            raise MtsError("not_found", f"there is no queue {arguments['QueueUrl']}") from error
        hint = "is this its URL? AWS_REGION, AWS_ENDPOINT_URL and your credentials decide who is asked"
        raise MtsError("unavailable", f"the queue cannot be used: {error}", {"hint": hint}) from error
    return answer
