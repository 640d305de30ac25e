"""The pipeline's tracking in a SQL database: `pipeline_tracking`, as `db/pipeline_ddl.sql` makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from minitoolstream.adapters.sql.database import Cursor, Database, Dialect, Row
from minitoolstream.domain import tracking
from minitoolstream.domain.tracking import (
    STAGES,
    STATUSES,
    Claim,
    Decide,
    FileSummary,
    PipelineSummary,
    ShardSummary,
    StageCounts,
    StageState,
    Task,
)
from minitoolstream.ports.tracking import QueuePlace

_NAMES = {stage: stage.replace("-", "_") for stage in STAGES}
_STATE_COLUMNS = [f"{name}_{what}" for name in _NAMES.values() for what in ("status", "attempts", "error")]
_COLUMNS = ", ".join(["filename", "shard", "created_at", "updated_at", "owner", "lease_until", *_STATE_COLUMNS])
_SET = ", ".join(f"{column} = %s" for column in ["updated_at", "owner", "lease_until", *_STATE_COLUMNS])
_HERE = "filename = %s AND shard = %s"
_ORDER = "ORDER BY created_at, filename, shard"
_AT_ONCE = 500


class SqlTracking:
    """Names of tables and columns come from here, all that callers give goes in as a parameter."""

    def __init__(self, database: Database, dialect: Dialect, read_ddl: Callable[[], str]) -> None:
        self._database = database
        self._dialect = dialect
        self._read_ddl = read_ddl
        self._prepared = False

    async def prepare(self) -> None:
        if self._prepared:
            return
        statements = [part.strip() for part in _without_comments(self._read_ddl()).split(";")]

        def create(cursor: Cursor) -> None:
            for statement in filter(None, statements):
                cursor.execute(statement)

        await self._database.transaction(create)
        self._prepared = True

    async def register(self, filename: str, shards: Sequence[int]) -> int:
        await self.prepare()

        def insert(cursor: Cursor) -> int:
            now, created = self._now(cursor), 0
            for some in _slices(shards):
                values = ", ".join(["(%s, %s, 'started', %s, %s)"] * len(some))
                given = [value for shard in some for value in (filename, shard, _text(now), _text(now))]
                columns = "filename, shard, event_ingest_status, created_at, updated_at"
                cursor.execute(
                    f"INSERT INTO pipeline_tracking ({columns})"  # noqa: S608 # nosec B608
                    f" VALUES {values} {self._dialect.do_nothing}",
                    given,
                )
                created += max(cursor.rowcount, 0)
            return created

        return await self._database.transaction(insert)

    async def finish_ingest(self, filename: str) -> int:
        await self.prepare()

        def update(cursor: Cursor) -> int:
            cursor.execute(
                "UPDATE pipeline_tracking SET event_ingest_status = 'done', updated_at = %s"
                " WHERE filename = %s AND event_ingest_status <> 'done'",
                [_text(self._now(cursor)), filename],
            )
            changed = max(cursor.rowcount, 0)
            if not changed:
                _check_known(cursor, filename)
            return changed

        return await self._database.transaction(update)

    async def change(self, filename: str, shard: int, decide: Decide) -> Task:
        await self.prepare()

        def changed(cursor: Cursor) -> Task:
            cursor.execute(_select(_COLUMNS, f"WHERE {_HERE} {self._dialect.for_update}"), [filename, shard])
            rows = cursor.fetchall()
            if not rows:
                known = _check_known(cursor, filename)
                raise tracking.unknown_shard(filename, shard, known)
            # After the lock was got: whoever had it has ended by now.
            task, now = _task(rows[0]), self._now(cursor)
            after = decide(task, now)
            if after is not task:
                self._write(cursor, after)
            return tracking.as_seen(after, now)

        return await self._database.transaction(changed)

    def _write(self, cursor: Cursor, task: Task) -> None:
        states = [value for one in task.stages for value in (one.status, one.attempts, one.error)]
        given = [_text(task.updated_at), task.owner, task.lease_until and _text(task.lease_until), *states]
        cursor.execute(_update(_SET, _HERE), [*given, task.filename, task.shard])

    async def ready(self, stage: str, place: QueuePlace) -> list[Task]:
        await self.prepare()
        mine, previous = _NAMES[stage], _NAMES[tracking.before(stage)]

        def select(cursor: Cursor) -> list[Task]:
            now = self._now(cursor)
            where, given = _untouched(place)
            waits = f"{mine}_status = 'new' OR ({mine}_status = 'started' AND lease_until <= %s)"
            rest = f"WHERE {previous}_status = 'done' AND ({waits}){where} {_ORDER} LIMIT %s OFFSET %s"
            cursor.execute(_select(_COLUMNS, rest), [_text(now), *given, place.limit, place.offset])
            return [tracking.as_seen(_task(row), now) for row in cursor.fetchall()]

        return await self._database.transaction(select)

    async def claim(self, stage: str, place: QueuePlace, claim: Claim) -> list[Task]:
        await self.prepare()

        def take(cursor: Cursor) -> list[Task]:
            now = self._now(cursor)
            found = self._put_back(cursor, stage, place, now)
            if len(found) < place.limit:
                found += self._new(cursor, stage, place, place.limit - len(found))
            taken = [tracking.started(task, stage, claim, now) for task in found]
            for some in _slices(taken):
                self._write_started(cursor, stage, some)
            return taken

        return await self._database.transaction(take)

    def _put_back(self, cursor: Cursor, stage: str, place: QueuePlace, now: datetime) -> list[Task]:
        """Started, with a lease that has ended."""
        where, given = _untouched(place)
        rest = (
            f"{self._dialect.hint('leases')} WHERE lease_until <= %s AND {_NAMES[stage]}_status = 'started'{where}"
            f" ORDER BY lease_until LIMIT %s {self._dialect.skip_locked}"
        )
        cursor.execute(_select(_COLUMNS, rest), [_text(now), *given, place.limit])
        found = [_task(row) for row in cursor.fetchall()]
        return sorted(found, key=lambda task: (task.created_at, task.filename, task.shard))

    def _new(self, cursor: Cursor, stage: str, place: QueuePlace, limit: int) -> list[Task]:
        mine, previous = _NAMES[stage], _NAMES[tracking.before(stage)]
        where, given = _untouched(place)
        rest = (
            f"{self._dialect.hint(f'queue_{mine}')} WHERE {mine}_status = 'new' AND {previous}_status = 'done'{where}"
            f" {_ORDER} LIMIT %s {self._dialect.skip_locked}"
        )
        cursor.execute(_select(_COLUMNS, rest), [*given, limit])
        return [_task(row) for row in cursor.fetchall()]

    def _write_started(self, cursor: Cursor, stage: str, tasks: Sequence[Task]) -> None:
        """All in one statement: they differ in their keys alone."""
        first, mine = tasks[0], _NAMES[stage]
        assert first.lease_until is not None
        keys = " OR ".join([f"({_HERE})"] * len(tasks))
        assignments = (
            f"{mine}_status = 'started', {mine}_attempts = {mine}_attempts + 1,"
            " owner = %s, lease_until = %s, updated_at = %s"
        )
        cursor.execute(
            _update(assignments, keys),
            [
                first.owner,
                _text(first.lease_until),
                _text(first.updated_at),
                *(value for task in tasks for value in (task.filename, task.shard)),
            ],
        )

    async def file(self, filename: str) -> list[Task]:
        await self.prepare()

        def select(cursor: Cursor) -> list[Task]:
            now = self._now(cursor)
            cursor.execute(_select(_COLUMNS, "WHERE filename = %s ORDER BY shard"), [filename])
            found = [tracking.as_seen(_task(row), now) for row in cursor.fetchall()]
            if not found:
                raise tracking.unknown_file(filename)
            return found

        return await self._database.transaction(select)

    async def files(self, limit: int, before: str | None) -> list[FileSummary]:
        await self.prepare()

        def select(cursor: Cursor) -> list[FileSummary]:
            now = _text(self._now(cursor))
            where, given = ("WHERE filename < %s", [before]) if before is not None else ("", [])
            columns, rest = f"filename, COUNT(*), MAX(updated_at), {_SUMS}", "ORDER BY filename DESC LIMIT %s"
            cursor.execute(_select(columns, f"{where} GROUP BY filename {rest}"), [*[now] * _NOWS, *given, limit])
            return [
                FileSummary(name, int(total), _counts(sums), _moment(updated))
                for name, total, updated, *sums in cursor.fetchall()
            ]

        return await self._database.transaction(select)

    async def summary(self) -> PipelineSummary:
        """One statement, so that the figures fit each other."""
        await self.prepare()

        def select(cursor: Cursor) -> PipelineSummary:
            now = _text(self._now(cursor))
            cursor.execute(_select(f"shard, COUNT(*), {_SUMS}", "GROUP BY shard ORDER BY shard"), [now] * _NOWS)
            rows = cursor.fetchall()
            totals = [sum(int(row[2 + at]) for row in rows) for at in range(len(STAGES) * len(STATUSES))]
            return PipelineSummary(sum(int(row[1]) for row in rows), _counts(totals), [_of_shard(row) for row in rows])

        return await self._database.transaction(select)

    async def close(self) -> None:
        await self._database.close()

    def _now(self, cursor: Cursor) -> datetime:
        cursor.execute(f"SELECT {self._dialect.now}")
        return _moment(cursor.fetchall()[0][0])


def _select(columns: str, rest: str) -> str:
    """Only words of these modules go into a statement."""
    return f"SELECT {columns} FROM pipeline_tracking {rest}"  # noqa: S608 # nosec B608


def _update(assignments: str, where: str) -> str:
    return f"UPDATE pipeline_tracking SET {assignments} WHERE {where}"  # noqa: S608 # nosec B608


def _without_comments(script: str) -> str:
    return "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("--"))


def _slices(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for at in range(0, len(items), _AT_ONCE):
        yield items[at : at + _AT_ONCE]


def _untouched(place: QueuePlace) -> tuple[str, list[str]]:
    if place.updated_before is None:
        return "", []
    return " AND updated_at < %s", [_text(place.updated_before)]


def _check_known(cursor: Cursor, filename: str) -> list[int]:
    cursor.execute("SELECT shard FROM pipeline_tracking WHERE filename = %s ORDER BY shard", [filename])
    shards = [int(row[0]) for row in cursor.fetchall()]
    if not shards:
        raise tracking.unknown_file(filename)
    return shards


def _task(row: Row) -> Task:
    filename, shard, created, updated, owner, lease, *states = row
    stages = tuple(StageState(*states[at : at + 3]) for at in range(0, len(states), 3))
    return Task(filename, int(shard), stages, _moment(created), _moment(updated), owner, lease and _moment(lease))


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def _moment(value: datetime | str) -> datetime:
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found.replace(tzinfo=UTC)


def _sum_of(name: str, status: str) -> str:
    """What `tracking.as_seen` says, in SQL."""
    over = f"{name}_status = 'started' AND lease_until IS NOT NULL AND lease_until <= %s"
    seen = {
        "new": f"{name}_status = 'new' OR ({over})",
        "started": f"{name}_status = 'started' AND NOT ({over})",
    }
    condition = seen.get(status, f"{name}_status = '{status}'")
    return f"SUM(CASE WHEN {condition} THEN 1 ELSE 0 END)"


_SUMS = ", ".join(_sum_of(name, status) for name in _NAMES.values() for status in STATUSES)
_NOWS = _SUMS.count("%s")


def _counts(sums: Sequence[Any]) -> dict[str, StageCounts]:
    width = len(STATUSES)
    return {stage: StageCounts(*map(int, sums[at * width : (at + 1) * width])) for at, stage in enumerate(STAGES)}


def _of_shard(row: Row) -> ShardSummary:
    last = StageCounts(*map(int, row[-len(STATUSES) :]))
    return ShardSummary(int(row[0]), int(row[1]), last.done, last.failed)
