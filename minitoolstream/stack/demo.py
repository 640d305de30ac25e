"""A few sample messages, so that the first look is not empty."""

from __future__ import annotations

from typing import NamedTuple

from minitoolstream.config import Settings

SUBJECT = "demo"
_SAMPLES: tuple[tuple[bytes, str, dict[str, str]], ...] = (
    (b"Hello from MiniToolStream.\n", "text/plain", {"kind": "greeting"}),
    (b'{"order": 1, "item": "teapot", "quantity": 2}\n', "application/json", {"kind": "order"}),
    (b"sensor,celsius\nroof,11.5\ncellar,9.2\n", "text/csv", {"kind": "measurement"}),
)


class Samples(NamedTuple):
    first: int
    """The sequence of the first sample."""
    outcome: str


def publish_samples(settings: Settings) -> Samples:
    """Publish the samples into the subject `demo`, once."""
    from minitoolstream.client import Client

    with Client.from_settings(settings) as client:
        # Numbered by a named producer: a second `mts up --demo` stores nothing twice.
        receipts = [
            client.publish(
                SUBJECT, data, content_type=content_type, headers=headers, producer_id="mts-demo", seqno=number
            )
            for number, (data, content_type, headers) in enumerate(_SAMPLES, 1)
        ]
    first = receipts[0].sequence or 1
    sequences = ", ".join(str(receipt.sequence) for receipt in receipts)
    if all(receipt.duplicate for receipt in receipts):
        return Samples(first, f"the subject `{SUBJECT}` has its samples already, sequences {sequences}")
    return Samples(first, f"{len(receipts)} messages in subject `{SUBJECT}`, sequences {sequences}")
