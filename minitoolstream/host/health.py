"""Whether the host lives, and whether it can do its work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from minitoolstream.api.app import Request, Response, answer
from minitoolstream.domain.errors import MtsError
from minitoolstream.services.core import Core

CHECK_SECONDS = 2.0


async def healthz(_request: Request) -> Response:
    """The process answers; says nothing about what is behind it."""
    return answer({"status": "ok"})


async def readyz(request: Request) -> Response:
    """200 when a publish would work now; else 503 with the part that is down."""
    core: Core = request.core
    if core.draining.is_set():
        response = answer({"status": "stopping", "parts": {}}, 503)
    else:
        parts = await _parts(core)
        ready = all(state == "ok" for state in parts.values())
        response = answer({"status": "ok" if ready else "unavailable", "parts": parts}, 200 if ready else 503)
    if response.status == 503:
        response.headers["retry-after"] = "1"
    return response


async def _parts(core: Core) -> dict[str, str]:
    states = await asyncio.gather(_state(core.metadata.check()), _state(core.payloads.check()))
    parts = dict(zip(("tarantool", "object_store"), states, strict=True))
    if all(state == "ok" for state in states) and (problem := await _state(core.ceiling.keep())) != "ok":
        parts["sequences"] = problem
    return parts


async def problem_of(core: Core) -> str:
    """What stands against a publish now; empty when nothing does."""
    return "; ".join(f"{part}: {state}" for part, state in (await _parts(core)).items() if state != "ok")


async def _state(check: Awaitable[object]) -> str:
    try:
        await asyncio.wait_for(check, CHECK_SECONDS)
    except TimeoutError:
        return f"no answer within {CHECK_SECONDS:.0f} s"
    except MtsError as error:
        return error.message
    except Exception as error:
        # The type alone: messages of foreign errors name addresses and users.
        return f"failed with {type(error).__name__}"
    return "ok"
