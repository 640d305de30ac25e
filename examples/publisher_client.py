"""Publish different kinds of data. Appendix B of the specification: publisher_client.

python examples/publisher_client.py [ADDRESS]      (localhost:50051, or http://localhost:8080 for HTTP)
"""

import sys
import tempfile
from pathlib import Path

from minitoolstream.connector import (
    ByteMessagePreparer,
    FileMessagePreparer,
    JSONMessagePreparer,
    MtsError,
    PublisherBuilder,
    StringMessagePreparer,
)


class ShowResults:
    def on_success(self, sequence: int, object_name: str) -> None:
        print(f"published: sequence={sequence} object={object_name}")

    def on_error(self, error: MtsError) -> None:
        print(f"failed: {error.message}")


def main() -> None:
    address = sys.argv[1] if len(sys.argv) > 1 else "localhost:50051"
    with PublisherBuilder(address).with_timeout(10).build() as publisher, tempfile.TemporaryDirectory() as folder:
        publisher.set_result_handler(ShowResults())
        contract = Path(folder) / "contract.pdf"
        contract.write_bytes(b"%PDF-1.7 " + b"x" * (5 << 20))  # above some MiB it goes straight into the object store

        publisher.publish(ByteMessagePreparer("events.user.created", b'{"user_id": "123"}', {"source": "api"}))
        publisher.publish(StringMessagePreparer("logs.application", "application started", {"level": "info"}))
        publisher.publish(JSONMessagePreparer("orders.created", {"id": "123", "amount": 99.99}, {"version": "v1"}))
        publisher.publish(FileMessagePreparer("documents.contracts", contract, {"client": "ACME Corp"}))


if __name__ == "__main__":
    main()
