"""The driver itself with the statements of the catalog: as fast as they can be from this process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy
from cassandra.query import tuple_factory

from minitoolstream.adapters.catalog.cql_session import CqlPlace
from minitoolstream.domain.catalog_tables import BY_OWNER, PINS


class Driver:
    def __init__(self, url: str, in_flight: int) -> None:
        hosts, self._keyspace = CqlPlace.hosts_of(url)
        profile = ExecutionProfile(
            TokenAwarePolicy(DCAwareRoundRobinPolicy("datacenter1")),
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
            serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
            row_factory=tuple_factory,
        )
        self._cluster = Cluster(
            [host for host, _ in hosts],
            port=hosts[0][1],
            protocol_version=4,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        )
        self._session = self._cluster.connect(self._keyspace)
        self._in_flight = in_flight

    def insert(self, rows: Sequence[dict[str, Any]]) -> float:
        names, marks = ", ".join(rows[0]), ", ".join("?" * len(rows[0]))
        text = f"INSERT INTO {PINS.name} ({names}) VALUES ({marks}) IF NOT EXISTS"
        return self._run(text, [list(row.values()) for row in rows])

    def get(self, keys: Sequence[tuple[Any, ...]]) -> float:
        text = f"SELECT {', '.join(PINS.types)} FROM {PINS.name} WHERE mh_prefix = ? AND cid_bin = ?"
        return self._run(text, keys)

    def change(self, keys: Sequence[tuple[Any, ...]]) -> float:
        text = f"UPDATE {PINS.name} SET version = ?, rf = ? WHERE mh_prefix = ? AND cid_bin = ? IF version = ?"
        return self._run(text, [(2, 2, *key, 1) for key in keys])

    def page(self, partition: tuple[Any, ...], count: int) -> float:
        text = f"SELECT {', '.join(BY_OWNER.types)} FROM {BY_OWNER.name} WHERE owner = ? AND day = ? LIMIT ?"
        return self._run(text, [(*partition, 100)] * count)

    def _run(self, text: str, given: Sequence[Sequence[Any]]) -> float:
        prepared = self._session.prepare(text)
        began = time.monotonic()
        results = execute_concurrent_with_args(self._session, prepared, given, concurrency=self._in_flight)
        assert all(success for success, _ in results)
        return len(given) / (time.monotonic() - began)

    def close(self) -> None:
        self._cluster.shutdown()
