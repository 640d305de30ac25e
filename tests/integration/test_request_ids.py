"""A request's id leads to what Tarantool's log says of it, also where many requests share one call."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from minitoolstream.adapters.tarantool.store import TarantoolMetadata
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.upload import Receipt, StoredObject
from minitoolstream.ports import NoMetrics
from minitoolstream.request_id import request_id
from minitoolstream.services.commit_uploads import Committer
from tests.clocked_tarantool import settings_for
from tests.live import eventually
from tests.servers import TarantoolServer


async def serve(name: str, committer: Committer, upload_id: object) -> Receipt | None:
    """As a request of this id would commit; no key of an upload is a number, so Tarantool fails on one."""
    request_id.set(name)
    return await committer.commit(StoredObject(upload_id, "m/x/1/y", 1))  # type: ignore[arg-type]


async def test_a_call_that_failed_stands_in_tarantools_log_under_a_request_that_was_in_it(
    tarantool_server: TarantoolServer, tmp_path: Path
) -> None:
    store = TarantoolMetadata(settings_for(tarantool_server, tmp_path), NoMetrics())
    committer = Committer(store, NoMetrics())
    began = asyncio.create_task(serve("began-the-calls", committer, "unknown"))
    await asyncio.sleep(0)
    shares = asyncio.create_task(serve("shares-the-second", committer, 7))

    assert await began is None
    with pytest.raises(MtsError, match="its log says more under this request id"):
        await shares

    await store.close()
    text = eventually(lambda: found if "upload_commit failed" in (found := tarantool_server.log.read_text()) else "")
    named = re.findall(r"upload_commit failed request_id=(\S+):", text)
    assert "shares-the-second" in named
    assert "began-the-calls" not in named
