"""Publishing in the specification's words."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from minitoolstream.connector._builder import Builder
from minitoolstream.connector._preparers import MessagePreparer
from minitoolstream.connector._types import Prepared, PublishResult, ResultHandler
from minitoolstream.connector._wires import Options, ingress_wire
from minitoolstream.domain.checks import check_headers
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MIB

PRESIGNED_ABOVE = 3 * MIB
_log = logging.getLogger(__name__)


class Publisher:
    """Publishes prepared messages. May be shared between threads.

    What is larger than `presigned_above` bytes goes straight into the object store. Every failure is an `MtsError`.

    Example:
        with Publisher("localhost:50051") as publisher:
            publisher.publish(ByteMessagePreparer("events.created", b"event data", {"source": "api"}))
    """

    def __init__(
        self,
        server_addr: str,
        *,
        options: Options | None = None,
        logger: logging.Logger | None = None,
        presigned_above: int = PRESIGNED_ABOVE,
    ) -> None:
        self._wire = ingress_wire(server_addr, options or Options(), presigned_above)
        self._log = logger or _log
        self._registered: list[MessagePreparer] = []
        self._results: ResultHandler | None = None

    def publish(self, preparer: MessagePreparer) -> PublishResult:
        """Published when this returns; else it raises, and the result handler is told."""
        try:
            result = self._wire.publish(_prepared(preparer))
        except MtsError as error:
            self._tell(PublishResult(error=error))
            raise
        self._tell(result)
        return result

    def publish_all(self, preparers: Iterable[MessagePreparer] | None = None) -> list[PublishResult]:
        """These, or all that were registered; a result for each, in their order. One that fails does not stop the
        others: look at `error`."""
        wanted = list(self._registered if preparers is None else preparers)
        prepared, failed = [], {}
        for index, preparer in enumerate(wanted):
            try:
                prepared.append(_prepared(preparer))
            except MtsError as error:
                failed[index] = PublishResult(error=error)
        published = iter(self._wire.publish_all(prepared))
        results = [failed[index] if index in failed else next(published) for index in range(len(wanted))]
        for result in results:
            self._tell(result)
        return results

    def register_handler(self, preparer: MessagePreparer) -> None:
        """Remember it for `publish_all()`."""
        self._registered.append(preparer)

    def set_result_handler(self, handler: ResultHandler | None) -> None:
        self._results = handler

    def _tell(self, result: PublishResult) -> None:
        if result.error is not None:
            self._log.warning("not published: %s", result.error.message)
        if self._results is None:
            return
        if result.error is None:
            self._results.on_success(result.sequence, result.object_name)
        else:
            self._results.on_error(result.error)

    def close(self) -> None:
        self._wire.close()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _prepared(preparer: MessagePreparer) -> Prepared:
    """Checked here, so that headers which cannot be sent fail alone."""
    prepared = preparer.prepare()
    check_headers(prepared.headers)
    return prepared


class PublisherBuilder(Builder):
    """Example: `PublisherBuilder("localhost:50051").with_timeout(10).with_token(token).build()`"""

    def __init__(self, server_addr: str) -> None:
        super().__init__(server_addr)
        self._presigned_above = PRESIGNED_ABOVE

    def with_presigned_above(self, size: int) -> Self:
        """Payloads of more bytes go straight into the object store."""
        self._presigned_above = size
        return self

    def build(self) -> Publisher:
        return Publisher(
            self._address, options=self._options, logger=self._logger, presigned_above=self._presigned_above
        )
