"""Deletion for good, and the copies of what was deleted. On SQLite and fakes."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from minitoolstream.domain.catalog_tables import REFS
from minitoolstream.domain.cid import Cid, cid_of
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.pack import InlineMessage
from minitoolstream.domain.pin import Wish
from minitoolstream.domain.subject_settings import Copies, Subject, SubjectSettings, Used
from minitoolstream.ports import PayloadStore
from minitoolstream.services import follow_subjects as followed
from minitoolstream.services.check_catalog import check_catalog
from minitoolstream.services.claims import place_of
from minitoolstream.services.core import Core
from minitoolstream.services.delete_messages import delete_message, finish_deletions, purge_subject
from minitoolstream.services.follow_subjects import note_subject
from minitoolstream.services.forget_deleted import NAME, forget_deleted
from minitoolstream.services.hold_content import Reference, hold_content
from minitoolstream.services.manage_pins import create_pin
from minitoolstream.services.publish_batch import publish_batch
from minitoolstream.services.tend_catalog import tend_catalog
from tests.catalog_kit import ALICE, CatalogKit, MemoryPeers
from tests.unit.catalog.test_follow import SETTINGS

SUBJECTS = ("s", "s.dlq")


class Asking:
    """Every subject asks for two copies."""

    async def get(self, subject: str) -> Subject:
        settings = SubjectSettings(*SETTINGS, copies=Copies(2))
        return Subject(subject, 1, 1, 0, 0, 0, 0, settings, Used(0, 0), [])


@pytest.fixture
async def kit(kit: CatalogKit) -> CatalogKit:
    kit.now = datetime.fromtimestamp(kit.kit.metadata.clock.seconds(), UTC)
    for subject in SUBJECTS:
        await note_subject(kit.core, subject, {"rf": 2})
    return kit


async def published(kit: CatalogKit, *bodies: bytes) -> list[int]:
    results = await publish_batch(kit.core, [InlineMessage("s", body, "text/plain") for body in bodies])
    return [int(result.receipt.sequence or 0) for result in results if result.receipt]


def dead_letter(kit: CatalogKit, sequence: int) -> int:
    """A row of another subject at the same bytes."""
    order, uploads = kit.kit.metadata.order, kit.kit.metadata.uploads
    row = order.get(sequence)
    assert row is not None
    uploads.objects[row.object_name] = uploads.objects.get(row.object_name, 1) + 1
    more: dict[str, Any] = {"byte_from": row.byte_from, "keep_sizes": True}
    return order.append("s.dlq", row.object_name, [row.size], headers={}, content_type="text/plain", **more)


async def tend(kit: CatalogKit, seconds: float = 5) -> int:
    """How many messages let go."""
    kit.advance(seconds)
    kit.core.subjects = Asking()  # type: ignore[assignment]
    return (await tend_catalog(kit.core))["let_go"]


def holders(kit: CatalogKit, body: bytes) -> set[str]:
    return {peer for peer, store in kit.peers.stores.items() if f"cid/{cid_of(body)}" in store.objects}


async def test_a_message_deleted_from_the_middle_leaves_no_copy(kit: CatalogKit) -> None:
    first, middle, last = await published(kit, b"first", b"middle", b"last")
    await tend(kit)
    assert len(holders(kit, b"middle")) == 2
    await delete_message(kit.core, middle, "operator", "asked for")
    assert await tend(kit) == 1
    assert holders(kit, b"middle") == set()
    assert [len(holders(kit, body)) for body in (b"first", b"last")] == [2, 2]
    assert first < middle < last
    assert await tend(kit) == 0
    assert (await check_catalog(kit.core, deep=True)).found == []


async def test_a_deletion_by_a_process_without_peers_reaches_copies_of_all_its_subjects(kit: CatalogKit) -> None:
    keep, gone = await published(kit, b"kept", b"a dead letter, too")
    dead_letter(kit, keep)
    letter = dead_letter(kit, gone)
    await tend(kit)
    elsewhere = copy.copy(kit.core)
    elsewhere.peers = MemoryPeers()
    deletion = await delete_message(elsewhere, gone, "operator", "asked for")
    assert (deletion.done, deletion.sequences) == (True, (gone, letter))
    assert await tend(kit) == 2
    assert holders(kit, b"a dead letter, too") == set()
    assert len(holders(kit, b"kept")) == 2


async def test_a_deletion_that_is_not_recorded_yet_is_not_passed_by_a_later_one(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, one, two = await published(kit, b"first", b"one", b"two")
    await tend(kit)
    store: PayloadStore = kit.core.payloads

    async def away(*_given: Any, **_more: Any) -> None:
        raise unavailable("the store is away")

    monkeypatch.setattr(store, "put_new", away)
    with pytest.raises(MtsError, match="away"):
        await delete_message(kit.core, one, "operator", "asked for")
    monkeypatch.undo()
    kit.kit.metadata.clock.advance(1)
    await delete_message(kit.core, two, "operator", "asked for")
    assert await tend(kit, 3600) == 2
    assert await place_of(kit.core, NAME) is None
    await finish_deletions(kit.core)
    assert await tend(kit, 3600) == 0
    assert await place_of(kit.core, NAME) is not None


async def test_a_message_noted_while_it_is_deleted_lets_go_a_moment_later(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, two = await published(kit, b"one", b"two")
    hold = hold_content

    async def hold_slowly(core: Core, cid: Cid, reference: Reference) -> None:
        if cid == cid_of(b"two"):
            await delete_message(kit.core, two, "operator", "asked for")
            await forget_deleted(kit.core)
        await hold(core, cid, reference)

    monkeypatch.setattr(followed, "hold_content", hold_slowly)
    await tend(kit)
    monkeypatch.undo()
    await tend(kit)
    assert await kit.store.page(REFS, (cid_of(b"two").binary,), 9) == []
    assert (holders(kit, b"two"), len(holders(kit, b"one"))) == (set(), 2)


async def test_a_purge_leaves_the_copies_of_a_pin_that_an_owner_has(kit: CatalogKit) -> None:
    await published(kit, b"one", b"an owner's, too")
    await tend(kit)
    await create_pin(kit.core, ALICE, cid_of(b"an owner's, too"), Wish(rf=1))
    await purge_subject(kit.core, "s", "operator", "the customer left")
    assert await tend(kit) == 2
    assert holders(kit, b"one") == set()
    assert len(holders(kit, b"an owner's, too")) == 1
