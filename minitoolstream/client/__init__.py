"""The Python SDK: `Client` for ordinary code, `AsyncClient` for asyncio.

    from minitoolstream.client import Client

    with Client() as client:                      # finds what `mts up` started, or MTS_URL and MTS_TOKEN
        receipt = client.publish("orders", b"hello")
        print(receipt.sequence, client.payload(receipt.sequence))

Modules that start with an underscore are nobody's contract.
"""

from minitoolstream.client._async_client import AsyncClient
from minitoolstream.client._buffered import AsyncBufferedPublisher
from minitoolstream.client._buffered_sync import BufferedPublisher
from minitoolstream.client._sync_client import Client
from minitoolstream.client._types import Item, Message, Page, ProducerSession, Result
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.upload import Receipt, State

__all__ = [
    "AsyncBufferedPublisher",
    "AsyncClient",
    "BufferedPublisher",
    "Client",
    "Item",
    "Message",
    "MtsError",
    "Page",
    "ProducerSession",
    "Receipt",
    "Result",
    "State",
]
