"""Runs a script that is killed (`kill -9`) around one of its first calls of a host: before it, during it, or behind it.

So how far it comes does not depend on how fast the machine is: `python -m tests.faults.dying script seed`.
"""

from __future__ import annotations

import asyncio
import os
import random
import runpy
import signal
import sys
from typing import Any

from minitoolstream.client._transport import Transport

MOST_CALLS = 18
_send = Transport.send


def main() -> None:
    script, seed = sys.argv[1:]
    chance = random.Random(int(seed))
    left, moment = chance.randint(6, MOST_CALLS), chance.choice(["before", "during", "behind"])

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def send(transport: Transport, *given: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left > 0:
            return await _send(transport, *given, **named)
        if left == 0 and moment != "before":
            if moment == "during":
                asyncio.get_running_loop().call_later(chance.random() / 50, die)
            await _send(transport, *given, **named)
        die()
        return None

    Transport.send = send  # type: ignore[method-assign,assignment]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
