"""Payloads of the first server on their way into our bucket."""

from __future__ import annotations

import pytest

from minitoolstream.adapters.memory.payloads import MemoryPayloads
from minitoolstream.domain.errors import MtsError
from minitoolstream.services import import_legacy, read_ahead

NAME, BODY = "films_1", bytes(range(100))


async def copied(target: MemoryPayloads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_legacy, "_PIECE", 10)
    source = MemoryPayloads()
    source.client_put(NAME, BODY)
    about = await source.about(NAME)
    assert about is not None
    await import_legacy._copy(target, source, NAME, about)


async def test_a_huge_payload_has_no_more_parts_than_a_store_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "MAX_PARTS", 4)
    target = MemoryPayloads(min_part=1)
    await copied(target, monkeypatch)
    assert target.objects[NAME].etag.endswith("-4")
    assert await target.get_range(NAME, 0, len(BODY) - 1) == BODY


async def test_parts_that_the_store_lost_are_an_error_and_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Losing(MemoryPayloads):
        async def complete_multipart(self, *_: object) -> bool:
            return False

    target = Losing(min_part=1)
    with pytest.raises(MtsError, match="run the import again"):
        await copied(target, monkeypatch)
    assert (target.multiparts, target.objects) == ({}, {})
