"""What the machines of this folder share: a real Tarantool whose clock they move, and its functions by name."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from minitoolstream.adapters.tarantool.connection import Connection
from minitoolstream.domain.errors import MtsError
from minitoolstream.ports import NoMetrics
from tests.clocked_tarantool import start_clocked_tarantool

Opening = Callable[[Any], Iterator[None]]
"""The first steps of a machine, which are the same in every example; it is looked at at each `yield`."""
MINUTE = 60
FOR_EVER = 10**12
LAST_SEQUENCE = 10**14 - 200  # soon above what Lua has as numbers (rule 5)


class World:
    """`now` counts the minutes that were let pass since the server started: real time is nothing to them."""

    def __init__(self, folder: Path, runner: asyncio.Runner) -> None:
        self.server = start_clocked_tarantool(folder, last_sequence=LAST_SEQUENCE)
        self.now = 0
        self.seen: Counter[str] = Counter()
        self._runner = runner
        self._numbers = itertools.count(1)
        self._connection = runner.run(self._connect())

    async def _connect(self) -> Connection:
        """Connections belong to the loop they are made on."""
        return Connection(self.server.address, self.server.user, self.server.password, 10.0, NoMetrics())

    def call(self, name: str, *arguments: Any) -> Any:
        return self._runner.run(self._connection.call(name, *arguments))

    def refusal(self, name: str, *arguments: Any) -> str:
        """The code that a call is refused with."""
        try:
            answer = self.call(name, *arguments)
        except MtsError as error:
            self.seen[error.code] += 1
            return error.code
        raise AssertionError(f"{name}{arguments} was not refused: {answer}")

    def new_subject(self) -> str:
        return f"model-{next(self._numbers)}"

    def pass_time(self, minutes: int) -> None:
        """And a second more: the schedule looks at sessions once a second."""
        self.call("clock_advance", minutes * MINUTE + 1)
        self.now += minutes

    def restart(self) -> None:
        """`kill -9`. The new process has the real time: its clock was set back by all that was let pass."""
        self._runner.run(self._connection.close())
        self.server.kill()
        self.server.start()
        self._connection = self._runner.run(self._connect())
        self.now = 0

    def publish(self, subject: str, sizes: Sequence[int], **group: Any) -> list[list[int]]:
        """A pack of one group; its runs as [first index, count, sequence, partition, offset]."""
        name = f"_mts/packs/{next(self._numbers):08x}-0000-7000-8000-000000000000"
        pack = {"subject": subject, "headers": {}, "byte_from": 9, "sizes": list(sizes), **group}
        (answer,) = self.call("publish_batch", {"object_name": name, "groups": [pack]}, FOR_EVER)
        assert not answer["others"]
        runs: list[list[int]] = answer["runs"]
        return runs

    def close(self) -> None:
        self._runner.run(self._connection.close())
        self.server.stop()


def open_world(folder: Path) -> Iterator[World]:
    with asyncio.Runner() as runner:
        world = World(folder, runner)
        yield world
        world.close()


def follow(machine: type[RuleBasedStateMachine], openings: Sequence[Opening], world: World) -> None:
    """Let a machine run as often as the profile says, in equal parts with each opening: what chance brings seldom, and
    may not bring at all, begins some of the examples."""
    for opening in openings:
        make: Any = lambda opening=opening: machine(world, opening)  # type: ignore[call-arg]  # noqa: E731
        run_state_machine_as_test(
            make,
            settings=settings(
                max_examples=math.ceil(2 * settings().max_examples / len(openings)),
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
