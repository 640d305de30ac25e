"""Parts of a multipart upload: which have arrived, and URLs for those that have not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.limits import PARTS_PER_PAGE
from minitoolstream.domain.upload import Receipt, State, Upload
from minitoolstream.ports import StoredPart
from minitoolstream.services.core import Core
from minitoolstream.services.get_receipt import known_upload
from minitoolstream.services.issue_tickets import (
    SignedPart,
    ensure_multipart,
    living_multipart,
    part_count,
    sign_part,
)
from minitoolstream.services.signature_life import within_session


@dataclass(frozen=True, slots=True)
class PartsPage:
    upload: Upload
    count: int
    arrived: list[StoredPart] = field(default_factory=list)
    signed: list[SignedPart] = field(default_factory=list)
    next: int | None = None


async def list_parts(core: Core, upload_id: str) -> PartsPage:
    """What has arrived so far."""
    upload = await _multipart(core, upload_id)
    if upload.multipart_id is None:
        return PartsPage(upload, part_count(upload))
    upload, arrived = await _living(core, upload)
    return PartsPage(upload, part_count(upload), arrived)


async def sign_parts(core: Core, upload_id: str, wanted: Sequence[tuple[int, str | None]]) -> PartsPage:
    """URLs for exactly these parts, each with the MD5 that the store shall check, if given."""
    upload = await _multipart(core, upload_id)
    count = part_count(upload)
    for number, _ in wanted:
        if not 1 <= number <= count:
            raise bad_request(f"part {number} does not exist: this upload has parts 1 to {count}", field="parts")
    upload = within_session(core, await ensure_multipart(core, await core.metadata.extend_upload(upload_id)))
    return PartsPage(upload, count, signed=[sign_part(core, upload, number, md5) for number, md5 in wanted])


async def sign_missing_parts(core: Core, upload_id: str, start: int) -> PartsPage:
    """URLs for a page of the parts from `start` on that have not arrived."""
    upload = await _multipart(core, upload_id)
    count = part_count(upload)
    if not 1 <= start <= count:
        raise bad_request(f"start must be a part of this upload, 1 to {count}", field="start")
    upload, arrived = await _living(core, await core.metadata.extend_upload(upload_id))
    upload = within_session(core, upload)
    there = {part.number for part in arrived}
    missing = [number for number in range(start, count + 1) if number not in there]
    page, rest = missing[:PARTS_PER_PAGE], missing[PARTS_PER_PAGE:]
    signed = [sign_part(core, upload, number) for number in page]
    return PartsPage(upload, count, arrived, signed, rest[0] if rest else None)


async def _living(core: Core, upload: Upload) -> tuple[Upload, list[StoredPart]]:
    living = await living_multipart(core, upload)
    if isinstance(living, Receipt):
        raise _final(upload.id, living.state)
    return living


async def _multipart(core: Core, upload_id: str) -> Upload:
    upload, receipt = await known_upload(core, upload_id)
    if receipt.state is not State.OPEN:
        raise _final(upload_id, receipt.state)
    if upload.part_size is None:
        raise bad_request("this upload is a single PUT; it has no parts", upload_id=upload_id)
    return upload


def _final(upload_id: str, state: State) -> MtsError:
    return MtsError("upload_final", f"this upload is {state}", {"upload_id": upload_id, "state": state})
