"""A metadata store in memory, for tests of services. The contract tests hold it against real Tarantool."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from math import ceil
from typing import Any

from minitoolstream.adapters.memory.order import ManualClock, Order
from minitoolstream.adapters.memory.packs import KEY_LIFE, GroupCommit, Keys
from minitoolstream.adapters.memory.rows import MOVED, NEVER, Times, Trash, UploadRow, made_at_ms
from minitoolstream.adapters.memory.uploads import PER_TRANSACTION, Uploads
from minitoolstream.config import Settings
from minitoolstream.domain.consumer import Filter
from minitoolstream.domain.errors import MtsError, not_found, unavailable
from minitoolstream.domain.message import Extent
from minitoolstream.domain.pack import Group
from minitoolstream.domain.subject import new_id, pack_name
from minitoolstream.domain.upload import Receipt, State, StoredObject, Upload, UploadSpec
from minitoolstream.ports import WALK_AT_ONCE, Changes, Doomed, DueUploads, ExtentPage, GroupResults, NewUpload

_LONGEST_PAUSE = 3600
_REJECTED_SHOWN = 20


class MemoryMetadata:
    """Fulfils `ports.MetadataStore`. A test may move `clock`, set `down`, look at `trash`, and put retention
    classes of subjects into `classes`."""

    def __init__(self, settings: Settings, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.down = False
        self._times = Times.of(settings)
        self._order = Order(self.clock)
        self._uploads = Uploads(self._order, self._times)
        self._order.on_append = lambda subject: self._uploads.changes.push(f"/{subject}")
        self._keys: Keys = {}
        self._leases: dict[str, tuple[str, int]] = {}
        self._packs_cursor = ""
        self.classes: dict[str, str] = {}

    @property
    def order(self) -> Order:
        """For the other stores on this memory."""
        return self._order

    @property
    def uploads(self) -> Uploads:
        return self._uploads

    @property
    def pack_grace(self) -> int:
        return self._times.pack_grace

    @property
    def trash(self) -> dict[str, Trash]:
        return self._uploads.trash

    # -- what expiry in memory works with

    @property
    def trash_grace(self) -> int:
        return self._uploads.trash_grace

    @trash_grace.setter
    def trash_grace(self, seconds: int) -> None:
        self._uploads.trash_grace = seconds

    @property
    def subject_names(self) -> list[str]:
        return list(self._uploads.subjects)

    def rows_of(self, subject: str) -> list[Extent]:
        return [row for row in self._order.rows if row.subject == subject]

    def remove(self, row: Extent) -> None:
        """An extent, its share of the counters, its hold on the payload."""
        self._order.rows.remove(row)
        lane = self._order.lane(row.subject)
        lane.messages, lane.bytes = lane.messages - row.count, lane.bytes - row.size
        self._uploads.release(row.object_name, "expired")

    # -- uploads

    async def create_uploads(self, subject: str, specs: Sequence[UploadSpec]) -> list[NewUpload]:
        self._must_be_up()
        uploads = self._uploads
        subjects, producers = dict(uploads.subjects), dict(uploads.producers)
        expiries = {row.id: row.expires_at for row in uploads.rows.values()}
        try:
            uploads.ensure_subject(subject)
            return [uploads.create(subject, spec) for spec in specs]
        except MtsError:
            uploads.forget_since(subjects, producers, expiries)
            raise

    async def get_upload(self, upload_id: str) -> tuple[Upload, Receipt] | None:
        self._must_be_up()
        row = self._uploads.rows.get(upload_id)
        return (row.described(), self._uploads.receipt(row)) if row else None

    async def set_multipart(self, upload_id: str, multipart_id: str | None, lost: str | None = None) -> Upload:
        row = self._open(upload_id)
        if row.multipart_id in {None, lost}:
            row.multipart_id, row.parts_seen = multipart_id, 0
        return row.described()

    async def extend_upload(self, upload_id: str) -> Upload:
        row = self._open(upload_id)
        self._uploads.prolong(row)
        return row.described()

    async def commit_uploads(self, stored: Sequence[StoredObject]) -> list[Receipt | None]:
        self._must_be_up()
        return [self._commit(item) for item in stored]

    def _commit(self, stored: StoredObject) -> Receipt | None:
        row = self._uploads.rows.get(stored.upload_id)
        if row is None or row.object_name != stored.object_name:
            return None
        if row.state is State.OPEN:
            if stored.seen or row.size == stored.size:
                self._uploads.commit(row, stored.size)
            return self._uploads.receipt(row)
        if row.state.final:
            self._uploads.discard_late(row)
        return self._uploads.receipt(row, duplicate=row.state is State.COMMITTED)

    async def abort_upload(self, upload_id: str) -> tuple[Upload, Receipt, bool]:
        row = self._known(upload_id)
        if row.state is State.COMMITTED:
            raise MtsError(
                "upload_final",
                "this upload is committed; a message cannot be taken back this way",
                {"upload_id": upload_id, "state": "committed", "sequence": row.sequence},
            )
        if not row.state.final:
            self._uploads.end(row, State.ABORTED, "aborted by the producer")
        return row.described(), self._uploads.receipt(row), row.object_name in self.trash

    async def expire_upload(self, upload_id: str) -> Receipt:
        row = self._known(upload_id)
        if row.state is State.OPEN and row.expires_at + self._times.put_grace <= self.clock.seconds():
            self._uploads.end(row, State.EXPIRED, "the payload did not arrive in time")
        return self._uploads.receipt(row)

    async def resume_upload(self, upload_id: str) -> None:
        self._must_be_up()
        row = self._uploads.rows.get(upload_id)
        if row is not None and row.state is State.STORED:
            row.due_at = NEVER
            while self._uploads.free_waiting(row.owner):
                pass

    async def uploads_due(self, limit: int) -> DueUploads:
        self._must_be_up()
        due: list[Upload] = []
        removed = seen = 0
        for row in sorted(self._uploads.rows.values(), key=lambda row: (row.due_at, row.id)):
            if row.due_at > self.clock.seconds() or len(due) >= limit or seen >= PER_TRANSACTION:
                break
            seen += 1
            points_at_it = row.byte_from is not None or self._order.points_at(row.sequence, row.object_name)
            if row.state is State.COMMITTED and points_at_it:
                del self._uploads.rows[row.id]
                removed += 1
            else:
                due.append(row.described())
        return DueUploads(due, removed, seen >= PER_TRANSACTION or len(due) >= limit)

    async def postpone_upload(self, upload_id: str, parts_seen: int) -> None:
        self._must_be_up()
        row = self._uploads.rows.get(upload_id)
        if row is None or row.state is State.STORED:
            return
        now = self.clock.seconds()
        if parts_seen > row.parts_seen:
            row.parts_seen = parts_seen
            self._uploads.prolong(row)
        row.looks += 1
        pause = min(self._times.first_look * 2 ** min(row.looks, 20), _LONGEST_PAUSE)
        row.due_at = max(min(now + pause, row.expires_at + self._times.put_grace), now + 1)

    async def settle_upload(self, upload_id: str, *, object_is_there: bool) -> None:
        self._must_be_up()
        row = self._uploads.rows.get(upload_id)
        if row is None or not row.state.final:
            return
        if object_is_there or row.part_size is not None:
            self._uploads.discard_late(row)
        del self._uploads.rows[row.id]

    # -- packs and producers

    async def commit_pack(
        self, object_name: str, groups: Sequence[Group], *, all_or_none: bool = False
    ) -> list[GroupResults]:
        del all_or_none  # transactions are Tarantool's alone
        self._must_be_up()
        age = self.clock.milliseconds() - (made_at_ms(object_name) or 0)
        if age > self._times.pack_grace * 500 or object_name in self.trash:
            if object_name not in self._uploads.objects:
                self._uploads.discard(object_name, "old_pack")
            raise unavailable("this took too long and was given up; send it again")
        self._uploads.objects[object_name] = 0
        results = []
        for group in groups:
            answers = GroupCommit(self._uploads, self._keys, object_name, group).results()
            results.append(GroupResults(answers, self.classes.get(group.subject, "")))
        if not self._uploads.objects[object_name]:
            self._uploads.discard(object_name, "unused_pack")
        return results

    async def start_producer(
        self, subject: str, producer_id: str, headers: Mapping[str, str] | None = None
    ) -> tuple[int, int | None]:
        self._must_be_up()
        self._uploads.ensure_subject(subject)
        owner = self._uploads.ensure_producer(subject, producer_id)
        owner.epoch = self._uploads.next_epoch()
        owner.headers = dict(headers or {})
        for _, upload_id in sorted(owner.pending.items()):
            row = self._uploads.rows[upload_id]
            if row.state is State.OPEN and owner.is_fenced(row.epoch):
                self._uploads.end(row, State.ABORTED, "producer_fenced")
        return owner.epoch, owner.last_seqno

    # -- reading

    async def get_messages(
        self,
        subject: str,
        start: int,
        limit: int,
        *,
        partition: int | None = None,
        whole: bool = False,
        conditions: Filter = (),
    ) -> ExtentPage:
        self._must_be_up()
        return self._order.page(subject, start, limit, partition=partition, whole=whole, conditions=conditions)

    async def walk_extents(
        self, subject: str, first: int, last: int, *, partition: int | None = None, at_once: int = WALK_AT_ONCE
    ) -> AsyncGenerator[list[Extent], None]:
        while first <= last:
            page = await self.get_messages(subject, first, at_once, partition=partition, whole=True)
            yield page.extents
            first = page.next_sequence if page.next_sequence <= page.watermark else last + 1

    async def sequence_at(self, subject: str, seconds: int) -> int:
        self._must_be_up()
        return self._order.at(subject, seconds)

    async def get_message(self, sequence: int) -> Extent | None:
        self._must_be_up()
        return self._order.get(sequence)

    async def latest_sequence(self, subject: str) -> int:
        self._must_be_up()
        return self._order.latest(subject)

    async def wait_for_changes(self, cursor: tuple[str, int], timeout: float) -> Changes:
        self._must_be_up()
        boot, seen = cursor
        changes = self._uploads.changes
        if boot != changes.boot:
            return Changes((changes.boot, len(changes.keys)), True, [], [])
        if seen == len(changes.keys):
            changes.grown.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changes.grown.wait(), timeout)
        upload_ids = [key for key in changes.keys[seen:] if key[0] != "/"]
        names = dict.fromkeys(key[1:] for key in changes.keys[seen:] if key[0] == "/")
        return Changes((changes.boot, len(changes.keys)), False, upload_ids, list(names))

    # -- what is to be deleted

    async def trash_due(self, limit: int) -> list[Doomed]:
        self._must_be_up()
        due = sorted((row.due_at, name) for name, row in self.trash.items() if row.due_at <= self.clock.seconds())
        rows = [(name, self.trash[name]) for _, name in due[:limit]]
        return [Doomed(name, row.multipart, row.reason == MOVED) for name, row in rows]

    async def trash_done(self, names: Sequence[str]) -> None:
        self._must_be_up()
        for name in names:
            self.trash.pop(name, None)
            self._uploads.objects.pop(name, None)

    async def trash_postpone(self, names: Sequence[str], seconds: int) -> None:
        self._must_be_up()
        for name in names:
            if name in self.trash:
                self.trash[name].due_at = self.clock.seconds() + seconds

    async def packs_cursor(self) -> str:
        self._must_be_up()
        return min(self._packs_cursor, self.first_young())

    def first_young(self) -> str:
        """Packs from here on may still be committed."""
        return pack_name(new_id(self.clock.milliseconds() - self._times.pack_grace * 1000))[: len(pack_name("")) + 15]

    async def settle_packs(self, cursor: str, names: Sequence[str]) -> tuple[int, int]:
        self._must_be_up()
        settled = discarded = 0
        if self._packs_cursor != cursor and self._packs_cursor <= self.first_young():
            return settled, discarded
        self._packs_cursor = cursor
        for name in names:
            made = made_at_ms(name)
            if made is not None and made > self.clock.milliseconds() - self._times.pack_grace * 1000:
                break
            if made is not None and name not in self._uploads.objects:
                self._uploads.discard(name, "uncommitted_pack")
                discarded += 1
            settled, self._packs_cursor = settled + 1, name
        return settled, discarded

    async def trim_idempotency(self) -> int:
        self._must_be_up()
        old = [name for name, key in self._keys.items() if key.at < self.clock.seconds() - KEY_LIFE]
        for name in old[:PER_TRANSACTION]:
            del self._keys[name]
        return len(old[:PER_TRANSACTION])

    # -- for operators and hosts

    async def reject_event(self, object_name: str, reason: str) -> None:
        self._must_be_up()
        self._uploads.reject(object_name, reason)

    async def take_lease(self, name: str, owner: str, seconds: float) -> bool:
        self._must_be_up()
        now = self.clock.seconds()
        holder, until = self._leases.get(name, (owner, 0))
        if holder != owner and now < until <= now + 2 * ceil(seconds):
            return False
        self._leases[name] = (owner, now + ceil(seconds))
        return True

    async def now_ms(self) -> int:
        self._must_be_up()
        return self.clock.milliseconds()

    async def status(self) -> dict[str, Any]:
        self._must_be_up()
        uploads = self._uploads
        return {
            "version": 1,
            "time": self.clock.seconds(),
            "watermark": self._order.watermark,
            "subjects": len(uploads.subjects),
            "rows": len(self._order.rows),
            "uploads": len(uploads.rows),
            "trash": len(self.trash),
            "missing": len(self._order.missing),
            "next_due_at": min((row.due_at for row in uploads.rows.values()), default=None),
            "rejected_events": uploads.rejected[: -_REJECTED_SHOWN - 1 : -1],
            "arena_used": 0,
            "arena_size": 0,
            "quota_size": 0,
            "transactions": 0,
            "transaction_receipts": 0,
        }

    async def subjects(self, after: str, limit: int, prefix: str = "") -> tuple[list[dict[str, Any]], bool]:
        self._must_be_up()
        found: list[dict[str, Any]] = []
        names = sorted(name for name in self._uploads.subjects if name > after and name.startswith(prefix))
        for name in names[:limit]:
            lane, (_, created_at) = self._order.lane(name), self._uploads.subjects[name]
            counts = {"messages": lane.messages, "bytes": lane.bytes}
            found.append({"subject": name, "partitions": 1, "created_at": created_at, **counts})
        return found, len(names) > limit

    async def check(self) -> None:
        self._must_be_up()

    async def close(self) -> None:
        pass

    def _must_be_up(self) -> None:
        if self.down:
            raise unavailable("the metadata store does not answer")

    def _known(self, upload_id: str) -> UploadRow:
        self._must_be_up()
        if upload_id not in self._uploads.rows:
            raise not_found("there is no such upload; it may have ended long ago", upload_id=upload_id)
        return self._uploads.rows[upload_id]

    def _open(self, upload_id: str) -> UploadRow:
        row = self._known(upload_id)
        if row.state is not State.OPEN:
            details = {"upload_id": upload_id, "state": str(row.state)}
            raise MtsError("upload_final", "this upload is no longer open", details)
        return row
