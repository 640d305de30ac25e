"""What a process of ours does for a message, from its ticket to its end; each is killed at every one of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from minitoolstream.domain.compaction import worth_moving
from minitoolstream.domain.object_event import ObjectCreated
from minitoolstream.domain.pack import InlineMessage, build_pack, read_frames
from minitoolstream.domain.upload import State, Upload, UploadSpec
from minitoolstream.services.commit_uploads import commit_created
from minitoolstream.services.compact_rows import compact_rows
from minitoolstream.services.core import Core
from minitoolstream.services.delete_messages import delete_message, purge_subject
from minitoolstream.services.end_upload import abort_upload, complete_upload
from minitoolstream.services.issue_tickets import Ticket, issue_tickets
from minitoolstream.services.manage_subjects import put_subject
from minitoolstream.services.publish_batch import publish_batch
from minitoolstream.services.publish_inline import publish_inline
from minitoolstream.services.reconcile_uploads import reconcile
from minitoolstream.services.run_transaction import begin_transaction, commit_transaction
from minitoolstream.services.sweep_expired import sweep
from minitoolstream.services.write_journal import write_journal
from tests.clocked_core import Clocked

PART = 5 * 2**20
TYPE = "text/plain"


async def stored(scene: Clocked, subject: str) -> list[bytes]:
    """The payloads of a subject in its order, read as a reader would."""
    found: list[bytes] = []
    for extent in (await scene.metadata.get_messages(subject, 1, 1000)).extents:
        body = scene.payloads.objects[extent.object_name].body
        span = extent.byte_range
        found += [body] if span is None else list(read_frames(body[span[0] : span[1] + 1]))
    return found


async def ticket(core: Core, subject: str, size: int, **more: Any) -> Upload:
    (issued,) = await issue_tickets(core, subject, [UploadSpec(size, TYPE, **more)])
    assert isinstance(issued, Ticket), issued
    return issued.upload


def put(scene: Clocked, upload: Upload, body: bytes) -> ObjectCreated:
    """The producer's PUT, and the event that would come of it."""
    scene.payloads.client_put(upload.object_name, body)
    return ObjectCreated(scene.settings["minio.bucket"], upload.object_name, len(body))


async def pack(core: Core, subject: str, payloads: Sequence[bytes]) -> list[int]:
    results = await publish_batch(core, [InlineMessage(subject, data, TYPE) for data in payloads])
    return [result.receipt.sequence or 0 for result in results if result.receipt]


@dataclass
class Operation:
    """`steps` are the calls it makes, by name. Killed at one of them, everything else goes on; then `again` is what its
    caller does who got no answer, and `left` what its subject must hold in the end: one of these."""

    subject: str
    steps: ClassVar[set[str]]

    async def prepare(self, scene: Clocked) -> None:
        """What was before."""

    async def run(self, core: Core) -> None:
        raise NotImplementedError

    async def again(self, core: Core) -> None:
        await self.run(core)

    def left(self) -> list[list[bytes]]:
        return [[]]


class AskForATicket(Operation):
    steps: ClassVar[set[str]] = {"metadata.create_uploads"}

    async def run(self, core: Core) -> None:
        await ticket(core, self.subject, 5)


class AskForATicketInParts(Operation):
    steps: ClassVar[set[str]] = {"metadata.create_uploads", "payloads.create_multipart", "metadata.set_multipart"}

    async def run(self, core: Core) -> None:
        await ticket(core, self.subject, PART + 1, producer_id="till", seqno=1)


@dataclass
class CommitByEvent(Operation):
    """Nobody asks again: the reconciler finds it."""

    steps: ClassVar[set[str]] = {"metadata.commit_uploads"}
    event: ObjectCreated | None = None

    async def prepare(self, scene: Clocked) -> None:
        self.event = put(scene, await ticket(scene.core, self.subject, 5), b"event")

    async def run(self, core: Core) -> None:
        assert self.event is not None
        await commit_created(core, self.event)

    async def again(self, core: Core) -> None:
        """The store says it once."""

    def left(self) -> list[list[bytes]]:
        return [[b"event"]]


class CommitByAnEventThatLies(CommitByEvent):
    """Its size is not the ticket's: the store is asked."""

    steps: ClassVar[set[str]] = {"metadata.commit_uploads", "payloads.find"}

    async def prepare(self, scene: Clocked) -> None:
        await super().prepare(scene)
        assert self.event is not None
        self.event = replace(self.event, size=4)


@dataclass
class CommitByComplete(Operation):
    steps: ClassVar[set[str]] = {
        "metadata.get_upload",
        "payloads.list_parts",
        "payloads.complete_multipart",
        "payloads.find",
        "metadata.commit_uploads",
    }
    upload_id: str = ""

    async def prepare(self, scene: Clocked) -> None:
        upload = await ticket(scene.core, self.subject, PART + 1)
        self.upload_id = upload.id
        assert upload.multipart_id is not None
        for number, size in ((1, PART), (2, 1)):
            scene.payloads.client_put_part(upload.object_name, upload.multipart_id, number, bytes(size))

    async def run(self, core: Core) -> None:
        await complete_upload(core, self.upload_id)

    def left(self) -> list[list[bytes]]:
        return [[bytes(PART + 1)]]


@dataclass
class CommitWhatOthersWaitFor(Operation):
    """A later message of its producer is stored, and becomes visible behind it."""

    steps: ClassVar[set[str]] = {"metadata.commit_uploads"}
    event: ObjectCreated | None = None

    async def prepare(self, scene: Clocked) -> None:
        first = await ticket(scene.core, self.subject, 5, producer_id="till", seqno=1)
        later = InlineMessage(self.subject, b"second", TYPE, producer_id="till", seqno=2)
        result = await publish_inline(scene.core, later)
        assert result.receipt
        assert result.receipt.state is State.STORED
        self.event = put(scene, first, b"first")

    async def run(self, core: Core) -> None:
        assert self.event is not None
        await commit_created(core, self.event)

    async def again(self, core: Core) -> None:
        """The store says it once."""

    def left(self) -> list[list[bytes]]:
        return [[b"first", b"second"]]


class CommitInline(Operation):
    steps: ClassVar[set[str]] = {"metadata.now_ms", "payloads.put_fresh", "metadata.commit_pack"}

    async def run(self, core: Core) -> None:
        result = await publish_inline(core, InlineMessage(self.subject, b"inline", TYPE, key="once"))
        assert result.receipt, result.error

    def left(self) -> list[list[bytes]]:
        return [[b"inline"]]


class CommitABatch(Operation):
    steps: ClassVar[set[str]] = {"metadata.now_ms", "payloads.put_fresh", "metadata.commit_pack"}

    async def run(self, core: Core) -> None:
        items = [InlineMessage(self.subject, b"%d" % n, TYPE, producer_id="till", seqno=n) for n in (1, 2, 3)]
        assert all(result.receipt for result in await publish_batch(core, items))

    def left(self) -> list[list[bytes]]:
        return [[b"1", b"2", b"3"]]


class CommitATransaction(Operation):
    """Its caller begins another one: of the first there is all or nothing."""

    steps: ClassVar[set[str]] = {
        "transactions.begin",
        "metadata.now_ms",
        "payloads.put_fresh",
        "metadata.commit_pack",
        "transactions.commit",
    }

    async def run(self, core: Core) -> None:
        begun = (await begin_transaction(core, 60)).transaction_id
        for data in (b"debit", b"credit"):
            await publish_inline(core, InlineMessage(self.subject, data, TYPE, transaction_id=begun))
        await commit_transaction(core, begun)

    def left(self) -> list[list[bytes]]:
        return [[b"debit", b"credit"], [b"debit", b"credit"] * 2]


@dataclass
class Abort(Operation):
    """Killed before it was decided, the payload that is there is committed, unless it is asked for again."""

    steps: ClassVar[set[str]] = {
        "metadata.abort_upload",
        "payloads.list_multiparts",
        "payloads.abort_multipart",
        "payloads.delete_many",
        "metadata.trash_done",
    }
    upload_id: str = ""

    async def prepare(self, scene: Clocked) -> None:
        upload = await ticket(scene.core, self.subject, PART + 1)
        self.upload_id = upload.id
        assert upload.multipart_id is not None
        scene.payloads.client_put_part(upload.object_name, upload.multipart_id, 1, bytes(PART))

    async def run(self, core: Core) -> None:
        await abort_upload(core, self.upload_id)


class Expire(Operation):
    """Rows to the trash, payloads out of the bucket, rows out of the trash."""

    steps: ClassVar[set[str]] = {
        "payloads.now_ms",
        "retention.compare_clocks",
        "retention.step",
        "retention.status",
        "metadata.trash_due",
        "payloads.delete_many",
        "metadata.trash_done",
    }

    async def prepare(self, scene: Clocked) -> None:
        await put_subject(scene.core, self.subject, {"ttl": 5})
        await pack(scene.core, self.subject, [b"old", b"older"])
        await commit_created(scene.core, put(scene, await ticket(scene.core, self.subject, 5), b"plain"))
        await scene.pass_time(6)

    async def run(self, core: Core) -> None:
        await sweep(core)

    async def again(self, core: Core) -> None:
        """The schedule comes round."""


class Reconcile(Operation):
    """A payload whose event was lost, a ticket that nobody used, a pack that nobody committed."""

    steps: ClassVar[set[str]] = {
        "metadata.uploads_due",
        "metadata.now_ms",
        "metadata.commit_uploads",
        "metadata.expire_upload",
        "metadata.packs_cursor",
        "metadata.settle_packs",
        "metadata.trash_due",
        "metadata.trash_done",
        "metadata.trim_idempotency",
        "metadata.status",
        "audit.missing_packs",
        "deletions.open_deletions",
        "deletions.trim",
        "payloads.find",
        "payloads.is_being_written",
        "payloads.list_after",
        "payloads.now_ms",
        "payloads.delete_many",
        "retention.compare_clocks",
        "retention.status",
    }

    async def prepare(self, scene: Clocked) -> None:
        await ticket(scene.core, self.subject, 5)
        put(scene, await ticket(scene.core, self.subject, 5), b"heard")
        await scene.core.packer.writer.put(build_pack([InlineMessage(self.subject, b"lost", TYPE)]))
        await scene.pass_time(100)

    async def run(self, core: Core) -> None:
        await reconcile(core)

    async def again(self, core: Core) -> None:
        """The schedule comes round."""

    def left(self) -> list[list[bytes]]:
        return [[b"heard"]]


@dataclass
class DeleteForGood(Operation):
    """A message of a pack: it is written anew without it."""

    steps: ClassVar[set[str]] = {
        "deletions.delete_message",
        "deletions.work",
        "deletions.plan",
        "deletions.switch",
        "metadata.now_ms",
        "payloads.put_new",
        "payloads.get_range",
        "payloads.delete_many",
        "metadata.trash_done",
        "journal.position",
        "journal.raise_ceiling",
        "payloads.list_after",
        "journal.journal_lag",
        "journal.read_journal",
        "journal.plan_segment",
        "journal.ack_segment",
    }
    sequences: list[int] = field(default_factory=list)

    async def prepare(self, scene: Clocked) -> None:
        self.sequences = await pack(scene.core, self.subject, [b"before", b"secret", b"behind"])
        await write_journal(scene.core)

    async def run(self, core: Core) -> None:
        assert (await delete_message(core, self.sequences[1], "me", "law")).done

    def left(self) -> list[list[bytes]]:
        return [[b"before", b"behind"]]


class Purge(Operation):
    steps: ClassVar[set[str]] = (DeleteForGood.steps - {"deletions.delete_message"}) | {"deletions.purge_subject"}

    async def prepare(self, scene: Clocked) -> None:
        items = [InlineMessage(name, b"x", TYPE) for name in (self.subject, "neighbour", self.subject)]
        await publish_batch(scene.core, items)
        await commit_created(scene.core, put(scene, await ticket(scene.core, self.subject, 5), b"plain"))
        await write_journal(scene.core)

    async def run(self, core: Core) -> None:
        assert (await purge_subject(core, self.subject, "me", "law")).done


class Compact(Operation):
    """Whoever is told nothing runs it again: what is together already is left alone."""

    steps: ClassVar[set[str]] = {
        "metadata.get_messages",
        "metadata.now_ms",
        "payloads.get_whole",
        "payloads.get_range",
        "payloads.put_new",
        "deletions.move_rows",
    }

    async def prepare(self, scene: Clocked) -> None:
        for body in (b"first", b"second"):
            await commit_created(scene.core, put(scene, await ticket(scene.core, self.subject, len(body)), body))
        await pack(scene.core, self.subject, [b"packed", b"with it"])

    async def run(self, core: Core) -> None:
        rows = (await core.metadata.get_messages(self.subject, 1, 1000, whole=True)).extents
        for group in worth_moving(rows, 1000, 3600):
            await compact_rows(core, group)

    def left(self) -> list[list[bytes]]:
        return [[b"first", b"second", b"packed", b"with it"]]


OPERATIONS: tuple[type[Operation], ...] = (
    AskForATicket,
    AskForATicketInParts,
    CommitByEvent,
    CommitByAnEventThatLies,
    CommitByComplete,
    CommitWhatOthersWaitFor,
    CommitInline,
    CommitABatch,
    CommitATransaction,
    Abort,
    Expire,
    Reconcile,
    DeleteForGood,
    Purge,
    Compact,
)
