"""A large payload in parts: several at a time, each checked by the store, none sent that is there already."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass

from minitoolstream.api import schema
from minitoolstream.client._source import Source
from minitoolstream.client._store import STORE_TIMEOUT, URL_REFUSED, Progress, store_error, store_unreachable
from minitoolstream.client._transport import Transport
from minitoolstream.client._upload_calls import UploadCalls
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.upload import Receipt
from minitoolstream.net.http1 import HttpError

_TRIES = 3
"""How often missing parts are looked for again, a refused URL signed again, a damaged part sent again."""

Arrived = Mapping[int, schema.StoredPartAnswer]


@dataclass(frozen=True, slots=True)
class _Part:
    number: int
    first: int
    size: int
    md5: str


_Queue = asyncio.Queue[tuple[_Part, schema.PartUrl] | None]


class PartsUpload:
    """One multipart upload, from whatever state it is in to its receipt."""

    def __init__(
        self, transport: Transport, source: Source, upload_id: str, form: schema.Parts, progress: Progress
    ) -> None:
        self._transport = transport
        self._calls = UploadCalls(transport)
        self._source = source
        self._id = upload_id
        self._part_size = form.part_size
        self._count = form.count
        self._progress = progress

    async def run(self, arrived: Arrived, concurrency: int) -> Receipt:
        """Send what is missing, then complete; what `complete` still misses is sent again."""
        tries = 0
        while True:
            await self._send_missing(arrived, concurrency)
            self._source.check_unchanged()
            try:
                return await self._calls.complete(self._id)
            except MtsError as error:
                tries += 1
                if error.code != "upload_incomplete" or tries == _TRIES:
                    raise
            self._progress.reset()
            _, arrived = await self._calls.parts(self._id)

    async def _send_missing(self, arrived: Arrived, concurrency: int) -> None:
        queue: _Queue = asyncio.Queue(concurrency)
        await _together(self._feed(queue, arrived, concurrency), *(self._work(queue) for _ in range(concurrency)))

    async def _feed(self, queue: _Queue, arrived: Arrived, workers: int) -> None:
        """Hash the parts in order, ahead of the workers; the missing ones are signed a few at a time."""
        missing: list[_Part] = []
        for number in range(1, self._count + 1):
            part = await self._hashed(number)
            stored = arrived.get(number)
            if stored and stored.size == part.size and stored.etag.strip('"') == part.md5:
                self._progress.add(part.size)
            else:
                missing.append(part)
            if len(missing) == workers or (missing and number == self._count):
                for signed in await self._signed(missing):
                    await queue.put(signed)
                missing = []
        for _ in range(workers):
            await queue.put(None)

    async def _work(self, queue: _Queue) -> None:
        while (signed := await queue.get()) is not None:
            await self._put(*signed)

    async def _put(self, part: _Part, url: schema.PartUrl) -> None:
        backoff = self._transport.retry.start()
        refused = 0
        while True:
            attempt = self._progress.attempt()
            try:
                response = await self._transport.http.request(
                    "PUT",
                    url.url,
                    headers=url.headers,
                    body=attempt.watch(self._source.chunks(part.first, part.size)),
                    content_length=part.size,
                    timeout=STORE_TIMEOUT,
                )
            except HttpError as problem:  # a part may be sent twice: the last one counts, both are the same
                attempt.undo()
                await backoff.pause(store_unreachable(problem))
                continue
            if response.status < 300:
                return
            attempt.undo()
            error = store_error(response.status, response.body)
            if error.retryable:
                await backoff.pause(error)
                continue
            # An expired URL, or bytes that changed on their way or in the file: hash and sign again.
            refused += 1
            if refused == _TRIES or not (response.status == URL_REFUSED or error.code == "checksum_mismatch"):
                raise error
            self._source.check_unchanged()
            [(part, url)] = await self._signed([await self._hashed(part.number)])

    async def _hashed(self, number: int) -> _Part:
        first = (number - 1) * self._part_size
        size = min(self._part_size, self._source.size - first)
        return _Part(number, first, size, await self._source.md5(first, size))

    async def _signed(self, parts: Sequence[_Part]) -> list[tuple[_Part, schema.PartUrl]]:
        urls = await self._calls.sign_parts(self._id, [(part.number, part.md5) for part in parts])
        by_number = {url.number: url for url in urls}
        return [(part, by_number[part.number]) for part in parts]


async def _together(*tasks: Coroutine[None, None, None]) -> None:
    """Run all; the first failure cancels the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(task)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
