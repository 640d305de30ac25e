"""Operations that callers name: a repeated one is done once and answered as the first time."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from minitoolstream.domain.catalog_tables import OPERATIONS
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pin import check_operation
from minitoolstream.ports.catalog import Put, Row
from minitoolstream.services.core import Core


class Operation:
    """One call with its id, or without: then nothing is remembered."""

    def __init__(self, core: Core, owner: str, operation_id: str | None, *request: Any) -> None:
        self._core = core
        self._owner = owner
        self._id = check_operation(operation_id)
        self._digest = hashlib.sha256(json.dumps(request, default=_plain, sort_keys=True).encode()).hexdigest()

    async def earlier(self) -> dict[str, Any] | None:
        """The answer of the first call; None when there was none, or when it did not come to its end. Asked before the
        request is checked: what was right then is answered also when it would not be any more."""
        return self._answer(await self._core.catalog.get(OPERATIONS, (self._key,))) if self._id is not None else None

    async def begin(self) -> dict[str, Any] | None:
        """From now on the id is this request's; the same answer, if somebody was faster."""
        if self._id is None:
            return None
        row = {"op_id": self._key, "owner": self._owner, "digest": self._digest, "created_at": self._core.wall()}
        return self._answer(await self._core.catalog.put_new(OPERATIONS, row))

    def _answer(self, there: Row | None) -> dict[str, Any] | None:
        """Another request under the same id is an error."""
        if there is None:
            return None
        if there["digest"] != self._digest:
            raise MtsError("idempotency_conflict", "another request was made with this operation_id")
        return json.loads(there["answer"]) if there["answer"] else None

    def name(self) -> str | None:
        """One for this request under this id, the same whoever makes it again; None without an id."""
        return hashlib.sha256(f"{self._key} {self._digest}".encode()).hexdigest()[:32] if self._id else None

    async def done(self, **answer: Any) -> None:
        if self._id is not None:
            row = {"op_id": self._key, "owner": self._owner, "digest": self._digest, "answer": json.dumps(answer)}
            await self._core.catalog.write([Put(OPERATIONS, row)])

    @property
    def _key(self) -> str:
        return f"{self._owner}/{self._id}"


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else str(value)
