"""The pipeline's daemons on fakes: a client whose messages and tracking are in memory, and a hand that stops them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

from minitoolstream.adapters.memory.tracking import MemoryTracking
from minitoolstream.api import schema_pipeline as schema
from minitoolstream.api import show_pipeline
from minitoolstream.client import Client, Message, Page
from minitoolstream.domain import tracking
from minitoolstream.domain.tracking import Claim
from minitoolstream.pipeline.places import Folder
from minitoolstream.ports import QueuePlace

T = TypeVar("T")
BEGUN = datetime(2025, 1, 1, tzinfo=UTC)


class Killed(BaseException):
    """Nothing that runs may catch it."""


class Reaper:
    """Kills behind the nth call that has an effect outside; 0: never."""

    def __init__(self, after: int = 0) -> None:
        self.left = after
        self.calls = 0

    def effect(self, call: Callable[[], T]) -> T:
        result = call()
        self.calls += 1
        if self.left:
            self.left -= 1
            if not self.left:
                raise Killed
        return result


@dataclass
class FakePipeline:
    """The calls of `client.pipeline`, on the tracking in memory."""

    store: MemoryTracking
    reaper: Reaper
    lease: float = 60.0

    def register(self, filename: str, shards: Sequence[int]) -> bool:
        return self._effect(self.store.register(filename, shards)) > 0

    def finish_ingest(self, filename: str) -> int:
        return self._effect(self.store.finish_ingest(filename))

    def claim(self, stage: str, *, owner: str, limit: int, lease: int) -> list[schema.QueueItem]:
        taken = self._effect(self.store.claim(stage, QueuePlace(limit), Claim(owner, lease)))
        return show_pipeline.queue(stage, taken, claimed=True).items

    def start(self, stage: str, filename: str, shard: int, *, owner: str, lease: float) -> None:
        asyncio.run(self.store.change(filename, shard, tracking.start(stage, Claim(owner, lease))))

    def done(self, stage: str, filename: str, shard: int, *, owner: str) -> None:
        self._effect(self.store.change(filename, shard, tracking.finish(stage, owner)))

    def fail(self, stage: str, filename: str, shard: int, *, owner: str, error: str) -> None:
        self._effect(self.store.change(filename, shard, tracking.fail(stage, owner, error)))

    def retry(self, stage: str, filename: str, shard: int) -> None:
        self._effect(self.store.change(filename, shard, tracking.retry(stage)))

    def file(self, filename: str) -> schema.FileStatus:
        return show_pipeline.file_status(filename, asyncio.run(self.store.file(filename)), details=True)

    def summary(self) -> schema.PipelineFigures:
        return show_pipeline.figures(asyncio.run(self.store.summary()))

    def _effect(self, work: Coroutine[Any, Any, T]) -> T:
        return self.reaper.effect(lambda: asyncio.run(work))


@dataclass
class FakeClient:
    """A subject's messages as the SDK reads them."""

    pipeline: FakePipeline
    stored: list[Message] = field(default_factory=list)
    now: datetime = datetime(2030, 1, 1, tzinfo=UTC)

    def server_time(self, _subject: str) -> datetime:
        return self.now

    def publish(self, data: bytes, headers: Mapping[str, str] | None = None, *, seconds: int = 0) -> None:
        number = len(self.stored) + 1
        at = int(BEGUN.timestamp()) + seconds
        kind = "application/octet-stream"
        self.stored.append(
            Message(number, "orders", 0, number - 1, at, headers or {}, len(data), kind, f"m/{number}", data=data)
        )

    def fetch(self, _subject: str, *, start: int | datetime, limit: int) -> Page:
        found = tuple(self._from(start))
        return Page(found[:limit], 0, self.stored[-1].sequence if self.stored else 0)

    def read(self, _subject: str, *, start: int) -> Iterator[Message]:
        return self._from(start)

    def _from(self, start: int | datetime) -> Iterator[Message]:
        for message in self.stored:
            if message.create_at >= start.timestamp() if isinstance(start, datetime) else message.sequence >= start:
                yield message


class KilledFiles(Folder):
    def __init__(self, path: Path, reaper: Reaper) -> None:
        super().__init__(path)
        self._reaper = reaper

    def put_pieces(self, name: str, pieces: Iterable[bytes], content_type: str = "") -> None:
        self._reaper.effect(lambda: super(KilledFiles, self).put_pieces(name, pieces, content_type))


class PipelineKit:
    """`now` is the tracking's clock: what was held by who was killed comes back when it is moved."""

    def __init__(self, folder: Path) -> None:
        self.now = BEGUN
        self.reaper = Reaper()
        self.store = MemoryTracking(lambda: self.now)
        self.fake = FakeClient(FakePipeline(self.store, self.reaper))
        self.files = KilledFiles(folder / "files", self.reaper)
        self.rows: dict[tuple[str, int], list[tuple[str, str]]] = {}

    @property
    def client(self) -> Client:
        return cast(Client, self.fake)

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def replace(self, filename: str, shard: int, rows: Iterable[tuple[str, str]]) -> None:
        """A shard's database."""
        self.reaper.effect(lambda: self.rows.update({(filename, shard): list(rows)}))

    def close(self) -> None: ...
