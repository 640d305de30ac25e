"""The scheduled function's work, without a pause, in a process that is there to be killed. Each run that came to its
end is one line on its output."""

from __future__ import annotations

import asyncio
import sys

from minitoolstream.bootstrap import open_core
from minitoolstream.config import load_settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.services.run_sweeper import run_sweeper

SECONDS = 20.0
PAUSE = 0.1


async def main() -> None:
    core = await open_core(load_settings())
    while True:
        try:
            await core.ceiling.keep_if_possible()
            await run_sweeper(core, SECONDS)
            sys.stdout.write("swept\n")
            sys.stdout.flush()
        except MtsError as error:
            if not error.retryable:
                raise
        await asyncio.sleep(PAUSE)


if __name__ == "__main__":
    asyncio.run(main())
