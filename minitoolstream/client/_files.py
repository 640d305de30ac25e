"""Publishing a file: by ticket, straight into the object store."""

from __future__ import annotations

import mimetypes
from contextlib import nullcontext
from pathlib import Path

from minitoolstream.client._codec import compressed_file
from minitoolstream.client._resume import ResumeSlot
from minitoolstream.client._source import FileSource
from minitoolstream.client._store import ProgressCallback
from minitoolstream.client._transport import Transport
from minitoolstream.client._upload import Upload
from minitoolstream.client._upload_calls import Announcement
from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE
from minitoolstream.domain.subject import check_subject
from minitoolstream.domain.upload import Receipt

_COMPRESSED = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}


async def publish_path(
    transport: Transport,
    subject: str,
    original: FileSource,
    announced: Announcement,
    *,
    concurrency: int,
    progress: ProgressCallback | None,
    slot: ResumeSlot | None = None,
) -> Receipt:
    """With a `slot`, where an earlier call stopped is remembered."""
    check_subject(subject)
    if concurrency < 1:
        raise bad_request("concurrency is at least 1", field="concurrency")
    async with compressed_file(original.path, announced.codec) as stored:
        source = original if stored == original.path else FileSource(stored)
        with slot or nullcontext():
            upload = Upload(
                transport, subject, source, announced, concurrency=concurrency, progress=progress, slot=slot
            )
            return await upload.run()


def guess_content_type(path: Path) -> str:
    kind, encoding = mimetypes.guess_type(path.name)
    if encoding:
        return _COMPRESSED.get(encoding, DEFAULT_CONTENT_TYPE)
    return kind or DEFAULT_CONTENT_TYPE
