"""Objects under names that nobody gives to anything else."""

from __future__ import annotations

from minitoolstream.domain.errors import MtsError
from minitoolstream.ports import PayloadStore


async def put_once(payloads: PayloadStore, name: str, body: bytes | list[bytes], *, content_type: str) -> None:
    """The name is the caller's alone, or says all there is in the object: what is there already is the same, written by
    another, or by a try whose answer was lost."""
    try:
        await payloads.put_new(name, body, content_type=content_type)
    except MtsError as error:
        if error.code != "already_exists":
            raise
