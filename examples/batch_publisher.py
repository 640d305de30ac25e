"""Publish many messages in few calls. Appendix B of the specification: batch_publisher.

python examples/batch_publisher.py [ADDRESS] [COUNT]
"""

import sys

from minitoolstream.connector import JSONMessagePreparer, Publisher


def main() -> None:
    address = sys.argv[1] if len(sys.argv) > 1 else "localhost:50051"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    with Publisher(address) as publisher:
        for n in range(count):
            publisher.register_handler(JSONMessagePreparer("metrics.cpu", {"n": n, "load": n % 100 / 100}))
        results = publisher.publish_all()
    failed = [result.error for result in results if result.error]
    first, last = results[0].sequence, results[-1].sequence
    print(f"published {len(results) - len(failed)} of {count}, sequences {first} to {last}")
    if failed:
        sys.exit(f"the first error: {failed[0]}")


if __name__ == "__main__":
    main()
