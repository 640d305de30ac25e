"""Turns that hold in all workers: forked processes, in an interpreter of their own that has no threads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from minitoolstream.grpc.turns import Turns

_FORKED = """
import asyncio, os, signal
from minitoolstream.grpc.turns import Turns

turns = Turns()
told, tell = os.pipe()
worker = os.fork()

async def hold():
    async with turns.turn("orders", "d"):
        os.write(tell, b"!")
        await asyncio.sleep(60)

async def is_free(durable, seconds):
    try:
        async with asyncio.timeout(seconds), turns.turn("orders", durable):
            return True
    except TimeoutError:
        return False

if worker == 0:
    asyncio.run(hold())
os.read(told, 1)
print(asyncio.run(is_free("d", 0.2)), asyncio.run(is_free("other", 20)))
os.kill(worker, signal.SIGKILL)
os.waitpid(worker, 0)
print(asyncio.run(is_free("d", 20)))
"""


def test_a_turn_keeps_out_the_other_workers_until_it_ends_or_its_worker_dies() -> None:
    done = subprocess.run([sys.executable, "-c", _FORKED], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["False", "True", "True"], done.stderr


async def test_a_turn_that_fails_ends() -> None:
    turns = Turns()
    for _ in range(2):
        with pytest.raises(ValueError, match="of the call"):
            async with turns.turn("orders", "d"):
                raise ValueError("of the call")
