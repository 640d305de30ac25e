"""A work queue: handlers in threads share the messages of a subject; what fails for good becomes a dead letter.

One of its mails has no address and fails at each of its two tries: the two errors in the log are meant to be there.

Ctrl-C, or SIGTERM, lets the handlers that run come to their end; what they did not get to is another worker's.
"""

from collections import Counter

from minitoolstream.client import Client, Delivery


def main() -> None:
    with Client() as client:
        client.consumers.put("mails", "sender", mode="shared", max_deliver=2)
        print("one mail has no address: its two tries fail, as intended")
        client.publish_batch("mails", [f"mail {number}" for number in range(20)] + ["no address"])
        outcomes: Counter[str] = Counter()
        subscriber = client.subscriber()

        # idle: this example ends when nothing is left to do.
        @subscriber.on("mails", durable="sender", mode="shared", concurrency=4, retry_delay=0.1, idle=1)
        def send(delivery: Delivery) -> None:
            if delivery.data() == b"no address":
                outcomes["failed"] += 1
                raise ValueError("cannot send this one")
            outcomes["sent"] += 1

        subscriber.run()
        print(f"{outcomes['sent']} sent, {outcomes['failed']} tries failed")
        for letter in client.dead_letters.fetch("mails").messages:
            print(f"dead letter: {client.payload(letter).decode()}, {letter.headers['mts-dlq-reason']}")
        client.dead_letters.purge("mails")


if __name__ == "__main__":
    main()
