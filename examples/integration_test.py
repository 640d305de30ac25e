"""Publish, read back, compare. Appendix B of the specification: integration_test.

python examples/integration_test.py [INGRESS] [EGRESS]
"""

import sys
import threading
import uuid

from minitoolstream.connector import ByteMessagePreparer, Message, Publisher, Subscriber


def main() -> None:
    ingress = sys.argv[1] if len(sys.argv) > 1 else "localhost:50051"
    egress = sys.argv[2] if len(sys.argv) > 2 else "localhost:50052"
    subject = f"test.{uuid.uuid4().hex}"
    sent = [f"message {n}".encode() for n in range(20)] + [b"x" * (4 << 20)]
    got: list[bytes] = []
    all_here = threading.Event()

    def on_message(message: Message) -> None:
        got.append(message.data)
        if len(got) == len(sent):
            all_here.set()

    subscriber = Subscriber(egress, "integration-test")
    subscriber.register_handler(subject, on_message)
    subscriber.start()
    with Publisher(ingress) as publisher:
        for data in sent:
            publisher.publish(ByteMessagePreparer(subject, data))
    in_time = all_here.wait(60)
    subscriber.stop()
    subscriber.wait()
    if not in_time or got != sent:
        sys.exit(f"{len(got)} of {len(sent)} messages came, or not as they were sent")
    print(f"{len(got)} messages came as they were sent")


if __name__ == "__main__":
    main()
