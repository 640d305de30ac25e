"""A payload's way into the object store: ticket, PUT or parts, receipt; and going on where it stopped."""

from __future__ import annotations

import msgspec

from minitoolstream.api import schema
from minitoolstream.client._parts import Arrived, PartsUpload
from minitoolstream.client._resume import Remembered, ResumeSlot
from minitoolstream.client._source import FileSource, Source
from minitoolstream.client._store import (
    ALREADY_THERE,
    STORE_TIMEOUT,
    Progress,
    ProgressCallback,
    store_error,
    store_unreachable,
)
from minitoolstream.client._transport import Transport
from minitoolstream.client._upload_calls import Announcement, UploadCalls
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.upload import Receipt, State
from minitoolstream.net.http1 import HttpError

_PUBLISHED = frozenset({State.COMMITTED, State.STORED})
_GONE = frozenset({"not_found", "payload_missing", "upload_final", "upload_incomplete"})


class Upload:
    """One payload to publish by ticket."""

    def __init__(
        self,
        transport: Transport,
        subject: str,
        source: Source,
        announced: Announcement,
        *,
        concurrency: int = 4,
        progress: ProgressCallback | None = None,
        slot: ResumeSlot | None = None,
    ) -> None:
        self._transport = transport
        self._calls = UploadCalls(transport)
        self._subject = subject
        self._source = source
        self._announced = announced
        self._concurrency = concurrency
        self._progress = Progress(source.size, progress)
        self._slot = slot

    async def run(self) -> Receipt:
        """The receipt, `committed` or (behind an earlier seqno) `stored`; every other end is an error."""
        self._progress.add(0)  # hashing a large file takes a while: show that something happens
        receipt = await self._go_on() or await self._start()
        self._forget()
        if receipt.state in _PUBLISHED:
            return receipt
        reason = f": {receipt.reason}" if receipt.reason else ""
        details = {"upload_id": receipt.upload_id, "reason": receipt.reason}
        raise MtsError(f"upload_{receipt.state}", f"the upload was {receipt.state}{reason}", details)

    async def _start(self, *, again: bool = True) -> Receipt:
        sha256 = await self._source.sha256()
        ticket = await self._calls.ticket(self._subject, self._announced, self._source.size, sha256)
        if isinstance(ticket, Receipt):
            return ticket
        self._remember(ticket)
        try:
            if ticket.parts:
                return await self._in_parts(ticket.upload_id, ticket.parts)
            return await self._in_one(ticket)
        except MtsError as error:
            if error.retryable:
                raise  # the ticket is good for another try, by this call or a later one
            try:
                receipt = await self._give_up(ticket.upload_id)
            except MtsError:
                raise error from None  # nobody knows what became of it: a later call asks again
            self._forget()
            if receipt:
                return receipt
            if error.code == "forbidden" and ticket.parts is None and again:  # its only URL has expired
                self._progress.reset()
                return await self._start(again=False)
            raise

    async def _in_parts(self, upload_id: str, form: schema.Parts | None = None) -> Receipt:
        arrived: Arrived = {}
        try:
            if form is None:
                form, arrived = await self._calls.parts(upload_id)
            upload = PartsUpload(self._transport, self._source, upload_id, form, self._progress)
            return await upload.run(arrived, self._concurrency)
        except MtsError as error:
            receipt = await self._calls.receipt(upload_id) if error.code == "upload_final" else None
            if receipt is None or receipt.state is State.OPEN:  # of an open one, the ticket has expired
                raise
            return receipt

    async def _in_one(self, ticket: schema.Ticket) -> Receipt:
        backoff = self._transport.retry.start()
        while True:
            attempt = self._progress.attempt()
            try:
                response = await self._transport.http.request(
                    ticket.method,
                    ticket.url or "",
                    headers=ticket.headers,
                    body=attempt.watch(self._source.chunks(0, self._source.size)),
                    content_length=self._source.size,
                    timeout=STORE_TIMEOUT,
                )
            except HttpError as problem:
                receipt = await self._landed(ticket.upload_id) if problem.sent else None
                if receipt:
                    return receipt
                attempt.undo()
                await backoff.pause(store_unreachable(problem))
                continue
            if response.status < 300 or response.status == ALREADY_THERE:
                receipt = await self._calls.receipt(ticket.upload_id)
                return await self._calls.complete(ticket.upload_id) if receipt.state is State.OPEN else receipt
            attempt.undo()
            error = store_error(response.status, response.body)
            if not error.retryable:
                self._source.check_unchanged()
                raise error
            await backoff.pause(error)

    async def _landed(self, upload_id: str) -> Receipt | None:
        """The receipt when the object is there; None when the store has nothing."""
        receipt = await self._calls.receipt(upload_id)
        if receipt.state is not State.OPEN:
            return receipt
        try:
            return await self._calls.complete(upload_id)
        except MtsError as error:
            if error.code != "upload_incomplete":
                raise
            return None

    # -- going on where an earlier call stopped

    async def _go_on(self) -> Receipt | None:
        """Finish the upload that an earlier call began; None when there is none to finish."""
        remembered = self._slot.load() if self._slot else None
        if remembered is None:
            return None
        receipt = None
        same = remembered.facts == self._facts()
        if same:
            try:
                receipt = await self._finish(remembered)
            except MtsError as error:
                if error.code not in _GONE:
                    raise
        if receipt and receipt.state in _PUBLISHED:
            return receipt
        receipt = await self._give_up(remembered.upload_id)
        self._forget()
        self._progress.reset()
        return receipt if same else None

    async def _finish(self, remembered: Remembered) -> Receipt | None:
        receipt = await self._calls.receipt(remembered.upload_id)
        if receipt.state is not State.OPEN:
            return receipt
        if not remembered.multipart:
            return await self._landed(remembered.upload_id)
        return await self._in_parts(remembered.upload_id)

    def _remember(self, ticket: schema.Ticket) -> None:
        if self._slot:
            self._slot.save(Remembered(ticket.upload_id, ticket.parts is not None, self._facts()))

    def _forget(self) -> None:
        if self._slot:
            self._slot.forget()

    def _facts(self) -> str:
        """What must be the same for an upload to be gone on with."""
        mtime = self._source.mtime_ns if isinstance(self._source, FileSource) else 0
        return msgspec.json.encode([self._source.size, mtime, self._announced]).decode()

    async def _give_up(self, upload_id: str) -> Receipt | None:
        """Abort it, so that what arrives late is no second message. The receipt if it was committed before."""
        try:
            await self._calls.abort(upload_id)
        except MtsError as error:
            if error.code == "upload_final":
                receipt = await self._calls.receipt(upload_id)
                return receipt if receipt.state in _PUBLISHED else None
            if error.code != "not_found":
                raise
        return None
