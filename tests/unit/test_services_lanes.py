"""What a host knows of lanes: learnt from answers, asked for behind the publishers' backs, never in their way."""

from __future__ import annotations

import asyncio

import pytest

from minitoolstream.domain.errors import unavailable
from minitoolstream.domain.lanes import HASHES, Lanes
from minitoolstream.services.lane_cache import LaneCache

HALVES = Lanes((0, HASHES // 2), (1, 2))


class Asked:
    """A subject store that is asked for lanes."""

    def __init__(self, lanes: Lanes | None) -> None:
        self.lanes = lanes
        self.calls = 0
        self.down = False

    async def __call__(self, _subject: str) -> Lanes | None:
        self.calls += 1
        if self.down:
            raise unavailable("Tarantool does not answer")
        return self.lanes


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def learnt(lanes: Lanes | None = HALVES) -> tuple[LaneCache, Asked, Clock]:
    asked, clock = Asked(lanes), Clock()
    cache = LaneCache(asked, clock)
    cache.learn("s", {1})
    await settle()
    return cache, asked, clock


async def test_a_subject_whose_answers_show_partition_0_is_never_asked_about() -> None:
    asked = Asked(HALVES)
    cache = LaneCache(asked)
    for _ in range(10):
        assert cache.lanes("s") is None
        cache.learn("s", {0})
        await settle()
    assert asked.calls == 0


async def test_an_answer_that_shows_another_partition_makes_it_ask() -> None:
    cache, asked, _ = await learnt()
    assert cache.lanes("s") == HALVES
    assert asked.calls == 1
    cache.learn("s", {1, 2})
    await settle()
    assert asked.calls == 1


async def test_a_split_is_seen_by_the_first_answer_from_a_child() -> None:
    cache, asked, _ = await learnt()
    asked.lanes = Lanes((0, HASHES // 4, HASHES // 2), (3, 4, 2))
    cache.learn("s", {2, 3})
    await settle()
    assert cache.lanes("s") == asked.lanes


async def test_lanes_are_asked_for_again_after_some_seconds_and_used_meanwhile() -> None:
    cache, asked, clock = await learnt()
    clock.now += 2.9
    cache.lanes("s")
    await settle()
    assert asked.calls == 1
    clock.now += 0.2
    asked.lanes = Lanes((0,), (3,))
    assert cache.lanes("s") == HALVES
    await settle()
    assert asked.calls == 2
    assert cache.lanes("s") is None


async def test_only_one_asks_at_a_time() -> None:
    cache, asked, clock = await learnt()
    clock.now += 10
    for _ in range(5):
        cache.lanes("s")
    await settle()
    assert asked.calls == 2


async def test_a_subject_that_is_gone_has_no_lanes() -> None:
    cache, asked, clock = await learnt()
    clock.now += 10
    asked.lanes = None
    cache.lanes("s")
    await settle()
    assert cache.lanes("s") is None


async def test_when_nobody_answers_what_is_known_stays_in_use() -> None:
    cache, asked, clock = await learnt()
    asked.down = True
    clock.now += 10
    assert cache.lanes("s") == HALVES
    await settle()
    assert cache.lanes("s") == HALVES
    await settle()
    assert asked.calls == 3


async def test_the_subjects_used_least_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitoolstream.services.lane_cache._SUBJECTS", 2)
    cache = LaneCache(Asked(HALVES))
    for subject in ("a", "b"):
        cache.learn(subject, {1})
        await settle()
    assert cache.lanes("a") == HALVES
    cache.learn("c", {1})
    await settle()
    assert [cache.lanes(subject) for subject in "abc"] == [HALVES, None, HALVES]


async def test_closing_ends_what_is_being_asked() -> None:
    never, ended = asyncio.Event(), []

    async def ask(subject: str) -> Lanes | None:
        try:
            await never.wait()
        finally:
            ended.append(subject)
        return None

    cache = LaneCache(ask)
    cache.learn("s", {1})
    await settle()
    await asyncio.wait_for(cache.close(), 5)
    assert ended == ["s"]
