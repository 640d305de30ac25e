"""The thread that the client for ordinary code runs on."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, Iterator

import pytest

from minitoolstream.client._loop_thread import LoopThread
from minitoolstream.domain.errors import MtsError


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close(nothing)


async def nothing() -> None:
    pass


def test_a_progress_function_that_waits_for_its_client_is_told_so_instead_of_hanging(thread: LoopThread) -> None:
    async def progress() -> str:
        with pytest.raises(MtsError) as caught:
            thread.run(nothing())
        return caught.value.message

    assert "progress function" in thread.run(progress())


def test_an_iteration_given_up_and_collected_on_the_threads_own_time_holds_up_nobody(thread: LoopThread) -> None:
    async def numbers() -> AsyncGenerator[int, None]:
        yield 1
        yield 2

    given_up = [thread.iterate(numbers())]
    assert next(given_up[0]) == 1

    async def collect() -> None:
        given_up.clear()
        gc.collect()

    thread.run(collect())
    thread.run(nothing())
