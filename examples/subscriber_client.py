"""Handle what comes on several subjects until Ctrl-C. Appendix B of the specification: subscriber_client.

python examples/subscriber_client.py [ADDRESS]     (localhost:50052, or http://localhost:8080 for HTTP)
"""

import signal
import sys

from minitoolstream.connector import Message, SubscriberBuilder


class DocumentHandler:
    def handle(self, message: Message) -> None:
        print(f"document: {message.headers.get('file-name')}, {len(message.data)} bytes", flush=True)


def on_user(message: Message) -> None:
    print(f"user event: {message.data.decode()}", flush=True)


def on_log(message: Message) -> None:
    print(f"log: {message.data.decode()}", flush=True)


def main() -> None:
    address = sys.argv[1] if len(sys.argv) > 1 else "localhost:50052"
    subscriber = SubscriberBuilder(address, "my-service-consumer").with_batch_size(50).with_poll_interval(1).build()
    subscriber.register_handlers(
        {"events.user.created": on_user, "documents.contracts": DocumentHandler(), "logs.application": on_log}
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: subscriber.stop())
    subscriber.start()
    print("waiting for messages", flush=True)
    subscriber.wait()
    print("stopped", flush=True)


if __name__ == "__main__":
    main()
