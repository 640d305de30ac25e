"""What a restore finds when it compares rows with the bucket, on fakes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from minitoolstream.domain.limits import MAX_SEQUENCE
from minitoolstream.domain.subject import new_id, pack_name
from minitoolstream.ports import RestoreStore
from minitoolstream.services import compare_bucket as comparing
from minitoolstream.services.compare_bucket import compare_bucket
from tests.core_kit import CoreKit, core_kit


class Restores:
    """The part of `ports.RestoreStore` that a comparison needs."""

    def __init__(self, *known: str) -> None:
        self._known = known

    async def known_objects(self, names: Sequence[str]) -> list[bool]:
        return [name in self._known for name in names]


def payload(made_at_ms: int) -> str:
    return f"m/orders/1/{new_id(made_at_ms)}"


def pack(made_at_ms: int) -> str:
    return pack_name(new_id(made_at_ms))


def kit_of(objects: Sequence[str], rows: Sequence[tuple[int, str, bool]], *known: str) -> CoreKit:
    kit = core_kit()
    for name in objects:
        kit.payloads.client_put(name, b"x")

    async def objects_after(sequence: int, limit: int) -> list[tuple[int, str, bool]]:
        return [row for row in rows if row[0] > sequence][:limit]

    cast(Any, kit.journal).objects_after = objects_after
    kit.core.restores = cast(RestoreStore, Restores(*known))
    return kit


async def test_objects_that_nothing_knows_come_in_the_order_in_which_they_were_made() -> None:
    first, second, third, known, needed = payload(1000), pack(2000), payload(3000), payload(4000), payload(5000)
    foreign = ["m/orders/1/not-an-id", "elsewhere/file", "_mts/packs/notes.txt"]
    kit = kit_of([third, needed, first, known, second, *foreign], [(7, needed, False)], known)
    found = await compare_bucket(kit.core)
    assert (found.orphans, found.missing) == ([first, second, third], [])


async def test_rows_without_payload_come_in_the_order_of_their_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "_AT_ONCE", 2)
    there, gone, shared = pack(1000), payload(2000), pack(3000)
    rows = [(9, shared, False), (10, there, False), (2**53 + 1, gone, False), (MAX_SEQUENCE, shared, False)]
    found = await compare_bucket(kit_of([there], rows).core)
    assert (found.orphans, found.missing) == ([], [(9, shared), (2**53 + 1, gone), (MAX_SEQUENCE, shared)])


async def test_what_was_published_without_a_ticket_is_not_looked_for() -> None:
    found = await compare_bucket(kit_of([], [(1, "somewhere/else", True)]).core)
    assert (found.orphans, found.missing) == ([], [])


async def test_payloads_that_were_imported_are_found_by_their_own_names() -> None:
    rows = [(5, "orders_5", False), (6, "orders_6", False)]
    found = await compare_bucket(kit_of(["orders_5"], rows).core)
    assert (found.orphans, found.missing) == ([], [(6, "orders_6")])
