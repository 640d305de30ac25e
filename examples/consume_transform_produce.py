"""Orders in, totals out: every order is counted once, however often this is killed and started again.

A transaction joins what is published with the position of the reader: both change, or neither. Run it twice at the same
time: of two that counted the same orders, one gets through.
"""

import json

from minitoolstream.client import Client, Item, MtsError

ORDERS = [{"number": number, "amount": 5 + number % 3} for number in range(1, 501)]
AGAIN = {"transaction_conflict", "transaction_ended", "position_moved"}


def publish_orders(client: Client) -> None:
    items = [Item(json.dumps(order), producer_id="shop", seqno=order["number"]) for order in ORDERS]
    for result in client.publish_batch("shop-orders", items):
        result.unwrap()


def count_orders(client: Client) -> None:
    # idle: this example ends when nothing is left to count.
    with client.subscribe("shop-orders", durable="totals", ack="manual", idle=1) as orders:
        for batch in orders.batches(max_messages=10, max_wait=0.1):
            counted = [json.loads(delivery.data()) for delivery in batch]
            total = {
                "orders": [order["number"] for order in counted],
                "amount": sum(order["amount"] for order in counted),
            }
            with client.transaction(timeout=30) as tx:
                tx.publish("shop-totals", json.dumps(total))
                tx.ack(batch[-1])


def main() -> None:
    with Client() as client:
        publish_orders(client)
        while True:
            try:
                count_orders(client)
                break
            except MtsError as error:  # another counted them, or a part is away for now: go on from where it stands
                if error.code not in AGAIN and not error.retryable:
                    raise
        totals = [json.loads(message.data or b"") for message in client.read("shop-totals")]
        counted = sum(len(total["orders"]) for total in totals)
        print(f"{counted} orders counted, {sum(total['amount'] for total in totals)} in all")


if __name__ == "__main__":
    main()
