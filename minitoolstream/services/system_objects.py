"""Objects of the system's own (below `_mts/`, packs aside): few enough to be listed whole, and written once."""

from __future__ import annotations

from minitoolstream.domain.errors import MtsError
from minitoolstream.ports import ObjectInfo, PayloadStore

_EVERYTHING = 2**31


async def list_all(payloads: PayloadStore, prefix: str) -> list[ObjectInfo]:
    """All objects below a prefix, in key order."""
    return await payloads.list_after(prefix, "", _EVERYTHING)


async def put_once(payloads: PayloadStore, name: str, body: bytes, *, content_type: str) -> None:
    """Under a name that says all there is in it: what is there already is the same, written by another, or by a try
    whose answer was lost."""
    try:
        await payloads.put_new(name, body, content_type=content_type)
    except MtsError as error:
        if error.code != "already_exists":
            raise
