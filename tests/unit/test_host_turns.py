"""Requests begin in turns: a crowd on one subject holds up its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from minitoolstream.host.turns import Turns


def asking(turns: Turns, begun: list[str], *paths: str) -> Callable[[], None]:
    def ask() -> None:
        for path in paths:
            turns.begin(path, partial(begun.append, path))

    return ask


async def test_a_request_that_comes_alone_begins_at_once() -> None:
    begun: list[str] = []
    turns = Turns()
    for _ in range(3):
        asking(turns, begun, "/v1/subjects/quiet/messages")()
        assert begun.pop() == "/v1/subjects/quiet/messages"
        await asyncio.sleep(0)


async def test_one_of_another_subject_overtakes_a_crowd() -> None:
    begun: list[str] = []
    turns = Turns()
    asking(turns, begun, *["/v1/subjects/noisy/subscribe"] * 100, "/v1/subjects/quiet/messages")()
    assert len(begun) == 1
    await asyncio.sleep(0)  # the turn of the first that waited
    await asyncio.sleep(0)
    assert begun[1:] == ["/v1/subjects/noisy/subscribe", "/v1/subjects/quiet/messages"]


async def test_whatever_is_about_no_subject_overtakes_a_crowd_too() -> None:
    begun: list[str] = []
    turns = Turns()
    asking(
        turns, begun, *["/v1/subjects/noisy/subscribe"] * 100, "/hooks/object-created", "/healthz", "/v1/uploads/1"
    )()
    for _ in range(4):  # of four kinds, one after the other
        await asyncio.sleep(0)
    assert {"/hooks/object-created", "/healthz", "/v1/uploads/1"} <= set(begun)


async def test_requests_of_one_subject_begin_in_their_order_and_none_is_left() -> None:
    begun: list[int] = []
    turns = Turns()
    for number in range(50):
        turns.begin("/v1/subjects/orders/messages", partial(begun.append, number))
    for _ in range(50):
        await asyncio.sleep(0)
    assert begun == list(range(50))


async def test_one_that_cannot_begin_holds_up_nobody() -> None:
    begun: list[str] = []
    turns = Turns()

    def fail() -> None:
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011
        turns.begin("/v1/subjects/orders/messages", fail)
    asking(turns, begun, "/v1/subjects/orders/messages")()
    await asyncio.sleep(0)
    assert begun == ["/v1/subjects/orders/messages"]
