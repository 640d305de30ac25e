"""Receipts: what became of an upload, as soon as it is known."""

from __future__ import annotations

import asyncio

from minitoolstream.domain.errors import not_found
from minitoolstream.domain.limits import MAX_WAIT_SECONDS
from minitoolstream.domain.upload import Receipt, Upload
from minitoolstream.services.core import Core


async def get_receipt(core: Core, upload_id: str, wait: float = 0.0) -> Receipt:
    """The receipt now, or when the upload has ended, or after `wait` seconds, whichever comes first."""
    _, receipt = await known_upload(core, upload_id)
    if wait <= 0 or receipt.state.final:
        return receipt
    deadline = asyncio.get_running_loop().time() + min(wait, MAX_WAIT_SECONDS)
    with core.watcher.watch(upload_id) as changed:
        while True:
            changed.clear()
            _, receipt = await known_upload(core, upload_id)
            if receipt.state.final or core.draining.is_set():
                return receipt
            if not await _first_of(changed, core.draining, until=deadline):
                return receipt


async def known_upload(core: Core, upload_id: str) -> tuple[Upload, Receipt]:
    """An upload and what became of it, or `not_found`."""
    found = await core.metadata.get_upload(upload_id)
    if found is None:
        raise not_found("there is no such upload; it may have ended long ago", upload_id=upload_id)
    return found


async def _first_of(changed: asyncio.Event, draining: asyncio.Event, *, until: float) -> bool:
    """True when one of the events is set before the deadline."""
    waits = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(draining.wait())]
    try:
        left = until - asyncio.get_running_loop().time()
        done, _ = await asyncio.wait(waits, timeout=max(left, 0), return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for task in waits:
            task.cancel()
