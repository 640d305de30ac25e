"""Receipts: what became of an upload, as soon as it is known."""

from __future__ import annotations

import asyncio

from minitoolstream.domain.errors import not_found
from minitoolstream.domain.limits import MAX_WAIT_SECONDS
from minitoolstream.domain.upload import Receipt, State, Upload
from minitoolstream.services.core import Core
from minitoolstream.services.watch_changes import woken


async def get_receipt(core: Core, upload_id: str, wait: float = 0.0) -> Receipt:
    """The receipt now, or when the upload has ended, or after `wait` seconds, whichever comes first. One that is stored
    in a transaction is not waited for: whoever asks is likely to be the one who will commit it."""
    if (recent := core.committer.recent(upload_id)) is not None:
        return recent
    _, receipt = await known_upload(core, upload_id)
    if wait <= 0 or _is_settled(receipt):
        return receipt
    deadline = asyncio.get_running_loop().time() + min(wait, MAX_WAIT_SECONDS)
    with core.watcher.watch(upload_id) as changed:
        while True:
            changed.clear()
            _, receipt = await known_upload(core, upload_id)
            if _is_settled(receipt) or core.draining.is_set():
                return receipt
            if not await woken(changed, deadline):
                return receipt


def _is_settled(receipt: Receipt) -> bool:
    return receipt.state.final or (receipt.state is State.STORED and receipt.transaction_id is not None)


async def known_upload(core: Core, upload_id: str) -> tuple[Upload, Receipt]:
    """An upload and what became of it, or `not_found`."""
    found = await core.metadata.get_upload(upload_id)
    if found is None:
        raise not_found("there is no such upload; it may have ended long ago", upload_id=upload_id)
    return found
