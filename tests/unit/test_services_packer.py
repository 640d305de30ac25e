"""Inline publishes, packed together."""

from __future__ import annotations

import asyncio
import string
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.lanes import HASHES, Lanes
from minitoolstream.domain.limits import MAX_PACK_METADATA_BYTES
from minitoolstream.domain.pack import FRAME_PREFIX, AlikeMessages, Group, InlineMessage, build_pack
from minitoolstream.domain.upload import Receipt, State
from minitoolstream.ports import GroupResults, PackResult
from minitoolstream.request_id import request_id
from minitoolstream.services.fetch_messages import MessagePage, Selection, read_page
from minitoolstream.services.publish_batch import publish_batch
from minitoolstream.services.publish_inline import metadata_size, publish_inline
from tests.core_kit import CoreKit, core_kit


class Gate:
    """Holds every PUT of packs until the test lets it through, and counts those that run at once."""

    def __init__(self, kit: CoreKit, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[asyncio.Event] = []
        self.fail_next = False
        self.most_at_once = self._running = 0
        put = kit.payloads.put_fresh

        async def gated(name: str, body: bytes | list[bytes], *, content_type: str) -> None:
            self._running += 1
            self.most_at_once = max(self.most_at_once, self._running)
            opened = asyncio.Event()
            self.waiting.append(opened)
            await opened.wait()
            self._running -= 1
            if self.fail_next:
                self.fail_next = False
                raise unavailable("the object store does not answer")
            await put(name, body, content_type=content_type)

        monkeypatch.setattr(kit.payloads, "put_fresh", gated)

    async def next_one(self) -> asyncio.Event:
        for _ in range(50):
            if self.waiting:
                return self.waiting.pop(0)
            await asyncio.sleep(0)
        raise AssertionError("no PUT is waiting")


def message(data: bytes = b"data", subject: str = "orders", **more: object) -> InlineMessage:
    return InlineMessage(subject, data, "text/plain", **more)  # type: ignore[arg-type]


async def begin(kit: CoreKit, *messages: InlineMessage) -> list[asyncio.Task[PackResult]]:
    tasks = [asyncio.create_task(publish_inline(kit.core, each)) for each in messages]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


def receipt_of(result: PackResult) -> Receipt:
    assert result.receipt is not None, result.error
    return result.receipt


async def test_alone_a_message_waits_for_nobody() -> None:
    kit = core_kit()
    receipt = receipt_of(await publish_inline(kit.core, message()))
    assert (receipt.state, receipt.sequence, receipt.offset) == (State.COMMITTED, 1, 0)
    assert len(kit.payloads.objects) == 1
    assert kit.metrics.messages_committed == 1


async def test_one_put_is_in_flight_and_what_arrives_meanwhile_forms_the_next_pack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = core_kit()
    gate = Gate(kit, monkeypatch)
    first = await begin(kit, message(b"0", subject="a"), message(b"0", subject="b"))
    rest = await begin(kit, *(message(str(i).encode(), subject="ab"[i % 2]) for i in range(1, 6)))
    (await gate.next_one()).set()
    (await gate.next_one()).set()
    receipts = [receipt_of(result) for result in await asyncio.gather(*first, *rest)]
    assert gate.most_at_once == 1
    assert len(kit.payloads.objects) == 2
    assert sorted(receipt.sequence or 0 for receipt in receipts) == [1, 2, 3, 4, 5, 6, 7]
    assert [receipt.offset for receipt in receipts] == [0, 0, 1, 1, 2, 2, 3]
    page = await read_page(kit.core, Selection("b", 10, inline=True), 0)
    assert isinstance(page, MessagePage)
    assert [item.data for item in page.messages] == ["MA==", "MQ==", "Mw==", "NQ=="]


async def test_a_pack_is_committed_under_the_id_of_a_request_that_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = core_kit()
    gate = Gate(kit, monkeypatch)
    seen: list[tuple[str | None, int]] = []
    commit_pack = kit.metadata.commit_pack

    async def noted(name: str, groups: Sequence[Group], *, all_or_none: bool = False) -> list[GroupResults]:
        seen.append((request_id.get(), len(groups[0].sizes)))
        return await commit_pack(name, groups, all_or_none=all_or_none)

    async def serve(name: str) -> None:
        request_id.set(name)
        await publish_inline(kit.core, message())

    monkeypatch.setattr(kit.metadata, "commit_pack", noted)
    first = asyncio.create_task(serve("a"))
    opened = await gate.next_one()
    rest = [asyncio.create_task(serve(name)) for name in "bc"]
    await asyncio.sleep(0)
    opened.set()
    (await gate.next_one()).set()
    await asyncio.gather(first, *rest)
    assert seen == [("a", 1), ("b", 2)]


async def test_a_subject_with_nothing_under_way_does_not_wait_for_the_put_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = core_kit()
    gate = Gate(kit, monkeypatch)
    noisy = await begin(kit, message(subject="noisy"), message(subject="noisy"))
    held = await gate.next_one()
    quiet = await begin(kit, message(subject="quiet"))
    (await gate.next_one()).set()
    assert receipt_of(await quiet[0]).sequence == 1
    third = await begin(kit, message(subject="third"))
    (await gate.next_one()).set()
    assert receipt_of(await third[0]).sequence == 2
    held.set()
    assert [receipt_of(await one).sequence for one in noisy] == [3, 4]


async def test_two_puts_at_once_are_the_most_and_never_two_of_one_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = core_kit()
    gate = Gate(kit, monkeypatch)
    tasks = await begin(kit, message(b"0", subject="a"))
    for number in range(1, 4):
        tasks += await begin(kit, *(message(b"%d" % number, subject=subject) for subject in "abc"))
    assert len(gate.waiting) == 2
    while not all(task.done() for task in tasks):
        (await gate.next_one()).set()
        for _ in range(20):
            await asyncio.sleep(0)
    assert gate.most_at_once == 2
    places = [receipt_of(task.result()).offset for task in tasks]
    assert places == [0, 1, 0, 0, 2, 1, 1, 3, 2, 2]


@given(st.lists(st.one_of(st.sampled_from("abc"), st.integers(0, 1)), max_size=40))
def test_messages_are_stored_in_their_subjects_order_whichever_put_ends_first(steps: list[str | int]) -> None:
    async def run() -> None:
        with pytest.MonkeyPatch.context() as patched:
            kit = core_kit()
            gate = Gate(kit, patched)
            tasks: dict[str, list[asyncio.Task[PackResult]]] = {subject: [] for subject in "abc"}
            for step in steps:
                if isinstance(step, str):
                    tasks[step] += await begin(kit, message(subject=step))
                elif len(gate.waiting) > step:
                    gate.waiting.pop(step).set()
                    await begin(kit)
            while not all(task.done() for some in tasks.values() for task in some):
                (await gate.next_one()).set()
                for _ in range(20):
                    await asyncio.sleep(0)
            assert gate.most_at_once <= 2
            for some in tasks.values():
                assert [receipt_of(task.result()).offset for task in some] == list(range(len(some)))

    asyncio.run(run())


async def test_a_failing_put_fails_only_its_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = core_kit()
    gate = Gate(kit, monkeypatch)
    first = await begin(kit, message(b"lost"), message(b"lost too"))
    second = await begin(kit, message(b"kept"))
    gate.fail_next = True
    (await gate.next_one()).set()
    opened = await gate.next_one()
    opened.set()
    failed = await asyncio.gather(*first, return_exceptions=True)
    assert [getattr(error, "code", None) for error in failed] == ["unavailable"] * 2
    assert receipt_of(await second[0]).sequence == 1


async def test_a_failing_commit_fails_only_its_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = core_kit()
    gate = Gate(kit, monkeypatch)
    (first,) = await begin(kit, message(b"unknown"))
    opened = await gate.next_one()
    kit.metadata.down = True
    opened.set()
    with pytest.raises(MtsError) as caught:
        await first
    assert caught.value.code == "unavailable"
    kit.metadata.down = False
    (second,) = await begin(kit, message(b"kept"))
    (await gate.next_one()).set()
    assert receipt_of(await second).sequence == 1


async def test_an_error_nobody_expected_reaches_the_callers_as_internal(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = core_kit()

    async def broken(*_args: object, **_more: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(kit.payloads, "put_fresh", broken)
    with pytest.raises(MtsError) as caught:
        await publish_inline(kit.core, message())
    assert caught.value.code == "internal"


async def test_a_pack_ends_before_it_grows_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = core_kit()
    gate = Gate(kit, monkeypatch)
    monkeypatch.setattr("minitoolstream.services.publish_inline._PACK_BYTES", 8)
    tasks = await begin(kit, *(message(b"abc") for _ in range(5)))
    for _ in range(3):
        (await gate.next_one()).set()
    await asyncio.gather(*tasks)
    assert [stored.body.count(b"abc") for stored in kit.payloads.objects.values()] == [2, 2, 1]


async def test_a_pack_ends_before_its_metadata_grows_too_large() -> None:
    kit = core_kit()
    many = [message(b"", headers={"h": f"{i:<15000}"}) for i in range(40)]
    results = await asyncio.gather(*(publish_inline(kit.core, each) for each in many))
    assert {receipt_of(result).state for result in results} == {State.COMMITTED}
    assert len(kit.payloads.objects) >= 3


async def test_messages_of_many_long_subjects_never_make_a_pack_that_is_refused() -> None:
    kit = core_kit()
    many = [message(b"", subject=f"{i:04}" + "s" * 236) for i in range(1500)]
    results = await asyncio.gather(*(publish_inline(kit.core, each) for each in many))
    assert {receipt_of(result).state for result in results} == {State.COMMITTED}


_names = st.text(string.ascii_letters + '"\\é\x00', min_size=1, max_size=12)
_messages = st.builds(
    InlineMessage,
    subject=st.sampled_from(["a", "b" * 240]),
    data=st.binary(max_size=3),
    content_type=st.sampled_from(["text/plain", 'a/b; c="\\"\\"\\""']),
    headers=st.dictionaries(_names, _names, max_size=3),
    producer_id=st.none() | _names,
    seqno=st.integers(0, 2**63 - 1),
    epoch=st.none() | st.integers(0, 2**63 - 1),
    key=st.none() | st.text('"\\k', min_size=1, max_size=20),
    digest=st.just("d" * 32),
    group=st.none() | _names,
    codec=st.sampled_from([None, "gzip", "zstd"]),
)
_LANES = Lanes.of((place * HASHES // 4, place) for place in range(4))


@given(st.lists(_messages, min_size=1, max_size=12))
def test_the_estimate_of_a_packs_metadata_is_an_upper_bound(messages: list[InlineMessage]) -> None:
    codecs: dict[str, str | None] = {}
    estimate = 0
    for each in messages:
        estimate += metadata_size(each, codecs)
        codecs.setdefault(each.subject, each.codec)
    head = build_pack(messages, lambda _: _LANES).body[0]
    assert len(head) - 9 <= estimate + 2


async def test_when_too_much_waits_the_next_is_told_to_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = core_kit()
    gate = Gate(kit, monkeypatch)
    monkeypatch.setattr("minitoolstream.services.publish_inline._QUEUE_BYTES", 64)
    data = bytes(16)
    tasks = await begin(kit, message())
    tasks += await begin(kit, *(message(data) for _ in range(4)))
    with pytest.raises(MtsError) as caught:
        await publish_inline(kit.core, message(data))
    assert (caught.value.code, caught.value.retryable) == ("overloaded", True)
    while not all(task.done() for task in tasks):
        (await gate.next_one()).set()
        for _ in range(5):
            await asyncio.sleep(0)
    (later,) = await begin(kit, message(b"fits again"))
    (await gate.next_one()).set()
    assert receipt_of(await later).state is State.COMMITTED


async def test_closing_finishes_what_was_taken_on(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = core_kit()
    gate = Gate(kit, monkeypatch)
    (task,) = await begin(kit, message())
    closing = asyncio.create_task(kit.core.close())
    await asyncio.sleep(0)
    assert not closing.done()
    (await gate.next_one()).set()
    await closing
    assert receipt_of(await task).state is State.COMMITTED


async def test_a_publisher_who_went_away_disturbs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = core_kit()
    gate = Gate(kit, monkeypatch)
    gone, stays = await begin(kit, message(b"gone"), message(b"stays"))
    gone.cancel()
    while not stays.done():
        (await gate.next_one()).set()
        for _ in range(5):
            await asyncio.sleep(0)
    assert receipt_of(await stays).state is State.COMMITTED


async def test_the_same_key_with_another_body_type_or_headers_is_another_message() -> None:
    kit = core_kit()
    first = receipt_of(await publish_inline(kit.core, message(b"pay", key="k", headers={"a": "1", "b": "2"})))
    again = receipt_of(await publish_inline(kit.core, message(b"pay", key="k", headers={"b": "2", "a": "1"})))
    assert (again.sequence, again.duplicate) == (first.sequence, True)
    others = [
        message(b"pay!", key="k", headers={"a": "1", "b": "2"}),
        message(b"pay", key="k", headers={"a": "1"}),
        InlineMessage("orders", b"pay", "text/html", {"a": "1", "b": "2"}, key="k"),
    ]
    for other in others:
        result = await publish_inline(kit.core, other)
        assert result.error is not None
        assert result.error.code == "idempotency_conflict"
    assert kit.metrics.messages_committed == 1


async def test_a_batch_is_one_pack_with_a_result_each() -> None:
    kit = core_kit()
    await publish_inline(kit.core, message(producer_id="p", seqno=2))
    results = await publish_batch(kit.core, [message(producer_id="p", seqno=n) for n in (1, 2, 3)])
    assert results[0].error is not None
    assert results[0].error.code == "seqno_skipped"
    assert [receipt_of(result).duplicate for result in results[1:]] == [True, False]
    assert len(kit.payloads.objects) == 2


async def test_a_batch_of_alike_messages_is_one_pack_with_a_result_each() -> None:
    kit = core_kit()
    results = await publish_batch(kit.core, AlikeMessages(message(), [b"a", b"b", b"c"]))
    assert [receipt_of(result).sequence for result in results] == [1, 2, 3]
    assert kit.metrics.messages_committed == 3
    assert len(kit.payloads.objects) == 1


_routed = st.builds(
    InlineMessage,
    subject=st.sampled_from(["many", "one"]),
    data=st.uuids().map(lambda number: number.bytes),
    content_type=st.just("text/plain"),
    producer_id=st.none() | st.sampled_from(["p", "q"]),
    group=st.none() | st.sampled_from("abcdef"),
    codec=st.sampled_from([None, None, "gzip"]),
)


@given(st.lists(_routed, min_size=1, max_size=30))
@example([message(bytes([place]), subject="many", group=group) for place, group in enumerate("abab")])
async def test_whatever_lanes_a_pack_has_each_message_is_answered_with_its_own_place(
    messages: list[InlineMessage],
) -> None:
    kit = core_kit()
    kit.subjects.known_lanes["many"] = _LANES
    kit.core.lanes.learn("many", {3})
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for seqno, each in enumerate(messages):
        each.seqno = None if each.producer_id is None else seqno
    results = await publish_batch(kit.core, messages)
    await kit.core.close()
    for each, result in zip(messages, results, strict=True):
        extent = await kit.metadata.get_message(receipt_of(result).sequence or 0)
        assert extent is not None
        assert extent.byte_from is not None
        stored = kit.payloads.objects[extent.object_name].body[extent.byte_from + FRAME_PREFIX :]
        assert (stored[: extent.size], extent.subject, extent.codec) == (each.data, each.subject, each.codec)


async def test_a_batch_with_too_much_metadata_stores_nothing() -> None:
    kit = core_kit()
    many = [message(headers={"h": str(i) + "x" * 1000}) for i in range(MAX_PACK_METADATA_BYTES // 1000 + 1)]
    with pytest.raises(MtsError) as caught:
        await publish_batch(kit.core, many)
    assert caught.value.code == "too_large"
    assert kit.payloads.objects == {}


async def test_a_steady_stream_of_publishes_never_nests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message arrives while the one before is being committed, for longer than any stack is deep."""
    kit = core_kit()
    commit = kit.metadata.commit_pack
    left, all_sent = 3_000, asyncio.Event()
    answers: list[asyncio.Task[PackResult]] = []

    async def committed(*arguments: object, **how: object) -> object:
        nonlocal left
        if left:
            left -= 1
            answers.append(asyncio.create_task(publish_inline(kit.core, message())))
            await asyncio.sleep(0)
        else:
            all_sent.set()
        return await commit(*arguments, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(kit.metadata, "commit_pack", committed)
    await publish_inline(kit.core, message())
    await asyncio.wait_for(all_sent.wait(), 30)
    results = await asyncio.gather(*answers)
    assert len({result.receipt.sequence for result in results if result.receipt}) == 3_000
