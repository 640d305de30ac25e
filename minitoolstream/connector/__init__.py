"""Publisher and Subscriber in the words of the specification.

    from minitoolstream.connector import Publisher, StringMessagePreparer

    with Publisher("localhost:50051") as publisher:
        publisher.publish(StringMessagePreparer("logs.application", "started", {"level": "info"}))

An address like `localhost:50051` is spoken to in gRPC (`pip install 'minitoolstream[grpc]'`), one like
`http://localhost:8080` in HTTP. Modules that start with an underscore are nobody's contract.
"""

from minitoolstream.connector._preparers import (
    ByteMessagePreparer,
    FileMessagePreparer,
    ImageMessagePreparer,
    JSONMessagePreparer,
    MessagePreparer,
    StringMessagePreparer,
)
from minitoolstream.connector._publisher import Publisher, PublisherBuilder
from minitoolstream.connector._subscriber import Subscriber, SubscriberBuilder
from minitoolstream.connector._types import (
    Message,
    MessageHandler,
    Prepared,
    PublishResult,
    ResultHandler,
    SubscriptionStatus,
)
from minitoolstream.domain.errors import MtsError

__all__ = [
    "ByteMessagePreparer",
    "FileMessagePreparer",
    "ImageMessagePreparer",
    "JSONMessagePreparer",
    "Message",
    "MessageHandler",
    "MessagePreparer",
    "MtsError",
    "Prepared",
    "PublishResult",
    "Publisher",
    "PublisherBuilder",
    "ResultHandler",
    "StringMessagePreparer",
    "Subscriber",
    "SubscriberBuilder",
    "SubscriptionStatus",
]
