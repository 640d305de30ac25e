"""Streams of news while parts of the server come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from minitoolstream.domain.errors import MtsError
from minitoolstream.grpc.following import follow

AWAY = MtsError("unavailable", "Tarantool is away")


def scripted(*turns: list[int | MtsError]) -> Callable[[], AsyncGenerator[int, None]]:
    """Each time it is begun, the next of these."""
    left = list(turns)

    async def begin() -> AsyncGenerator[int, None]:
        for one in left.pop(0):
            if isinstance(one, MtsError):
                raise one
            yield one

    return begin


async def told(begin: Callable[[], AsyncGenerator[int, None]], until: int = 10**6) -> tuple[list[int], str]:
    """What came up to a number, and how it ended."""
    core: Any = SimpleNamespace(draining=asyncio.Event())
    came: list[int] = []
    try:
        async for one in follow(core, begin):
            came.append(one)
            if one == until:
                core.draining.set()
    except MtsError as error:
        return came, error.message
    raise AssertionError("it ended without a reason")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitoolstream.grpc.following._LOOK_AGAIN", 0.001)


async def test_a_part_that_is_started_again_ends_no_stream() -> None:
    begin = scripted([1, AWAY], [AWAY], [AWAY], [2], [3])
    assert await told(begin, until=3) == ([1, 2, 3], "the server stops: subscribe again")


async def test_a_part_that_stays_away_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitoolstream.grpc.following._RESTART", 0.01)
    turns: list[list[int | MtsError]] = [[AWAY]] * 1000
    assert await told(scripted([1], *turns)) == ([1], AWAY.message)


async def test_what_does_not_get_better_ends_a_stream_at_once() -> None:
    gone = MtsError("unknown_durable", "there is no such durable")
    assert await told(scripted([1, gone], [2])) == ([1], gone.message)
