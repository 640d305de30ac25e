"""The Python SDK: `Client` for ordinary code, `AsyncClient` for asyncio.

    from minitoolstream.client import Client

    with Client() as client:                      # finds what `mts up` started, or MTS_URL and MTS_TOKEN
        receipt = client.publish("orders", b"hello")
        for delivery in client.subscribe("orders", durable="billing"):
            print(delivery.sequence, delivery.data())

Modules that start with an underscore are nobody's contract.
"""

from minitoolstream.client._buffered import AsyncBufferedPublisher
from minitoolstream.client._buffered_sync import BufferedPublisher
from minitoolstream.client._client import AsyncClient
from minitoolstream.client._client_sync import Client
from minitoolstream.client._consumer_types import Consumer
from minitoolstream.client._deletion_types import Deletion, DeletionRecord
from minitoolstream.client._delivery import AsyncDelivery
from minitoolstream.client._delivery_sync import Delivery
from minitoolstream.client._export import Exported
from minitoolstream.client._import import Imported
from minitoolstream.client._subject_types import SubjectDetails, SubjectInfo
from minitoolstream.client._subscriber import AsyncSubscriber, Subscriber
from minitoolstream.client._subscription import AsyncSubscription
from minitoolstream.client._subscription_sync import Subscription
from minitoolstream.client._transaction import AsyncTransaction
from minitoolstream.client._transaction_sync import Transaction
from minitoolstream.client._types import Item, Message, Page, ProducerSession, Result
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.upload import Receipt, State

__all__ = [
    "AsyncBufferedPublisher",
    "AsyncClient",
    "AsyncDelivery",
    "AsyncSubscriber",
    "AsyncSubscription",
    "AsyncTransaction",
    "BufferedPublisher",
    "Client",
    "Consumer",
    "Deletion",
    "DeletionRecord",
    "Delivery",
    "Exported",
    "Imported",
    "Item",
    "Message",
    "MtsError",
    "Page",
    "ProducerSession",
    "Receipt",
    "Result",
    "State",
    "SubjectDetails",
    "SubjectInfo",
    "Subscriber",
    "Subscription",
    "Transaction",
]
