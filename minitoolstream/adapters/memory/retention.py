"""Expiry in memory, for tests of services. The contract tests hold it against real Tarantool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minitoolstream.adapters.memory.metadata import MemoryMetadata
from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.limits import MAX_TTL_SECONDS
from minitoolstream.domain.message import Extent
from minitoolstream.domain.retention import MAX_CLOCK_DRIFT_SECONDS, Hold, Retention, SweepStep
from minitoolstream.domain.subject import DEAD_LETTERS

PER_TRANSACTION = 500


class MemoryRetention:
    """Fulfils `ports.RetentionStore`. Subjects have no settings and durables here: a test puts times of their own into
    `ttls`, and the sequence up to which a subject's messages may go into `acked`."""

    def __init__(self, metadata: MemoryMetadata) -> None:
        self._metadata = metadata
        self.config: dict[str, Any] = {
            "enabled": False,
            "default_ttl": 86400,
            "check_interval": 60,
            "channels": {},
        }
        self.ttls: dict[str, int] = {}
        self.acked: dict[str, int] = {}
        self._by_host: bool | None = None
        self._written: dict[str, Any] | None = None
        self._cursor = ""
        self._drift_ms: int | None = None
        self._agree = True
        self._last_round: int | None = None

    async def apply(self, config: Mapping[str, Any], grace: int, *, given: bool) -> bool:
        await self._metadata.check()
        self._metadata.trash_grace = grace
        if self._by_host is False and (not given or self._written == config):
            return False
        self._change(config)
        self._by_host = True
        if given:
            self._written = dict(config)
        return True

    async def configure(self, changes: Mapping[str, Any]) -> None:
        await self._metadata.check()
        self._change(changes)
        self._by_host = False

    def _change(self, changes: Mapping[str, Any]) -> None:
        times = {**changes.get("channels", {}), "default_ttl": changes.get("default_ttl", 1)}
        if not all(1 <= seconds <= MAX_TTL_SECONDS for seconds in times.values()):
            raise bad_request(f"a time must be a whole number from 1 to {MAX_TTL_SECONDS}")
        if unknown := set(changes) - set(self.config):
            raise bad_request(f"{', '.join(sorted(unknown))} is not a setting")
        self.config.update(changes)

    async def status(self) -> Retention:
        await self._metadata.check()
        trash = self._metadata.trash
        return Retention(
            **self.config,
            fiber_running=self.config["enabled"],
            clocks_agree=self._agree,
            holds=[self._hold(subject) for subject in self.acked if self._due(subject)],
            trash=len(trash),
            trash_grace=self._metadata.trash_grace,
            time=self._now(),
            trash_due_at=min((row.due_at for row in trash.values()), default=None),
            last_round_at=self._last_round,
            drift_ms=self._drift_ms,
        )

    def _hold(self, subject: str) -> Hold:
        due, acked = self._due(subject), self.acked[subject]
        return Hold(
            subject=subject,
            durable="held",
            messages=sum(row.count for row in due),
            bytes=sum(row.size for row in due),
            position=acked,
            oldest_at=due[0].create_at,
            age=self._now() - due[0].create_at,
        )

    async def step(self, limit: int) -> SweepStep:
        await self._metadata.check()
        done = SweepStep(messages=0, rows=0, bytes=0, subjects=0, more=False, clocks_differ=not self._agree)
        if done.clocks_differ:
            return done
        left = min(limit, PER_TRANSACTION)
        for subject in sorted(name for name in self._metadata.subject_names if name >= self._cursor):
            if left <= 0 or done.subjects == PER_TRANSACTION:
                self._cursor, done.more = subject, True
                return done
            for row in self._due(subject)[: left + 1]:
                if row.sequence > self.acked.get(subject, row.sequence):
                    break
                if left <= 0:
                    self._cursor, done.more = subject, True
                    return done
                self._metadata.remove(row)
                done.messages, done.rows, done.bytes = done.messages + row.count, done.rows + 1, done.bytes + row.size
                left -= 1
            done.subjects += 1
        self._cursor, self._last_round = "", self._now()
        return done

    async def compare_clocks(self, store_ms: int) -> tuple[bool, int]:
        self._drift_ms = await self._metadata.now_ms() - store_ms
        self._agree = abs(self._drift_ms) <= MAX_CLOCK_DRIFT_SECONDS * 1000
        return self._agree, self._drift_ms

    def _now(self) -> int:
        return self._metadata.clock.seconds()

    def _due(self, subject: str) -> list[Extent]:
        if not self.config["enabled"]:
            return []
        life = self._life(subject)
        return [row for row in self._metadata.rows_of(subject) if row.create_at < self._now() - life]

    def _life(self, subject: str) -> int:
        own = self.ttls.get(subject) or self.config["channels"].get(subject)
        origin = subject.removesuffix(DEAD_LETTERS)
        default = int(self.config["default_ttl"])
        return own or (default if origin == subject else max(default, self._life(origin)))
