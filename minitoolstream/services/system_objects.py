"""Objects of the system's own (below `_mts/`, packs aside): few enough to be listed whole."""

from __future__ import annotations

from minitoolstream.ports import ObjectInfo, PayloadStore

_EVERYTHING = 2**31


async def list_all(payloads: PayloadStore, prefix: str) -> list[ObjectInfo]:
    """All objects below a prefix, in key order."""
    return await payloads.list_after(prefix, "", _EVERYTHING)
