"""Runs the emulator behind a gate. Started with the emulator's own Python, so it imports nothing of ours.

The emulator takes the key `test`, any account number and no key at all for its root user, and lets anyone
reset it. The gate lets through what names another key (the emulator then checks the signature), and the
generated root key, which is as good as a password because it appears in no URL.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import signal
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

_KEY = re.compile(rb"(?:Credential|AWSAccessKeyId)(?:=|%3D)([A-Za-z0-9_-]*)", re.IGNORECASE)
_OPEN_KEY = re.compile(rb"|test|\d{12}")
KEEP_ALIVE = 600
"""Seconds that an idle connection stays: longer than clients keep theirs (90 in AWS's SDK for Go). The server that the
emulator uses closes one even when a request has just come on it, handles that request, and its answer is lost."""
HEALTH = "/_ministack/health"


def allowed(method: str, path: str, query: bytes, authorization: bytes) -> bool:
    """Whether the emulator may see this request."""
    if path == HEALTH or method == "OPTIONS":
        return True
    if path.startswith("/_"):
        return False
    # Every key it names must be a real one: which of several the emulator would believe is not ours to guess.
    keys = _KEY.findall(authorization + b"\n" + query)
    return bool(keys) and not any(_OPEN_KEY.fullmatch(key) for key in keys)


async def gate(scope: Scope, receive: Receive, send: Send) -> None:
    app = importlib.import_module("ministack.app").app
    if scope["type"] == "http":
        authorization = b"\n".join(value for name, value in scope["headers"] if name == b"authorization")
        if not allowed(scope["method"], scope["path"], scope["query_string"], authorization):
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"a signed request is needed\n"})
            return
    elif scope["type"] == "websocket":
        await send({"type": "websocket.close"})
        return
    await app(scope, receive, send)


async def serve() -> None:
    config = importlib.import_module("hypercorn.config").Config()
    config.bind = [f"{os.environ['BIND_HOST']}:{os.environ['GATEWAY_PORT']}"]
    config.keep_alive_timeout = KEEP_ALIVE
    config.keep_alive_max_requests = 1_000_000  # else it closes a connection behind its thousandth
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await importlib.import_module("hypercorn.asyncio").serve(gate, config, shutdown_trigger=stopped.wait)


if __name__ == "__main__":
    asyncio.run(serve())
