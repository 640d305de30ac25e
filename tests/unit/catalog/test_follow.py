"""Subjects that ask for copies: followed, let go, read by region. On SQLite and fakes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from minitoolstream.domain.catalog_tables import PINS, PLACEMENTS, REFS, REFS_BY_SUBJECT, SUBJECTS, Table
from minitoolstream.domain.cid import cid_of
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.message import Extent, Message
from minitoolstream.domain.pin import Wish
from minitoolstream.domain.subject_settings import Autopartitioning, Copies, Quota, Subject, SubjectSettings, Used
from minitoolstream.ports import ExtentPage
from minitoolstream.ports.catalog import Delete
from minitoolstream.services import follow_subjects as followed
from minitoolstream.services import pin_message
from minitoolstream.services.check_catalog import Finding, check_catalog
from minitoolstream.services.claims import take_claim
from minitoolstream.services.copy_content import key_of
from minitoolstream.services.fetch_messages import deliver
from minitoolstream.services.follow_subjects import follow_subjects, hold_messages, note_subject
from minitoolstream.services.jobs import JOBS
from minitoolstream.services.manage_pins import create_pin, get_pin, pin_sequence
from minitoolstream.services.pin_holders import find_pin
from minitoolstream.services.pin_message import content_of
from minitoolstream.services.reconcile_copies import reconcile_copies
from minitoolstream.services.tend_catalog import tend_catalog
from tests.catalog_kit import ALICE, OPERATOR, CatalogKit
from tests.catalog_steps import DiedError, Dying

SETTINGS = (["raw"], Quota(), Autopartitioning("disabled", 1, 1, 80, 300))


class Stream:
    """Messages of one subject, whose head can go."""

    def __init__(self, kit: CatalogKit) -> None:
        self.kit = kit
        self.extents: list[Extent] = []
        self.copies: Copies | None = Copies(2)
        self.gone = False
        kit.core.subjects = self  # type: ignore[assignment]
        kit.core.metadata = self  # type: ignore[assignment]

    def publish(self, body: bytes, *, sha256: bool = True) -> Extent:
        sequence = (self.extents[-1].sequence if self.extents else 0) + 1
        name = f"m/{sequence}"
        self.kit.kit.payloads.client_put(name, body)
        digest = cid_of(body).sha256 if sha256 else None
        extent = Extent(sequence, {}, name, "s", 1, 0, sequence - 1, 1, len(body), sha256=digest)
        self.extents.append(extent)
        return extent

    async def get(self, _subject: str) -> Subject:
        if self.gone:
            raise MtsError("unknown_subject", "gone")
        settings = SubjectSettings(*SETTINGS, copies=self.copies)
        return Subject("s", 1, 1, 0, 0, 0, 0, settings, Used(0, 0), [])

    async def subjects(self, _after: str, _limit: int, _prefix: str) -> tuple[list[dict[str, str]], bool]:
        return [{"subject": "s"}], False

    async def get_message(self, sequence: int) -> Extent | None:
        return next((extent for extent in self.extents if extent.sequence == sequence), None)

    async def get_messages(self, _subject: str, start: int, limit: int) -> ExtentPage:
        found = [extent for extent in self.extents if extent.sequence >= start][:limit]
        last = self.extents[-1].sequence if self.extents else 9
        return ExtentPage(found, found[-1].sequence + 1 if found else max(start, last + 1), last, last)


@pytest.fixture
async def stream(kit: CatalogKit) -> Stream:
    await note_subject(kit.core, "s", {"rf": 2})
    return Stream(kit)


async def settle(kit: CatalogKit) -> tuple[int, int]:
    kit.advance(5)
    done = await follow_subjects(kit.core)
    await reconcile_copies(kit.core)
    return done


async def actual(kit: CatalogKit, body: bytes) -> Any:
    cid = cid_of(body)
    row = await kit.store.get(PLACEMENTS, (cid.prefix, cid.binary))
    return row and row["actual"]


async def test_messages_of_the_subject_have_copies(kit: CatalogKit, stream: Stream) -> None:
    stream.publish(b"one")
    stream.publish(b"two", sha256=False)
    assert await settle(kit) == (2, 0)
    assert await settle(kit) == (0, 0)
    for body in (b"one", b"two"):
        assert len(await actual(kit, body)) == 2


async def test_expired_messages_let_go_unless_another_holds_the_content(kit: CatalogKit, stream: Stream) -> None:
    for body in (b"same", b"other", b"same"):
        stream.publish(body)
    await settle(kit)
    del stream.extents[:2]
    assert await settle(kit) == (0, 2)
    assert len(await actual(kit, b"same")) == 2
    assert await find_pin(kit.core, cid_of(b"other")) is None
    stream.extents.clear()
    assert await settle(kit) == (0, 1)
    assert await find_pin(kit.core, cid_of(b"same")) is None
    assert not any(store.objects for store in kit.peers.stores.values())


@pytest.mark.parametrize("gone", [True, False])
async def test_a_subject_that_asks_no_more_or_is_gone_keeps_no_copies(
    kit: CatalogKit, stream: Stream, gone: bool
) -> None:
    stream.publish(b"one")
    await settle(kit)
    stream.copies, stream.gone = None, gone
    kit.advance(120)
    assert await settle(kit) == (0, 1)
    assert await find_pin(kit.core, cid_of(b"one")) is None
    assert await kit.store.get(SUBJECTS, (0, "s")) is None


@pytest.mark.parametrize("writes", range(3, 21, 3))
async def test_a_follower_that_dies_is_gone_on_with(kit: CatalogKit, stream: Stream, writes: int) -> None:
    for number in range(3):
        stream.publish(bytes([number]))
    for wait in (70, 70):
        kit.core.catalog = Dying(kit.store, writes)
        try:
            await follow_subjects(kit.core)
        except DiedError:
            kit.advance(wait)
        kit.core.catalog = kit.store
    await settle(kit)
    stream.extents.clear()
    kit.core.catalog = Dying(kit.store, writes)
    try:
        await follow_subjects(kit.core)
    except DiedError:
        kit.advance(70)
    kit.core.catalog = kit.store
    for _ in range(2):
        await settle(kit)
    assert not any(store.objects for store in kit.peers.stores.values())


@pytest.mark.parametrize("by_owner", [True, False])
async def test_bytes_that_were_moved_are_found_where_they_are_now(
    kit: CatalogKit, stream: Stream, by_owner: bool
) -> None:
    """Compaction has put the message into a pack, and the only copies are lost."""
    extent = stream.publish(b"one")
    if by_owner:
        stream.copies = None
        cid, source = await content_of(kit.core, extent.sequence)
        await create_pin(kit.core, ALICE, cid, Wish(rf=2, source=source, message=extent.sequence))
    else:
        await settle(kit)
    await reconcile_copies(kit.core)
    kit.kit.payloads.objects.clear()
    kit.kit.payloads.client_put("p/1", b"prefix..one")
    stream.extents = [Extent(1, {}, "p/1", "s", 1, 0, 0, 1, 3, byte_from=0, sizes=[3])]
    for store in kit.peers.stores.values():
        store.objects.clear()
    kit.advance(120)
    await check_catalog(kit.core, deep=True, mend=True)
    assert await settle(kit) == (0, 0)
    assert len(await actual(kit, b"one")) == 2
    assert sum(len(store.objects) for store in kit.peers.stores.values()) == 2


async def test_a_long_subject_is_followed_under_a_claim_that_lasts(
    kit: CatalogKit, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "_PAGE", 2)
    for number in range(9):
        stream.publish(bytes([number]))
    page = stream.get_messages
    taken: list[bool] = []

    async def slow(subject: str, start: int, limit: int) -> ExtentPage:
        kit.advance(40)
        taken.append(await take_claim(kit.core, "subject/s", "another"))
        return await page(subject, start, limit)

    monkeypatch.setattr(stream, "get_messages", slow)
    assert await follow_subjects(kit.core) == (9, 0)
    assert len(taken) >= 5
    assert not any(taken)


async def test_who_lost_the_claim_leaves_the_rest_to_whom_has_it(
    kit: CatalogKit, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "_PAGE", 2)
    for number in range(9):
        stream.publish(bytes([number]))
    page = stream.get_messages

    async def slow(subject: str, start: int, limit: int) -> ExtentPage:
        kit.advance(61)
        await take_claim(kit.core, "subject/s", "another")
        return await page(subject, start, limit)

    monkeypatch.setattr(stream, "get_messages", slow)
    assert await follow_subjects(kit.core) == (2, 0)


async def test_a_large_message_without_a_digest_is_not_read_for_its_id(
    kit: CatalogKit, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pin_message, "READ_UP_TO", 4)
    read = stream.publish(b"four", sha256=False)
    large = stream.publish(b"five!", sha256=False)
    told = stream.publish(b"told!")
    assert (await content_of(kit.core, read.sequence))[0] == cid_of(b"four")
    assert (await content_of(kit.core, told.sequence))[0] == cid_of(b"told!")
    with pytest.raises(MtsError, match="came without a sha256") as caught:
        await content_of(kit.core, large.sequence)
    assert caught.value.code == "bad_request"
    assert await settle(kit) == (2, 0)


async def test_digests_that_somebody_computed_are_held(kit: CatalogKit, stream: Stream) -> None:
    extent = stream.publish(b"large", sha256=False)
    digests = {extent.sequence: cid_of(b"large").sha256, 99: cid_of(b"x").sha256}
    assert await hold_messages(kit.core, "s", digests) == 1
    assert await hold_messages(kit.core, "s", digests) == 1
    kit.advance(5)
    await reconcile_copies(kit.core)
    assert len(await actual(kit, b"large")) == 2
    stream.copies = None
    assert await hold_messages(kit.core, "s", digests) == 0


async def test_more_copies_than_peers_are_refused(kit: CatalogKit) -> None:
    with pytest.raises(MtsError, match="rf"):
        await note_subject(kit.core, "s", {"rf": 4})
    assert await kit.store.get(SUBJECTS, (0, "s")) is None


async def near(kit: CatalogKit, stream: Stream, region: str) -> Message:
    (message,) = await deliver(kit.core, stream.extents[:1], inline=False, region=region)
    return message


async def test_a_reader_gets_the_copy_of_its_zone_and_the_payload_behind_it(kit: CatalogKit, stream: Stream) -> None:
    stream.publish(b"one")
    await settle(kit)
    (zone, *_) = sorted(await actual(kit, b"one"))
    found = await near(kit, stream, zone)
    assert found.url is not None
    assert found.url.startswith(f"get:cid/{cid_of(b'one')}")
    assert found.fallback_url is not None
    assert found.fallback_url.startswith("get:m/1?")
    (spare,) = {"eu", "us", "asia"} - set(await actual(kit, b"one"))
    elsewhere = await near(kit, stream, spare)
    assert (elsewhere.url or "").startswith("get:m/1?")
    assert elsewhere.fallback_url is None


async def test_a_reader_of_a_peer_that_is_down_or_of_a_catalog_that_is_away_gets_the_payload(
    kit: CatalogKit, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.publish(b"one")
    await settle(kit)
    (zone, *_) = sorted(await actual(kit, b"one"))
    kit.peers.stores[zone].down = True
    assert ((await near(kit, stream, zone)).url or "").startswith("get:m/1?")

    async def away(*_given: Any, **_more: Any) -> Any:
        raise unavailable("the engine is down")

    monkeypatch.setattr(kit.store, "page", away)
    assert ((await near(kit, stream, zone)).url or "").startswith("get:m/1?")


async def test_copies_are_made_while_the_messages_cannot_be_asked_for(
    kit: CatalogKit, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    await note_subject(kit.core, "s", {"rf": 1})
    body = b"pinned by its owner"
    kit.peers.stores["eu"].client_put(key_of(cid_of(body)), body)
    await create_pin(kit.core, ALICE, cid_of(body), Wish(rf=2))

    async def away(_subject: str) -> Subject:
        raise unavailable("away")

    monkeypatch.setattr(stream, "get", away)
    kit.advance(5)
    with pytest.raises(MtsError, match="away"):
        await tend_catalog(kit.core)
    assert (await get_pin(kit.core, ALICE, cid_of(body))).status == "pinned"


async def test_who_comes_behind_another_goes_on_where_that_one_ended(
    kit: CatalogKit, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        stream.publish(bytes([number]))
    page = kit.store.page
    done: list[tuple[int, int]] = []

    async def page_and_wait(table: Table, *given: Any, **more: Any) -> Any:
        rows = await page(table, *given, **more)
        if table is SUBJECTS and not done:
            monkeypatch.setattr(kit.store, "page", page)
            done.append(await follow_subjects(kit.core))
        return rows

    monkeypatch.setattr(kit.store, "page", page_and_wait)
    assert await follow_subjects(kit.core) == (0, 0)
    assert done == [(3, 0)]


async def test_a_subject_that_cannot_be_read_holds_up_no_other_and_no_copies(kit: CatalogKit, stream: Stream) -> None:
    await note_subject(kit.core, "a", {"rf": 2})
    stream.publish(b"one")
    get = stream.get

    async def refused(subject: str) -> Subject:
        if subject == "a":
            raise unavailable("this one cannot be read")
        return await get(subject)

    stream.get = refused  # type: ignore[method-assign,assignment]
    with pytest.raises(MtsError, match="this one cannot be read"):
        await tend_catalog(kit.core)
    kit.advance(1)
    with pytest.raises(MtsError, match="this one cannot be read"):
        await tend_catalog(kit.core)
    placed = await kit.store.get(PLACEMENTS, (cid_of(b"one").prefix, cid_of(b"one").binary))
    assert placed is not None
    assert len(placed["actual"]) == 2


async def test_a_subject_noted_again_while_its_messages_are_let_go_is_not_forgotten(
    kit: CatalogKit, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.publish(b"one")
    await follow_subjects(kit.core)
    stream.copies = None
    kit.advance(120)
    let_go = followed.let_go_of

    async def let_go_slowly(*given: Any) -> None:
        await let_go(*given)
        await note_subject(kit.core, "s", {"rf": 2})
        stream.copies = Copies(2)

    monkeypatch.setattr(followed, "let_go_of", let_go_slowly)
    await follow_subjects(kit.core)
    stream.publish(b"two")
    assert await follow_subjects(kit.core) == (2, 0)


async def test_digests_told_before_a_message_is_followed_are_let_go_with_the_subject(
    kit: CatalogKit, stream: Stream
) -> None:
    for body in (b"one", b"two"):
        stream.publish(body)
    await hold_messages(kit.core, "s", {2: cid_of(b"two").sha256})
    stream.copies = None
    kit.advance(120)
    await follow_subjects(kit.core)
    pin = await find_pin(kit.core, cid_of(b"two"))
    assert pin is not None
    assert pin.ended


async def test_a_subject_that_a_new_database_does_not_know_is_found_and_followed_again(
    kit: CatalogKit, stream: Stream
) -> None:
    stream.publish(b"one")
    await kit.store.write([Delete(SUBJECTS, (0, "s"))])
    assert await follow_subjects(kit.core) == (0, 0)
    (found,) = (await check_catalog(kit.core, mend=True)).found
    assert found == Finding("asks for copies, and is not followed", "", "s")
    assert await follow_subjects(kit.core) == (1, 0)


async def test_a_repeated_pin_of_a_message_that_is_gone_is_answered(kit: CatalogKit, stream: Stream) -> None:
    extent = stream.publish(b"one")
    made, _ = await pin_sequence(kit.core, OPERATOR, extent.sequence, Wish(), "op")
    assert made.pin.message == extent.sequence
    stream.extents.clear()
    again, created = await pin_sequence(kit.core, OPERATOR, extent.sequence, Wish(), "op")
    assert (again.pin, created) == (made.pin, True)
    with pytest.raises(MtsError, match="there is no message"):
        await pin_sequence(kit.core, OPERATOR, extent.sequence, Wish(), "another")


@pytest.mark.parametrize("cut_off", [True, False])
async def test_messages_that_were_let_go_are_held_again_when_copies_are_asked_for_again(
    kit: CatalogKit, stream: Stream, monkeypatch: pytest.MonkeyPatch, cut_off: bool
) -> None:
    monkeypatch.setattr(followed, "_PAGE", 2)
    monkeypatch.setattr(followed, "_PART", 3)
    for number in range(6):
        stream.publish(bytes([number]))
    await settle(kit)
    if cut_off:  # some are let go, and some are not
        monkeypatch.setattr(followed, "_TURN", -1)
    stream.copies = None
    assert await follow_subjects(kit.core) == (0, 2 if cut_off else 6)
    monkeypatch.setattr(followed, "_TURN", 60)
    await note_subject(kit.core, "s", {"rf": 2})
    stream.copies = Copies(2)
    await settle(kit)
    await settle(kit)
    assert [len(await actual(kit, bytes([number]))) for number in range(6)] == [2] * 6
    stream.extents.clear()
    await settle(kit)
    assert await kit.store.walk(REFS_BY_SUBJECT, None, 99) == ([], None)


async def test_nothing_is_left_of_a_subject_that_is_let_go_in_many_runs(
    kit: CatalogKit, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "_PAGE", 2)
    monkeypatch.setattr(followed, "_PART", 4)
    for number in range(9):
        stream.publish(bytes([number]))
    await settle(kit)
    monkeypatch.setattr(followed, "_TURN", -1)
    stream.copies = None
    kit.advance(120)
    gone = []
    while await kit.store.get(SUBJECTS, (0, "s")) is not None:
        gone.append((await settle(kit))[1])
    assert sum(gone) == 9
    assert max(gone) == 2
    assert await kit.store.walk(REFS_BY_SUBJECT, None, 99) == ([], None)
    assert await kit.store.walk(REFS, None, 99) == ([], None)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Copies(1), Copies(3)),
        (Copies(3), Copies(1)),
        (Copies(1, ["eu"]), Copies(1, ["us"])),
        (Copies(1, ["eu"]), Copies(3)),
    ],
)
async def test_other_copies_are_made_also_of_messages_that_were_followed_before(
    kit: CatalogKit, stream: Stream, monkeypatch: pytest.MonkeyPatch, before: Copies, after: Copies
) -> None:
    monkeypatch.setattr(pin_message, "READ_UP_TO", 4)
    told = stream.publish(b"large", sha256=False)
    stream.publish(b"one")
    stream.copies = before
    await hold_messages(kit.core, "s", {told.sequence: cid_of(b"large").sha256})
    await settle(kit)
    assert len(await actual(kit, b"one")) == before.rf
    stream.copies = after
    await settle(kit)
    await settle(kit)
    for body in (b"one", b"large"):
        assert len(await actual(kit, body)) == after.rf
        assert await actual(kit, body) == frozenset(after.zones or await actual(kit, body))
    assert await follow_subjects(kit.core) == (0, 0)


@pytest.mark.parametrize("writes", range(2, 8))
async def test_a_follower_that_dies_while_other_copies_are_asked_for_is_gone_on_with(
    kit: CatalogKit, stream: Stream, writes: int
) -> None:
    stream.publish(b"one")
    await settle(kit)
    stream.copies = Copies(3)
    kit.core.catalog = Dying(kit.store, writes)
    with pytest.raises(DiedError):
        await follow_subjects(kit.core)
    kit.core.catalog = kit.store
    kit.advance(70)
    await settle(kit)
    await settle(kit)
    assert len(await actual(kit, b"one")) == 3


async def test_messages_that_never_end_keep_no_pin_from_its_copies_and_its_end(
    kit: CatalogKit, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "_TURN", 0)
    page = stream.get_messages

    async def one_more(subject: str, start: int, limit: int) -> ExtentPage:
        stream.publish(str(len(stream.extents)).encode())
        return await page(subject, start, limit)

    monkeypatch.setattr(stream, "get_messages", one_more)
    kit.peers.stores["eu"].client_put(key_of(cid_of(b"kept")), b"kept")
    await create_pin(kit.core, ALICE, cid_of(b"kept"), Wish(rf=2))
    await create_pin(kit.core, ALICE, cid_of(b"over"), Wish(expires_at=kit.now + timedelta(minutes=2)))
    kit.advance(180)
    done = await tend_catalog(kit.core)
    assert done["expired"] == 1
    assert len(await actual(kit, b"kept")) == 2


async def test_a_duty_of_the_catalog_that_hangs_holds_up_no_other(
    kit: CatalogKit, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()
    get = stream.get

    async def hang(subject: str) -> Subject:
        await go_on.wait()
        return await get(subject)

    monkeypatch.setattr(stream, "get", hang)
    kit.peers.stores["eu"].client_put(key_of(cid_of(b"kept")), b"kept")
    await create_pin(kit.core, ALICE, cid_of(b"kept"), Wish(rf=2))
    kit.advance(5)
    jobs = [job for job in JOBS if job.interval == "catalog.interval"]
    running = {job.name: asyncio.ensure_future(job.run(kit.core)) for job in jobs}
    hanging = running.pop("follow")
    async with asyncio.timeout(30):
        await asyncio.gather(*running.values())
    assert len(await actual(kit, b"kept")) == 2
    assert not hanging.done()
    go_on.set()
    await hanging


async def test_many_messages_of_one_content_are_held_and_let_go_without_a_change_in_vain(
    kit: CatalogKit, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(90):
        stream.publish(b"same")
    put_if = kit.store.put_if

    async def first_time(*given: Any) -> None:
        assert await put_if(*given) is None

    monkeypatch.setattr(kit.store, "put_if", first_time)
    assert await settle(kit) == (90, 0)
    stream.publish(b"another")
    del stream.extents[:90]
    assert await settle(kit) == (1, 90)
    assert await find_pin(kit.core, cid_of(b"same")) is None


@pytest.mark.parametrize("there", [True, False])
async def test_a_reference_without_a_pin_is_held_again_or_forgotten(
    kit: CatalogKit, stream: Stream, there: bool
) -> None:
    stream.publish(b"one")
    await settle(kit)
    cid = cid_of(b"one")
    await kit.store.write([Delete(PINS, cid.key), Delete(PLACEMENTS, cid.key)])
    if not there:
        stream.extents.clear()
    kit.advance(120)
    report = await check_catalog(kit.core, mend=True)
    assert Finding("held by a message, and not pinned", cid.text, "message/1") in report.found
    assert report.mended >= 1
    await reconcile_copies(kit.core)
    assert (await find_pin(kit.core, cid) is not None, len(await actual(kit, b"one") or ())) == (there, 2 * there)
    kit.advance(120)
    kinds = [found.kind for found in (await check_catalog(kit.core)).found]
    assert "held by a message, and not pinned" not in kinds


async def test_a_subject_that_was_forgotten_meanwhile_does_not_come_back_half(
    kit: CatalogKit, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever had its claim goes on when another has ended the work."""
    stream.publish(b"a")
    await settle(kit)
    stream.copies = None
    kit.advance(120)
    page, once = stream.get_messages, [True]

    async def slow(subject: str, start: int, limit: int) -> ExtentPage:
        found = await page(subject, start, limit)
        if once:
            once.clear()
            for _ in range(3):
                kit.advance(61)
                await follow_subjects(kit.core)
        return found

    monkeypatch.setattr(stream, "get_messages", slow)
    await follow_subjects(kit.core)
    assert await kit.store.get(SUBJECTS, (0, "s")) is None


async def test_a_message_that_goes_while_it_is_noted_is_let_go_also_when_its_page_fails(
    kit: CatalogKit, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its follower's claim has lapsed, and another has passed its place."""
    for body in (b"a", b"b", b"c"):
        stream.publish(body)
    note, held_up = followed._note, [True]

    async def late(core: Any, placed: Any, cid: Any, copies: Any) -> bool:
        if not held_up:
            return await note(core, placed, cid, copies)
        held_up.clear()
        kit.advance(61)
        del stream.extents[:2]
        await follow_subjects(kit.core)
        assert (await kit.store.walk(SUBJECTS, None, 1))[0][0]["first_sequence"] == 3
        await note(core, placed, cid, copies)
        raise unavailable("the engine went")

    monkeypatch.setattr(followed, "_note", late)
    with pytest.raises(MtsError):
        await follow_subjects(kit.core)
    for _ in range(9):
        kit.advance(600)
        await settle(kit)
    assert await find_pin(kit.core, cid_of(b"a")) is None
    assert [row["sequence"] for row in (await kit.store.walk(REFS_BY_SUBJECT, None, 9))[0]] == [3]
