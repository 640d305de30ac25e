"""What the contract tests of the metadata store share: its lifetimes, and hands on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import messages_of
from minitoolstream.domain.pack import InlineMessage, build_pack
from minitoolstream.domain.subject import new_id, pack_name
from minitoolstream.domain.upload import Receipt, State, StoredObject, Upload, UploadSpec
from minitoolstream.ports import MetadataStore, PackResult

LIFE, PRODUCER_LIFE, FIRST_LOOK, GRACE, MAX_LIFE, PACK_GRACE = 3600, 900, 300, 600, 86400, 600
SETTINGS = {
    "MTS_UPLOADS_TICKET_LIFE": f"{LIFE}s",
    "MTS_UPLOADS_PRODUCER_TICKET_LIFE": f"{PRODUCER_LIFE}s",
    "MTS_UPLOADS_FIRST_LOOK": f"{FIRST_LOOK}s",
    "MTS_UPLOADS_PUT_GRACE": f"{GRACE}s",
    "MTS_UPLOADS_MAX_LIFE": f"{MAX_LIFE}s",
    "MTS_PACKS_GRACE": f"{PACK_GRACE}s",
}
MANY = 10_000
TRASH_GRACE = 3600  # where no host has said otherwise


@dataclass
class Kit:
    """A store, its clock, and a subject of the test's own."""

    store: MetadataStore
    advance: Callable[[float], Awaitable[None]]
    subject: str

    async def open(self, size: int = 3, *, subject: str | None = None, **more: Any) -> Upload:
        spec = UploadSpec(size, more.pop("content_type", "text/plain"), **more)
        (new,) = await self.store.create_uploads(subject or self.subject, [spec])
        assert new.upload is not None
        return new.upload

    async def named(self, seqno: int, producer_id: str = "p", **more: Any) -> Upload:
        return await self.open(producer_id=producer_id, seqno=seqno, **more)

    async def commit(self, upload: Upload, size: int | None = None) -> Receipt:
        stored = StoredObject(upload.id, upload.object_name, upload.size if size is None else size)
        (receipt,) = await self.store.commit_uploads([stored])
        assert receipt is not None
        return receipt

    async def state(self, upload: Upload) -> State | None:
        found = await self.store.get_upload(upload.id)
        return found[1].state if found else None

    async def trash(self) -> dict[str, bool]:
        return {one.name: one.multipart for one in await self.store.trash_due(MANY)}

    async def due(self) -> list[str]:
        """Ids of this test's uploads that are due; rows that have served go on the way."""
        found: list[Upload] = []
        while True:
            page = await self.store.uploads_due(MANY)
            found += page.uploads
            if not page.more:
                return [upload.id for upload in found if upload.subject == self.subject]

    async def sequences(self) -> list[int]:
        page = await self.store.get_messages(self.subject, 1, MANY)
        return [int(item.message.sequence) for extent in page.extents for item in messages_of(extent)]

    async def publish(self, *messages: InlineMessage, name: str | None = None) -> list[PackResult]:
        """Commit messages as one pack; results in the order of the messages."""
        pack = build_pack(messages)
        name = name or await self.pack_name()
        results: dict[int, PackResult] = {}
        answers = await self.store.commit_pack(name, pack.groups)
        for group, answered in zip(pack.groups, answers, strict=True):
            results.update(zip(group.indexes, answered, strict=True))
        return [results[index] for index in range(len(messages))]

    async def pack_name(self) -> str:
        return pack_name(new_id(await self.store.now_ms()))

    def message(self, data: bytes = b"data", **more: Any) -> InlineMessage:
        return InlineMessage(more.pop("subject", self.subject), data, more.pop("content_type", "text/plain"), **more)


def receipts_of(results: Sequence[PackResult]) -> list[Receipt]:
    found = [result.receipt for result in results if result.receipt is not None]
    assert len(found) == len(results), results
    return found


def error_of(result: PackResult) -> MtsError:
    assert result.error is not None
    return result.error
