"""What is copied in parts: in order, the next one read meanwhile, and nothing left running."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from minitoolstream.domain.limits import MAX_PARTS
from minitoolstream.services.read_ahead import part_length, read_ahead

BODY = bytes(range(100))


async def read(first: int, last: int) -> bytes:
    return BODY[first : last + 1]


@pytest.mark.parametrize("length", [1, 7, 50, 99, 100, 1000])
async def test_pieces_come_in_order_and_are_the_whole(length: int) -> None:
    pieces = [piece async for piece in read_ahead(read, len(BODY), length)]
    assert b"".join(pieces) == BODY
    assert max(map(len, pieces)) <= length


async def test_the_next_piece_is_on_its_way_while_one_is_used_and_no_more() -> None:
    begun: list[int] = []

    async def noted(first: int, last: int) -> bytes:
        begun.append(first)
        return await read(first, last)

    async with aclosing(read_ahead(noted, len(BODY), 10)) as pieces:
        async for piece in pieces:
            await asyncio.sleep(0)
            assert begun[-1] == min(piece[0] + 10, 90)


async def test_nothing_is_read_any_more_behind_its_end() -> None:
    running: set[int] = set()

    async def slow(first: int, last: int) -> bytes:
        running.add(first)
        try:
            await asyncio.sleep(0 if first == 0 else 60)
        finally:
            running.discard(first)
        return await read(first, last)

    async with aclosing(read_ahead(slow, len(BODY), 10)) as pieces:
        assert await anext(pieces) == BODY[:10]
        await asyncio.sleep(0)
        assert running == {10}
    assert running == set()


async def test_a_piece_that_cannot_be_read_ends_it() -> None:
    async def broken(first: int, last: int) -> bytes:
        if first == 20:
            raise OSError("gone")
        return await read(first, last)

    pieces = read_ahead(broken, len(BODY), 10)
    assert [(await anext(pieces))[0], (await anext(pieces))[0]] == [0, 10]
    with pytest.raises(OSError, match="gone"):
        await anext(pieces)


def test_parts_are_longer_where_there_would_be_too_many() -> None:
    assert part_length(100, 10) == 10
    assert part_length(10 * MAX_PARTS, 10) == 10
    assert part_length(10 * MAX_PARTS + 1, 10) == 11
