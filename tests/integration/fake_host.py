"""A host as `mts serve` runs it, with routes that need no servers: `python -m tests.integration.fake_host`."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from minitoolstream.api.app import Request, Response, Route, answer
from minitoolstream.config import load_settings
from minitoolstream.host.app import Wiring
from minitoolstream.host.functions import Functions
from minitoolstream.host.serve import serve
from minitoolstream.services.jobs import Job
from tests.unit.host_client import FakeCore, echo, no_events, no_work


async def pid(request: Request) -> Response:
    return answer({"pid": os.getpid()})


async def slow(request: Request) -> Response:
    """Takes its time, whether or not the host wants to stop."""
    await asyncio.sleep(float(request.query["seconds"]))
    return answer({"pid": os.getpid()})


async def wait(request: Request) -> Response:
    """A long poll: ends when the host stops."""
    core: Any = request.core
    try:
        await asyncio.wait_for(core.draining.wait(), float(request.query["wait"]))
    except TimeoutError:
        return answer({"ended": "by time"})
    return answer({"ended": "by the host"})


ROUTES = (
    ("publish", Route("GET", "/v1/pid", pid, "who answers")),
    ("publish", Route("GET", "/v1/slow", slow, "slowly", query={"seconds": ("number", "how long")})),
    ("publish", Route("GET", "/v1/wait", wait, "long poll", query={"wait": ("number", "how long")})),
    ("publish", Route("POST", "/v1/subjects/{subject}/messages", echo, "inline")),
)


async def open_core(settings: Any, metrics: Any) -> FakeCore:
    if os.environ.get("FAKE_HOST") == "broken":
        raise RuntimeError("cannot start")
    return FakeCore(settings, metrics)


if __name__ == "__main__":
    wiring = Wiring(open_core, (Job("reconcile", no_work, "reconcile.interval"),))
    sys.exit(serve(load_settings(), Functions(ROUTES, no_events), wiring))
