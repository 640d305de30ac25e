"""The reconciler: finds what an event should have told us, and clears what nobody will finish.

It walks uploads whose time has come, the trash, and young packs; its cost follows what changed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import asdict, dataclass

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.keys import PACK_PREFIX
from minitoolstream.domain.upload import State, StoredObject, Upload
from minitoolstream.services.core import Core
from minitoolstream.services.delete_messages import finish_deletions
from minitoolstream.services.delete_trash import delete_trash, must_be_up

_log = logging.getLogger(__name__)
_UPLOADS_AT_ONCE = 100
_PACKS_AT_ONCE = 500
_IN_PARALLEL = 8
_TRASH_SECONDS = 30.0  # a run; what is left then is due in the next one


@dataclass(slots=True)
class Summary:
    """What one run did."""

    looked: int = 0
    committed: int = 0
    expired: int = 0
    postponed: int = 0
    removed: int = 0
    packs_settled: int = 0
    packs_discarded: int = 0
    objects_deleted: int = 0
    keys_forgotten: int = 0
    deletions_finished: int = 0
    quarantined: int = 0

    def counts(self) -> dict[str, int]:
        return asdict(self)


async def reconcile(core: Core) -> Summary:
    """One run over everything that is due. Safe beside any other, at any time."""
    summary = Summary()
    problems = []
    for part in (_walk_uploads, _walk_packs, _finish_deletions, _empty_trash, _forget_keys, _measure):
        try:
            await part(core, summary)
        except MtsError as error:  # a part that cannot run now must not keep the others from running
            problems.append(error)
    if problems:
        raise problems[0]
    return summary


async def _finish_deletions(core: Core, summary: Summary) -> None:
    summary.deletions_finished = await finish_deletions(core)


async def _empty_trash(core: Core, summary: Summary) -> None:
    end = time.monotonic() + _TRASH_SECONDS
    summary.objects_deleted = await delete_trash(core, lambda: time.monotonic() >= end)


async def _forget_keys(core: Core, summary: Summary) -> None:
    while forgotten := await core.metadata.trim_idempotency():
        summary.keys_forgotten += forgotten


async def _measure(core: Core, _summary: Summary) -> None:
    core.metrics.gauge("missing_payload_rows", (await core.metadata.status())["missing"])


async def _walk_uploads(core: Core, summary: Summary) -> None:
    limit = asyncio.Semaphore(_IN_PARALLEL)

    async def one(upload: Upload) -> None:
        async with limit:
            try:
                await _look_at(core, upload, summary)
            except MtsError as error:
                await must_be_up(core, error)
                _log.warning("upload %s is left for later: %s", upload.id, error.message)
                await core.metadata.postpone_upload(upload.id, upload.parts_seen)

    seen: set[str] = set()
    while True:
        due = await core.metadata.uploads_due(_UPLOADS_AT_ONCE)
        # Each is looked at once a run; one that is due again so soon stands behind those that were not seen yet.
        fresh = [upload for upload in due.uploads if upload.id not in seen]
        seen.update(upload.id for upload in fresh)
        summary.removed += due.removed
        summary.looked += len(fresh)
        outcomes = await asyncio.gather(*(one(upload) for upload in fresh), return_exceptions=True)
        for problem in outcomes:
            if problem is not None:
                raise problem
        if not due.more or (due.uploads and not fresh):
            return


async def _look_at(core: Core, upload: Upload, summary: Summary) -> None:
    if upload.state is State.STORED:
        await core.metadata.resume_upload(upload.id)
        return
    stored = await core.payloads.find(upload.object_name)
    over = stored is None and await _is_over(core, upload)
    if over:
        # A PUT may have ended since the first look; none can begin any more.
        stored = await core.payloads.find(upload.object_name)
    if stored is None and not over:
        await core.metadata.postpone_upload(upload.id, await _parts_seen(core, upload))
        summary.postponed += 1
    elif upload.state.final:
        await core.metadata.settle_upload(upload.id, object_is_there=stored is not None)
        summary.removed += 1
    elif stored is not None:
        receipt = await core.committer.commit(StoredObject(upload.id, stored.name, stored.size))
        summary.committed += int(receipt is not None and receipt.state is State.COMMITTED)
    else:
        ended = await core.metadata.expire_upload(upload.id)
        summary.expired += int(ended.state is State.EXPIRED)


async def _is_over(core: Core, upload: Upload) -> bool:
    """Nothing arrives any more: past its time, no part came since the last look, no PUT holds the key."""
    if not upload.state.final:
        end_ms = (upload.expires_at + int(core.settings["uploads.put_grace"])) * 1000
        if await core.clock.now_ms() < end_ms or await _parts_seen(core, upload) > upload.parts_seen:
            return False
    return not await core.payloads.is_being_written(upload.object_name)


async def _parts_seen(core: Core, upload: Upload) -> int:
    if upload.multipart_id is None:
        return 0
    parts = await core.payloads.list_parts(upload.object_name, upload.multipart_id)
    return len(parts or [])


async def _miss_packs(core: Core, cursor: str, listed: list[str]) -> int:
    """Messages of packs that should have been listed: their rows are kept apart, so that readers are told."""
    quarantined = 0
    for name in await core.audit.missing_packs(cursor, listed) if listed else ():
        if await core.payloads.find(name) is None:
            _log.error("%s is missing in the object store", name)
            quarantined += await core.audit.quarantine_object(name, "missing")
    return quarantined


async def _walk_packs(core: Core, summary: Summary) -> None:
    """Packs are named by time: those behind the cursor are accounted for, those younger than the grace may still
    be committed."""
    while True:
        cursor = await core.metadata.packs_cursor()
        listed = await core.payloads.list_after(PACK_PREFIX, cursor or PACK_PREFIX, _PACKS_AT_ONCE)
        if not listed:
            return
        settled, discarded = await core.metadata.settle_packs(cursor, [pack.name for pack in listed])
        summary.packs_settled += settled
        summary.packs_discarded += discarded
        summary.quarantined += await _miss_packs(core, cursor, [pack.name for pack in listed[:settled]])
        if settled < _PACKS_AT_ONCE:
            return
