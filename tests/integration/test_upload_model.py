"""Uploads against a model: tickets, PUTs, events, complete, abort, expiry, sessions and the reconciler in any order.

Tarantool is real, with a clock that moves in no time; the object store is the one in memory.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from minitoolstream.adapters.catalog.peers import S3Peers
from minitoolstream.adapters.memory.bucket import MemoryBucket
from minitoolstream.adapters.memory.payloads import MemoryPayloads
from minitoolstream.adapters.memory.tracking import MemoryTracking
from minitoolstream.adapters.tarantool.audit import TarantoolAudit
from minitoolstream.adapters.tarantool.deletion import TarantoolDeletions
from minitoolstream.adapters.tarantool.delivery import TarantoolDelivery
from minitoolstream.adapters.tarantool.recovery import TarantoolJournal, TarantoolRestore
from minitoolstream.adapters.tarantool.retention import TarantoolRetention
from minitoolstream.adapters.tarantool.subjects import TarantoolSubjects
from minitoolstream.adapters.tarantool.transactions import TarantoolTransactions
from minitoolstream.bootstrap import assemble, open_catalog
from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import messages_of
from minitoolstream.domain.object_event import ObjectCreated
from minitoolstream.domain.pack import InlineMessage, read_frames
from minitoolstream.domain.upload import Receipt, State, UploadSpec
from minitoolstream.ports import ExtentPage, NoMetrics
from minitoolstream.services.commit_uploads import commit_created
from minitoolstream.services.core import Core
from minitoolstream.services.end_upload import abort_upload, complete_upload
from minitoolstream.services.issue_tickets import issue_tickets
from minitoolstream.services.publish_inline import publish_inline
from minitoolstream.services.reconcile_uploads import Summary, reconcile
from minitoolstream.services.upload_parts import sign_missing_parts
from tests.clocked_tarantool import ClockedMetadata, settings_for, start_clocked_tarantool
from tests.core_kit import PlainSigner, measure_again

T = TypeVar("T")
PART_SIZE, GRACE, A_WEEK = 4, 60, 8 * 24 * 3600
SETTINGS = {
    "MTS_UPLOADS_TICKET_LIFE": "600s",
    "MTS_UPLOADS_PRODUCER_TICKET_LIFE": "300s",
    "MTS_UPLOADS_PUT_GRACE": f"{GRACE}s",
    "MTS_PACKS_GRACE": "1000s",
}
PICKS = st.integers(0, 199)
SIZES = st.sampled_from([0, 1, 3, 3, 7])
SEQNOS = st.lists(st.integers(0, 9), min_size=1, max_size=4)
FORWARD = {
    State.OPEN: {State.STORED, State.COMMITTED, State.ABORTED, State.EXPIRED, State.REJECTED},
    State.STORED: {State.COMMITTED, State.ABORTED},
}


@dataclass
class World:
    """What all examples share: the server, and the loop that its connections live on."""

    runner: asyncio.Runner
    settings: Settings
    metadata: ClockedMetadata
    subjects: Iterator[str] = field(default_factory=lambda: (f"model-{number}" for number in itertools.count()))
    ways: Counter[tuple[State, State]] = field(default_factory=Counter)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)


class StoreInStep(MemoryPayloads):
    """Its clock is Tarantool's, however far that was moved: nothing is deleted by clocks that differ (rule 27)."""

    def __init__(self, metadata: ClockedMetadata) -> None:
        super().__init__(min_part=1)
        self._metadata = metadata

    async def now_ms(self) -> int:
        return await self._metadata.now_ms()


@dataclass
class Announced:
    """An upload as the model knows it; `name` and `expires_at` are None and 0 for a frame of a pack."""

    id: str
    payload: bytes
    producer: str | None = None
    seqno: int | None = None
    state: State = State.OPEN
    sequence: int | None = None
    name: str | None = None
    expires_at: int = 0
    multipart_id: str | None = None

    @property
    def in_parts(self) -> bool:
        return len(self.payload) > PART_SIZE


@dataclass(frozen=True)
class Seen:
    receipts: dict[str, Receipt]
    page: ExtentPage
    trash: set[str]


@dataclass
class Producer:
    stored: dict[int, int] = field(default_factory=dict)
    pending: dict[int, Announced] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return max(self.stored, default=-1)

    def first(self) -> Announced | None:
        return self.pending[min(self.pending)] if self.pending else None


class UploadMachine(RuleBasedStateMachine):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.subject = next(world.subjects)
        self.payloads = StoreInStep(world.metadata)
        self.core: Core = assemble(
            world.settings,
            metadata=world.metadata,
            deliveries=TarantoolDelivery(world.metadata.connection),
            subjects=TarantoolSubjects(world.metadata.connection, world.settings),
            transactions=TarantoolTransactions(world.metadata.connection, world.settings),
            retention=TarantoolRetention(world.metadata.connection),
            bucket=MemoryBucket(),
            journal=TarantoolJournal(world.metadata.connection),
            restores=TarantoolRestore(world.metadata.connection, world.settings),
            deletions=TarantoolDeletions(world.metadata.connection, world.settings),
            audit=TarantoolAudit(world.metadata.connection, world.settings),
            tracking=MemoryTracking(),
            catalog=open_catalog(world.settings),
            peers=S3Peers(world.settings),
            payloads=self.payloads,
            signer=PlainSigner(),
            metrics=NoMetrics(),
        )
        self.uploads: dict[str, Announced] = {}
        self.producers = {"p": Producer(), "q": Producer()}
        self.visible: list[tuple[int, bytes]] = []
        self.seen_watermark = 0
        self.events: list[ObjectCreated] = []
        self.numbers = itertools.count(1)

    # -- what happens

    @initialize(p=st.integers(2, 5), q=st.integers(0, 3), nobody=st.integers(0, 2))
    def some_are_announced(self, p: int, q: int, nobody: int) -> None:
        for producer, count in (("p", p), ("q", q), (None, nobody)):
            for seqno in range(count):
                self._ticket(producer, seqno, 3)

    @rule(producer=st.sampled_from([None, "p", "q"]), seqnos=SEQNOS, size=SIZES)
    def tickets(self, producer: str | None, seqnos: list[int], size: int) -> None:
        for seqno in seqnos:
            self._ticket(producer, seqno, size)

    def _ticket(self, producer: str | None, seqno: int, size: int) -> None:
        if producer is None:
            self._new_ticket(UploadSpec(size, "a/b"))
            return
        spec, owner = UploadSpec(size, "a/b", producer_id=producer, seqno=seqno), self.producers[producer]
        pending = owner.pending.get(seqno)
        if seqno in owner.stored:
            receipt = self._issue(spec)
            assert isinstance(receipt, Receipt)
            assert (receipt.state, receipt.sequence, receipt.duplicate) == (State.COMMITTED, owner.stored[seqno], True)
        elif seqno <= owner.last:
            assert self._refusal(self._issuing(spec)) == "seqno_skipped"
        elif pending is None:
            self._new_ticket(spec)
        elif size != len(pending.payload):
            assert self._refusal(self._issuing(spec)) == "upload_conflict"
        else:
            again = self._issue(spec)
            if isinstance(again, Receipt):
                assert pending.state is State.STORED or pending.in_parts
                self._committed(pending, self._size(pending))
                assert (again.upload_id, again.state) == (pending.id, pending.state)
            else:
                assert again.upload.id == pending.id
                pending.expires_at = again.upload.expires_at

    @precondition(lambda self: self.uploads)
    @rule(pick=PICKS, wrong=st.sampled_from([b"", b"", b"", b"too long"]), told=st.sampled_from([True, True, False]))
    def put(self, pick: int, wrong: bytes, told: bool) -> None:
        """A PUT that the URL still allows, whatever became of the upload: a URL outlives the deletion of its key.
        `told`: its event comes at once."""
        upload = self._pick(pick)
        if upload.name is None or self._now() >= upload.expires_at + GRACE:
            return
        if upload.in_parts:
            self._put_parts(upload)
            if told and upload.state is State.OPEN:
                self._complete(upload)
        elif upload.name not in self.payloads.objects and upload.name not in self.payloads.being_written:
            self._arrive(upload.name, upload.payload + wrong)
            if told:
                self._tell(self.events[-1])

    @precondition(lambda self: self.uploads)
    @rule(first=PICKS, second=PICKS, third=PICKS)
    def puts(self, first: int, second: int, third: int) -> None:
        """Most uploads arrive, and are told: what goes wrong should find something that goes right."""
        for pick in (first, second, third):
            self.put(pick, b"", told=True)

    @precondition(lambda self: self.uploads)
    @rule(pick=PICKS)
    def slow_put_begins(self, pick: int) -> None:
        upload = self._pick(pick)
        if upload.name is None or upload.in_parts or upload.name in self.payloads.objects:
            return
        if self._now() < upload.expires_at:
            self.payloads.being_written.add(upload.name)

    @precondition(lambda self: self.payloads.being_written)
    @rule()
    def slow_put_ends(self) -> None:
        name = min(self.payloads.being_written)
        self.payloads.being_written.remove(name)
        (upload,) = [upload for upload in self.uploads.values() if upload.name == name]
        self._arrive(name, upload.payload)

    @precondition(lambda self: self.events)
    @rule(pick=PICKS)
    def event(self, pick: int) -> None:
        """Early or late, once or many times."""
        self._tell(self.events[-1 - pick % len(self.events)])

    def _tell(self, event: ObjectCreated) -> None:
        (upload,) = [upload for upload in self.uploads.values() if upload.name == event.object_name]
        receipt = self._do(commit_created(self.core, event))
        if receipt is not None:
            self._committed(upload, event.size)
            assert receipt.state is upload.state
        else:
            assert upload.state.final

    @precondition(lambda self: self.uploads)
    @rule(pick=PICKS)
    def complete(self, pick: int) -> None:
        self._complete(self._pick(pick))

    def _complete(self, upload: Announced) -> None:
        if self._forgotten(upload):
            assert self._refusal(complete_upload(self.core, upload.id)) == "not_found"
            return
        if upload.state is State.OPEN and not self._is_ready(upload):
            assert self._refusal(complete_upload(self.core, upload.id)) == "upload_incomplete"
            return
        receipt = self._do(complete_upload(self.core, upload.id))
        if upload.state is State.OPEN:
            assert upload.name is not None
            self._committed(upload, self._size(upload))
        assert receipt.state is upload.state

    @precondition(lambda self: self.uploads)
    @rule(pick=PICKS)
    def abort(self, pick: int) -> None:
        upload = self._pick(pick)
        if self._forgotten(upload):
            assert self._refusal(abort_upload(self.core, upload.id)) == "not_found"
        elif upload.state is State.COMMITTED:
            assert self._refusal(abort_upload(self.core, upload.id)) == "upload_final"
        else:
            receipt = self._do(abort_upload(self.core, upload.id))
            if not upload.state.final:
                self._end(upload, State.ABORTED)
            assert receipt.state is upload.state

    @precondition(lambda self: self.uploads)
    @rule(pick=PICKS)
    def sign_parts(self, pick: int) -> None:
        upload = self._pick(pick)
        if upload.state is State.OPEN and upload.in_parts:
            if upload.name in self.payloads.objects:
                assert self._refusal(sign_missing_parts(self.core, upload.id, 1)) == "upload_final"
                self._committed(upload, self._size(upload))
                return
            page = self._do(sign_missing_parts(self.core, upload.id, 1))
            upload.expires_at = page.upload.expires_at

    @precondition(lambda self: self.uploads)
    @rule(pick=PICKS)
    def host_dies_when_it_has_joined_the_parts(self, pick: int) -> None:
        upload = self._pick(pick)
        multipart = self.payloads.multiparts.get(upload.multipart_id or "")
        if upload.state is State.OPEN and multipart is not None and multipart.parts:
            parts = self._do(self.payloads.list_parts(multipart.name, upload.multipart_id or ""))
            self._do(self.payloads.complete_multipart(multipart.name, upload.multipart_id or "", parts or []))

    @rule(producer=st.sampled_from([None, "p", "q"]), seqno=st.integers(0, 7))
    def publish(self, producer: str | None, seqno: int) -> None:
        payload = self._payload(3)
        message = InlineMessage(self.subject, payload, "a/b", producer_id=producer, seqno=seqno if producer else None)
        result = self._do(publish_inline(self.core, message))
        if producer is None:
            assert result.receipt is not None
            self._appears(result.receipt, payload)
            return
        owner = self.producers[producer]
        first, pending = owner.first(), owner.pending.get(seqno)
        if seqno in owner.stored:
            assert result.receipt is not None
            assert (result.receipt.sequence, result.receipt.duplicate) == (owner.stored[seqno], True)
        elif pending is not None and pending.name is None:  # sent again while it waits
            assert result.receipt is not None
            assert (result.receipt.upload_id, result.receipt.state) == (pending.id, State.STORED)
        elif seqno <= owner.last or seqno in owner.pending:
            assert result.error is not None
            assert result.error.code == ("seqno_in_use" if seqno in owner.pending else "seqno_skipped")
        elif first is not None and (first.seqno or 0) < seqno:
            receipt = result.receipt
            assert receipt is not None
            assert receipt.upload_id is not None
            assert (receipt.state, receipt.waits_for) == (State.STORED, first.id)
            waiting = Announced(receipt.upload_id, payload, producer, seqno, State.STORED)
            self.uploads[waiting.id] = owner.pending[seqno] = waiting
        else:
            assert result.receipt is not None
            owner.stored[seqno] = self._appears(result.receipt, payload)

    @rule(producer=st.sampled_from([None, None, None, "p", "q"]))
    def new_session(self, producer: str | None) -> None:
        """Now and then."""
        if producer is None:
            return
        owner = self.producers[producer]
        self._do(self.world.metadata.start_producer(self.subject, producer))
        for upload in [upload for upload in owner.pending.values() if upload.state is State.OPEN]:
            self._goes(upload, State.ABORTED)
            del owner.pending[upload.seqno or 0]
        self._free(producer)

    @rule(seconds=st.sampled_from([1, 31, 31, 31, 100, 1500]))
    def time_passes(self, seconds: int) -> None:
        self._advance(seconds)

    @rule()
    def reconciler_runs(self) -> None:
        self._reconcile()

    # -- what must hold

    @invariant()
    def the_world_is_as_the_model_says(self) -> None:
        seen = self._do(self._look())
        self._receipts_are_those_of_the_model(seen.receipts)
        self._messages_are_those_of_the_model_in_order_and_without_holes(seen.page)
        self._producers_are_visible_in_their_order()
        visible = {extent.object_name for extent in seen.page.extents}
        alive = {upload.name for upload in self.uploads.values() if not upload.state.final}
        assert not seen.trash & (visible | alive), "nothing is both in use and in the trash"

    async def _look(self) -> Seen:
        metadata = self.world.metadata
        found = await asyncio.gather(*(metadata.get_upload(upload_id) for upload_id in self.uploads))
        page = await metadata.get_messages(self.subject, 1, 10_000)
        trash = {one.name for one in await metadata.trash_due(10_000)}
        return Seen({pair[0].id: pair[1] for pair in found if pair is not None}, page, trash)

    def _receipts_are_those_of_the_model(self, receipts: dict[str, Receipt]) -> None:
        for upload in self.uploads.values():
            receipt = receipts.get(upload.id)
            if receipt is None:
                assert upload.state.final, "only ended uploads are forgotten"
                continue
            assert receipt.state is upload.state
            assert receipt.sequence == upload.sequence, "one upload, one sequence"
            assert (receipt.sequence is not None) == (upload.state is State.COMMITTED)
            if upload.state is State.STORED:
                first = self.producers[upload.producer or ""].first()
                assert first is not None
                assert (receipt.waits_for, first.state) == (first.id, State.OPEN)

    def _messages_are_those_of_the_model_in_order_and_without_holes(self, page: ExtentPage) -> None:
        placed = [(extent, item) for extent in page.extents for item in messages_of(extent)]
        found = []
        for extent, item in placed:
            body = self.payloads.objects[extent.object_name].body
            if item.first_byte is not None:
                (body,) = read_frames(body[item.first_byte - 8 : item.first_byte + item.message.size])
            found.append((int(item.message.sequence), body))
        assert found == sorted(self.visible)
        assert [int(item.message.offset) for _, item in placed] == list(range(len(placed))), "offsets are dense"
        assert page.watermark >= self.seen_watermark, "the watermark never falls"
        assert page.next_sequence == page.watermark + 1
        assert page.latest_sequence == max((sequence for sequence, _ in self.visible), default=0)
        self.seen_watermark = page.watermark

    def _producers_are_visible_in_their_order(self) -> None:
        for owner in self.producers.values():
            sequences = [owner.stored[seqno] for seqno in sorted(owner.stored)]
            assert sequences == sorted(set(sequences))
            assert all(seqno > owner.last for seqno in owner.pending)

    def teardown(self) -> None:
        """Nobody comes any more: after some runs of the reconciler every object is a message's, or gone."""
        while self.payloads.being_written:
            self.slow_put_ends()
        for _ in range(6):
            self._advance(A_WEEK)
            self._reconcile()
        self.the_world_is_as_the_model_says()
        assert all(upload.state.final for upload in self.uploads.values())
        status = self._do(self.world.metadata.status())
        assert (status["uploads"], status["trash"]) == (0, 0)
        page = self._do(self.world.metadata.get_messages(self.subject, 1, 10_000, whole=True))
        assert set(self.payloads.objects) == {extent.object_name for extent in page.extents}
        assert self.payloads.multiparts == {}
        assert self._reconcile() == Summary()

    # -- helpers

    def _do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.world.run(coroutine)

    def _refusal(self, coroutine: Coroutine[Any, Any, Any]) -> str:
        with pytest.raises(MtsError) as caught:
            self._do(coroutine)
        return caught.value.code

    def _issuing(self, spec: UploadSpec) -> Coroutine[Any, Any, list[Any]]:
        return issue_tickets(self.core, self.subject, [spec])

    def _issue(self, spec: UploadSpec) -> Any:
        return self._do(self._issuing(spec))[0]

    def _new_ticket(self, spec: UploadSpec) -> None:
        made = self._issue(spec).upload
        assert made.id not in self.uploads
        upload = Announced(
            made.id,
            self._payload(spec.size),
            spec.producer_id,
            spec.seqno,
            name=made.object_name,
            expires_at=made.expires_at,
            multipart_id=made.multipart_id,
        )
        self.uploads[made.id] = upload
        if spec.producer_id is not None:
            self.producers[spec.producer_id].pending[spec.seqno or 0] = upload

    def _payload(self, size: int) -> bytes:
        return bytes([next(self.numbers) % 256]) * size

    def _pick(self, number: int) -> Announced:
        """One that has not ended, mostly."""
        alive = [upload for upload in self.uploads.values() if not upload.state.final]
        among = alive if alive and number % 4 else list(self.uploads.values())
        return among[number // 4 % len(among)]

    def _now(self) -> float:
        return self._do(self.world.metadata.now_ms()) / 1000

    def _advance(self, seconds: float) -> None:
        self._do(self.world.metadata.advance(seconds))
        measure_again(self.core)

    def _arrive(self, name: str, body: bytes) -> None:
        self.payloads.client_put(name, body)
        self.events.append(ObjectCreated(self.core.settings["minio.bucket"], name, len(body)))

    def _put_parts(self, upload: Announced) -> None:
        assert upload.name is not None
        if upload.multipart_id in self.payloads.multiparts:
            for number, at in enumerate(range(0, len(upload.payload), PART_SIZE), 1):
                part = upload.payload[at : at + PART_SIZE]
                self.payloads.client_put_part(upload.name, upload.multipart_id, number, part)

    def _size(self, upload: Announced) -> int:
        return len(self.payloads.objects.get(upload.name or "", _EMPTY).body)

    def _is_ready(self, upload: Announced) -> bool:
        """The payload is there, or all its parts are."""
        if upload.name in self.payloads.objects:
            return True
        multipart = self.payloads.multiparts.get(upload.multipart_id or "")
        return multipart is not None and bool(multipart.parts)

    def _forgotten(self, upload: Announced) -> bool:
        return self._do(self.world.metadata.get_upload(upload.id)) is None

    # -- the model

    def _committed(self, upload: Announced, size: int) -> None:
        """A payload of this size is there for it."""
        if upload.state is not State.OPEN:
            return
        if size != len(upload.payload):
            self._end(upload, State.REJECTED)
        elif upload.producer is not None and self.producers[upload.producer].first() is not upload:
            self._goes(upload, State.STORED)
        else:
            self._make_visible(upload)
            if upload.producer is not None:
                self._free(upload.producer)

    def _make_visible(self, upload: Announced) -> None:
        found = self._do(self.world.metadata.get_upload(upload.id))
        assert found is not None
        self._goes(upload, State.COMMITTED)
        upload.sequence = self._appears(found[1], upload.payload)
        if upload.producer is not None:
            owner = self.producers[upload.producer]
            del owner.pending[upload.seqno or 0]
            owner.stored[upload.seqno or 0] = upload.sequence

    def _appears(self, receipt: Receipt, payload: bytes) -> int:
        assert receipt.state is State.COMMITTED
        assert receipt.sequence is not None
        assert receipt.sequence > self.seen_watermark, "nothing new appears below what was read"
        assert receipt.sequence not in {sequence for sequence, _ in self.visible}
        self.visible.append((receipt.sequence, payload))
        return receipt.sequence

    def _free(self, producer: str) -> None:
        owner = self.producers[producer]
        while (first := owner.first()) is not None and first.state is State.STORED:
            self._make_visible(first)

    def _goes(self, upload: Announced, state: State) -> None:
        assert state in FORWARD[upload.state]
        self.world.ways[upload.state, state] += 1
        upload.state = state

    def _end(self, upload: Announced, state: State) -> None:
        self._goes(upload, state)
        if upload.producer is not None:
            del self.producers[upload.producer].pending[upload.seqno or 0]
            self._free(upload.producer)

    def _reconcile(self) -> Summary:
        """What the reconciler does must be justified by what was in the store and by the time."""
        now, there = self._now(), {name: len(stored.body) for name, stored in self.payloads.objects.items()}
        summary = self._do(reconcile(self.core))
        for upload in sorted(self.uploads.values(), key=lambda upload: (upload.producer or "", upload.seqno or 0)):
            found = self._do(self.world.metadata.get_upload(upload.id))
            if upload.state is not State.OPEN or found is None or found[1].state is State.OPEN:
                continue
            if found[1].state is State.EXPIRED:
                assert upload.name not in there
                assert upload.name not in self.payloads.being_written
                assert now + 2 >= upload.expires_at + GRACE
                self._end(upload, State.EXPIRED)
            else:
                assert upload.name in there
                self._committed(upload, there[upload.name])
        return summary


class _Empty:
    body = b""


_EMPTY = _Empty()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("model")
    server = start_clocked_tarantool(folder)
    given = settings_for(server, folder, SETTINGS).with_values(uploads__part_size=PART_SIZE)
    with asyncio.Runner() as runner:
        metadata = runner.run(_opened(given))
        yield World(runner, given, metadata)
        runner.run(metadata.close())
    server.stop()


async def _opened(given: Settings) -> ClockedMetadata:
    """Connections belong to the loop they are made on."""
    return ClockedMetadata(given)


def test_uploads_follow_their_model(world: World) -> None:
    make: Any = lambda: UploadMachine(world)  # noqa: E731 - any callable does
    run_state_machine_as_test(
        make,
        settings=settings(
            max_examples=2 * settings().max_examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    everywhere = {(before, after) for before, states in FORWARD.items() for after in states}
    assert set(world.ways) == everywhere, "the examples went all ways there are"
