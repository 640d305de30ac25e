"""The tracked pipeline: calls of daemons and operators, for asyncio and for ordinary code."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from minitoolstream.api import schema_pipeline as schema
from minitoolstream.client._loop_thread import LoopThread
from minitoolstream.client._transport import Transport
from minitoolstream.client._upload_calls import JSON
from minitoolstream.domain.tracking import check_filename

_BASE = "/api/v1/pipeline"
_T = TypeVar("_T")


class AsyncPipeline:
    """Files, their shards, and the stages these pass. `owner` names the caller, so that the server can tell it from
    others; it should be no one else's.

    Example: `await client.pipeline.claim("shard-worker", owner="worker-7", limit=10)`
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def register(self, filename: str, shards: Sequence[int]) -> bool:
        """Register a file, or add shards to it; whether one of them is new."""
        body = {"filename": filename, "shards": list(shards)}
        return (await self._post("/files/register", schema.Registered, body)).created

    async def finish_ingest(self, filename: str) -> int:
        """The file is written; how many of its shards were not marked so before."""
        done = await self._post("/stages/event-ingest/done", schema.IngestDone, {"filename": filename})
        return done.updated_rows

    async def claim(
        self, stage: str, *, owner: str | None = None, limit: int = 1, lease: int | None = None
    ) -> list[schema.QueueItem]:
        """Take tasks that wait for a stage, started in the caller's name for `lease` seconds."""
        query = {"claim": "true", "owner": owner, "limit": limit, "lease": lease}
        return (await self._get(f"/queues/{stage}", schema.Queue, query)).items

    async def queue(
        self, stage: str, *, limit: int = 100, offset: int = 0, updated_before: str | None = None
    ) -> list[schema.QueueItem]:
        """What waits for a stage, the oldest first."""
        query = {"limit": limit, "offset": offset or None, "updated_before": updated_before}
        return (await self._get(f"/queues/{stage}", schema.Queue, query)).items

    async def start(
        self, stage: str, filename: str, shard: int, *, owner: str | None = None, lease: float | None = None
    ) -> schema.StageAnswer:
        """Take one task, or keep it for longer; an error `stage_conflict` when it is another's."""
        body = {"filename": filename, "shard": shard, "owner": owner, "lease": lease}
        # Without a name, the second try would meet the first and take it for another.
        return await self._post(f"/stages/{stage}/start", schema.StageAnswer, body, repeatable=owner is not None)

    async def done(self, stage: str, filename: str, shard: int, *, owner: str | None = None) -> None:
        """Mark a started task as done; an error `lease_lost` when another has it by now."""
        await self._post(
            f"/stages/{stage}/done", schema.StageAnswer, {"filename": filename, "shard": shard, "owner": owner}
        )

    async def fail(
        self, stage: str, filename: str, shard: int, *, owner: str | None = None, error: str | None = None
    ) -> None:
        """Mark a task as failed, and say why."""
        body = {"filename": filename, "shard": shard, "owner": owner, "error": error}
        await self._post(f"/stages/{stage}/fail", schema.StageAnswer, body)

    async def retry(self, stage: str, filename: str, shard: int) -> None:
        """Put a failed task back into its queue."""
        body = {"filename": filename, "shard": shard}
        await self._post(f"/stages/{stage}/retry", schema.StageAnswer, body, repeatable=False)

    async def file(self, filename: str) -> schema.FileStatus:
        """A file's shards with all that is known of them; an error `not_found` when there is none."""
        return await self._get(f"/files/{check_filename(filename)}", schema.FileStatus, {"details": "true"})

    async def files(self, *, limit: int = 100, before: str | None = None) -> schema.Files:
        """The last files by name, those before a name."""
        return await self._get("/files", schema.Files, {"limit": limit, "before": before})

    async def summary(self) -> schema.PipelineFigures:
        """Figures by stage and by shard."""
        return await self._get("/metrics/summary", schema.PipelineFigures, {})

    async def _get(self, path: str, answer: type[_T], query: dict[str, Any]) -> _T:
        return await self._transport.call("GET", _BASE + path, answer, query=query)

    async def _post(self, path: str, answer: type[_T], body: dict[str, Any], *, repeatable: bool = True) -> _T:
        given = msgspec.json.encode({name: value for name, value in body.items() if value is not None})
        return await self._transport.call("POST", _BASE + path, answer, body=given, headers=JSON, repeatable=repeatable)


class Pipeline:
    """The same for ordinary code.

    Example: `client.pipeline.claim("shard-worker", owner="worker-7", limit=10)`
    """

    def __init__(self, thread: LoopThread, pipeline: AsyncPipeline) -> None:
        self._thread = thread
        self._pipeline = pipeline

    def register(self, filename: str, shards: Sequence[int]) -> bool:
        """Register a file, or add shards to it; whether one of them is new."""
        return self._run(self._pipeline.register(filename, shards))

    def finish_ingest(self, filename: str) -> int:
        """The file is written; how many of its shards were not marked so before."""
        return self._run(self._pipeline.finish_ingest(filename))

    def claim(
        self, stage: str, *, owner: str | None = None, limit: int = 1, lease: int | None = None
    ) -> list[schema.QueueItem]:
        """Take tasks that wait for a stage, started in the caller's name for `lease` seconds."""
        return self._run(self._pipeline.claim(stage, owner=owner, limit=limit, lease=lease))

    def queue(
        self, stage: str, *, limit: int = 100, offset: int = 0, updated_before: str | None = None
    ) -> list[schema.QueueItem]:
        """What waits for a stage, the oldest first."""
        return self._run(self._pipeline.queue(stage, limit=limit, offset=offset, updated_before=updated_before))

    def start(
        self, stage: str, filename: str, shard: int, *, owner: str | None = None, lease: float | None = None
    ) -> schema.StageAnswer:
        """Take one task, or keep it for longer; an error `stage_conflict` when it is another's."""
        return self._run(self._pipeline.start(stage, filename, shard, owner=owner, lease=lease))

    def done(self, stage: str, filename: str, shard: int, *, owner: str | None = None) -> None:
        """Mark a started task as done; an error `lease_lost` when another has it by now."""
        self._run(self._pipeline.done(stage, filename, shard, owner=owner))

    def fail(
        self, stage: str, filename: str, shard: int, *, owner: str | None = None, error: str | None = None
    ) -> None:
        """Mark a task as failed, and say why."""
        self._run(self._pipeline.fail(stage, filename, shard, owner=owner, error=error))

    def retry(self, stage: str, filename: str, shard: int) -> None:
        """Put a failed task back into its queue."""
        self._run(self._pipeline.retry(stage, filename, shard))

    def file(self, filename: str) -> schema.FileStatus:
        """A file's shards with all that is known of them; an error `not_found` when there is none."""
        return self._run(self._pipeline.file(filename))

    def files(self, *, limit: int = 100, before: str | None = None) -> schema.Files:
        """The last files by name, those before a name."""
        return self._run(self._pipeline.files(limit=limit, before=before))

    def summary(self) -> schema.PipelineFigures:
        """Figures by stage and by shard."""
        return self._run(self._pipeline.summary())

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self._thread.run(work)
