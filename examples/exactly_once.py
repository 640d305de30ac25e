"""A producer that may crash and start again at any line, and still stores each reading once.

The seqno is the reading's own number, so that a second run repeats nothing.
"""

from minitoolstream.client import Client, Item

READINGS = [(number, f"{20 + number % 7} degrees") for number in range(1, 1001)]


def main() -> None:
    with Client() as client:
        for run in ("first", "second"):
            items = [Item(text, producer_id="sensor-1", seqno=number) for number, text in READINGS]
            receipts = [result.unwrap() for result in client.publish_batch("readings", items)]
            new = sum(not receipt.duplicate for receipt in receipts)
            print(f"{run} run: {len(receipts)} sent, {new} new")


if __name__ == "__main__":
    main()
