"""The queue of events that can never work."""

from __future__ import annotations

from minitoolstream.adapters.aws.calls import SQS, AwsCalls


class DeadLetterQueue:
    """Fulfils `ports.EventLetters`."""

    def __init__(self, calls: AwsCalls, url: str) -> None:
        self._calls = calls
        self._url = url

    async def put(self, body: str, reason: str) -> None:
        attributes = {"reason": {"DataType": "String", "StringValue": reason}}
        letter = {"QueueUrl": self._url, "MessageBody": body, "MessageAttributes": attributes}
        await self._calls.call(SQS, "SendMessage", letter)

    async def close(self) -> None:
        await self._calls.close()
