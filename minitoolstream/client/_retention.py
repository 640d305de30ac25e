"""How long messages stay, and the bucket's lifecycle: what an operator does with them, for asyncio and for ordinary
code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from minitoolstream.client._loop_thread import LoopThread
from minitoolstream.client._same_arguments import same_arguments
from minitoolstream.client._transport import Transport, plain
from minitoolstream.client._upload_calls import JSON
from minitoolstream.domain.lifecycle import LifecycleAnswer
from minitoolstream.domain.retention import Retention, Swept

_PATIENCE = 120.0
_T = TypeVar("_T")


class AsyncRetention:
    """What expires when, and who holds back what.

    Example: `await client.retention.configure(default_ttl=7 * 86400)`
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def status(self) -> Retention:
        """The times that hold, what important durables hold back, and how deep the trash is."""
        return await self._call("GET", "/v1/ttl", Retention)

    async def configure(
        self,
        *,
        enabled: bool | None = None,
        default_ttl: int | None = None,
        check_interval: float | None = None,
        channels: Mapping[str, int] | None = None,
    ) -> Retention:
        """Change what holds for subjects that set no `ttl` themselves, in seconds; what is not given stays. `channels`
        maps subjects to their time, and replaces those there were.

        Example: `await client.retention.configure(channels={"logs": 7 * 86400})`
        """
        given = {
            "enabled": enabled,
            "default_ttl": default_ttl,
            "check_interval": check_interval,
            "channels": None if channels is None else dict(channels),
        }
        body = msgspec.json.encode({name: value for name, value in given.items() if value is not None})
        return await self._call("PUT", "/v1/ttl", Retention, body)

    async def sweep(self) -> Swept:
        """Expire what is due now, and delete payloads whose grace is over, to the end."""
        total = Swept()
        while not total.finished and not total.clocks_differ:
            some = await self._call("POST", "/v1/sweep", Swept, b"{}")
            total.messages += some.messages
            total.extents += some.extents
            total.bytes += some.bytes
            total.objects_deleted += some.objects_deleted
            total.finished, total.clocks_differ = some.finished, some.clocks_differ
        return total

    async def lifecycle(self) -> LifecycleAnswer:
        """The bucket's rules, and whether ours are as they should be."""
        return await self._call("GET", "/v1/lifecycle", LifecycleAnswer)

    async def apply_lifecycle(self) -> LifecycleAnswer:
        """Put them in step: ours as they should be, those of others as they are."""
        return await self._call("POST", "/v1/lifecycle", LifecycleAnswer, b"{}")

    async def _call(self, method: str, path: str, answer: type[_T], body: bytes = b"") -> _T:
        headers = JSON if body else None
        response = await self._transport.send(method, path, body=body, headers=headers, timeout=_PATIENCE)
        return plain(response, answer)


class SyncRetention:
    """What expires when, and who holds back what.

    Example: `client.retention.configure(default_ttl=7 * 86400)`
    """

    def __init__(self, thread: LoopThread, retention: AsyncRetention) -> None:
        self._thread = thread
        self._retention = retention

    def status(self) -> Retention:
        """The times that hold, what important durables hold back, and how deep the trash is."""
        return self._thread.run(self._retention.status())

    @same_arguments(AsyncRetention.configure)
    def configure(self, **options: Any) -> Retention:
        """Change what holds for subjects that set no `ttl` themselves, see `AsyncRetention.configure`.

        Example: `client.retention.configure(channels={"logs": 7 * 86400})`
        """
        return self._thread.run(self._retention.configure(**options))

    def sweep(self) -> Swept:
        """Expire what is due now, and delete payloads whose grace is over, to the end."""
        return self._thread.run(self._retention.sweep())

    def lifecycle(self) -> LifecycleAnswer:
        """The bucket's rules, and whether ours are as they should be."""
        return self._thread.run(self._retention.lifecycle())

    def apply_lifecycle(self) -> LifecycleAnswer:
        """Put them in step: ours as they should be, those of others as they are."""
        return self._thread.run(self._retention.apply_lifecycle())
