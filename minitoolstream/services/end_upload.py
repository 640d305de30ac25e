"""Complete and abort: both idempotent, both safe beside events and the reconciler."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.upload import Receipt, State, Upload
from minitoolstream.ports import StoredPart
from minitoolstream.services.commit_uploads import commit_found
from minitoolstream.services.core import Core
from minitoolstream.services.delete_trash import delete_objects
from minitoolstream.services.get_receipt import known_upload
from minitoolstream.services.issue_tickets import forget_multipart, part_count, size_of_part

_log = logging.getLogger(__name__)
_MISSING_SHOWN = 100


async def complete_upload(core: Core, upload_id: str) -> Receipt:
    """Finish the upload, look at the object, and commit it unless the event has."""
    upload, receipt = await known_upload(core, upload_id)
    if receipt.state is not State.OPEN:
        return receipt
    if upload.part_size is not None:
        await _finish_multipart(core, upload)
    stored = await core.payloads.find(upload.object_name)
    if stored is None:
        raise MtsError("upload_incomplete", "the payload is not in the store yet", {"upload_id": upload_id})
    return await commit_found(core, upload, stored)


async def _finish_multipart(core: Core, upload: Upload) -> None:
    """Make the object from its parts. When another call did, or the multipart is gone, the key tells (rule 9)."""
    parts = None
    if upload.multipart_id is not None:
        parts = await core.payloads.list_parts(upload.object_name, upload.multipart_id)
    if parts is None:
        if await core.payloads.find(upload.object_name) is not None:
            return
        if upload.multipart_id is not None:
            await forget_multipart(core, upload, upload.multipart_id)
    missing = _missing(upload, parts or [])
    if missing:
        raise MtsError(
            "upload_incomplete",
            f"{len(missing)} of {part_count(upload)} parts are missing or have the wrong size",
            {"upload_id": upload.id, "missing": missing[:_MISSING_SHOWN]},
        )
    assert upload.multipart_id is not None
    assert parts is not None
    await core.payloads.complete_multipart(upload.object_name, upload.multipart_id, parts)


def _missing(upload: Upload, parts: Sequence[StoredPart]) -> list[int]:
    sizes = {part.number: part.size for part in parts}
    return [number for number in range(1, part_count(upload) + 1) if sizes.get(number) != size_of_part(upload, number)]


async def abort_upload(core: Core, upload_id: str) -> Receipt:
    """The producer gave up. The payload is in the trash from here on; deleting it now only saves the reconciler
    a walk, so a store that is down does not fail the abort."""
    upload, receipt, in_trash = await core.metadata.abort_upload(upload_id)
    if in_trash and upload.byte_from is None:
        try:
            await delete_objects(core, [(upload.object_name, upload.part_size is not None)])
        except MtsError as error:
            _log.info("deleting an aborted payload is left to the reconciler: %s", error.message)
    return receipt
