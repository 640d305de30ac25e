"""A session with Cassandra or ScyllaDB for asyncio: the driver's own loop does the work and calls back.

Conditional statements go to one datacenter, the home: LOCAL_SERIAL orders them within a datacenter only, and two that
each give a claim for itself would give it twice."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from minitoolstream.adapters.catalog.cql_statement import PROTOCOL, Prepared
from minitoolstream.domain.errors import MtsError, no_driver, unavailable

AT_ONCE = 256
"""Statements in flight of one call: more would only wait in the servers."""
_SPECULATE_AFTER, _SPECULATE_TIMES = 0.1, 2
_CONNECT_SECONDS = 5.0
_HOME = "home"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CqlPlace:
    """Where a cluster is: `cql://host:port,host:port/keyspace`."""

    hosts: tuple[tuple[str, int], ...]
    keyspace: str
    datacenter: str
    home: str
    replication: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    timeout: float = 5.0

    @classmethod
    def hosts_of(cls, url: str) -> tuple[tuple[tuple[str, int], ...], str]:
        parts = urlsplit(url)
        pairs = [one.rpartition(":") for one in parts.netloc.split(",")]
        return tuple((host or port, int(port) if host else 9042) for host, _, port in pairs), parts.path.strip("/")


@dataclass(frozen=True, slots=True)
class Answer:
    """`cursor` leads to the next page."""

    rows: list[Any]
    cursor: bytes | None


class CqlSession:
    """Connects when it is first needed, and again by itself; statements are prepared once."""

    def __init__(self, place: CqlPlace) -> None:
        self.place = place
        self._cluster: Any = None
        self._session: Any = None
        self._opening = asyncio.Lock()
        self._prepared: dict[str, Prepared] = {}
        self._inbox: _Inbox | None = None
        self._default_profile: Any = None
        self._result_set: Any = None

    async def ask(
        self,
        text: str,
        given: Sequence[Any] = (),
        *,
        conditional: bool = False,
        idempotent: bool = True,
        page: int | None = None,
        cursor: bytes | None = None,
    ) -> Answer:
        bound = (await self.prepare(text, conditional=conditional, idempotent=idempotent)).bind(given)
        if page is not None:
            bound.fetch_size = page
        return await self.send(bound, conditional=conditional, cursor=cursor)

    async def prepare(self, text: str, *, conditional: bool = False, idempotent: bool = True) -> Prepared:
        found = self._prepared.get(text)
        if found is None:
            session = await self._opened()
            try:
                statement = await asyncio.to_thread(session.prepare, text)
            except Exception as error:
                raise self._translated(error) from error
            # Only what is so may be sent a second time while the first is under way.
            statement.is_idempotent = idempotent and not conditional
            found = self._prepared[text] = Prepared(statement)
        return found

    async def send(self, statement: Any, *, conditional: bool = False, cursor: bytes | None = None) -> Answer:
        """Anything that the driver can run."""
        session = self._session or await self._opened()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        try:
            response = session.execute_async(
                statement,
                execution_profile=_HOME if conditional else self._default_profile,
                paging_state=cursor,
                timeout=self.place.timeout,
            )
        except Exception as error:
            raise self._translated(error) from error

        inbox = self._inbox_of(loop)
        response.add_callbacks(lambda rows: inbox.put(answer, rows, None), lambda error: inbox.put(answer, None, error))
        try:
            rows = await answer
        except Exception as error:
            raise self._translated(error) from error
        if rows is None:
            return Answer([], None)
        return Answer(rows, self._result_set(response, rows).paging_state if response.has_more_pages else None)

    def _inbox_of(self, loop: asyncio.AbstractEventLoop) -> _Inbox:
        if self._inbox is None or self._inbox.loop is not loop:
            self._inbox = _Inbox(loop)
        return self._inbox

    async def run(self, text: str) -> list[Any]:
        """A statement of the schema, as it is."""
        await self._opened()  # which says so where there is no driver
        from cassandra.query import SimpleStatement

        return (await self.send(SimpleStatement(text))).rows

    async def _opened(self) -> Any:
        if self._session is None:
            async with self._opening:
                if self._session is None:
                    await asyncio.to_thread(self._connect)
        return self._session

    def _connect(self) -> None:
        cluster = self._new_cluster()
        try:
            session = cluster.connect()
        except Exception as error:
            cluster.shutdown()
            raise self._translated(error) from error
        # Rows of known keys come at once: an engine that may have to page looks at one partition after the other.
        session.default_fetch_size = None
        self._cluster, self._session = cluster, session

    def _new_cluster(self) -> Any:
        try:
            from cassandra import ConsistencyLevel
            from cassandra.auth import PlainTextAuthProvider
            from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, ResultSet
            from cassandra.connection import DefaultEndPoint
            from cassandra.policies import (
                ConstantSpeculativeExecutionPolicy,
                DCAwareRoundRobinPolicy,
                ExponentialReconnectionPolicy,
                TokenAwarePolicy,
            )
            from cassandra.query import dict_factory, tuple_factory
        except ImportError:
            raise no_driver() from None
        place = self.place
        self._default_profile, self._result_set = EXEC_PROFILE_DEFAULT, ResultSet

        def profile(datacenter: str, **more: Any) -> Any:
            return ExecutionProfile(
                load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=datacenter)),
                consistency_level=ConsistencyLevel.LOCAL_QUORUM,
                serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
                request_timeout=place.timeout,
                **more,
            )

        return Cluster(
            [DefaultEndPoint(host, port) for host, port in place.hosts],
            port=place.hosts[0][1],
            execution_profiles={
                EXEC_PROFILE_DEFAULT: profile(
                    place.datacenter,
                    row_factory=tuple_factory,
                    speculative_execution_policy=ConstantSpeculativeExecutionPolicy(_SPECULATE_AFTER, _SPECULATE_TIMES),
                ),
                _HOME: profile(place.home, row_factory=dict_factory),
            },
            auth_provider=PlainTextAuthProvider(place.user, place.password) if place.user else None,
            connect_timeout=_CONNECT_SECONDS,
            control_connection_timeout=_CONNECT_SECONDS,
            reconnection_policy=ExponentialReconnectionPolicy(0.2, 5.0),
            idle_heartbeat_interval=5,
            idle_heartbeat_timeout=5,
            protocol_version=PROTOCOL,
            # Which nodes hold a row, the driver knows from the keyspace's replication: without the schema it asks any.
            schema_metadata_enabled=True,
            token_metadata_enabled=True,
        )

    def _translated(self, error: Exception) -> MtsError:
        if isinstance(error, MtsError):
            return error
        from cassandra import AuthenticationFailed, InvalidRequest, OperationTimedOut, RequestExecutionException
        from cassandra.cluster import NoHostAvailable

        where = ", ".join(f"{host}:{port}" for host, port in self.place.hosts)
        if isinstance(error, NoHostAvailable):
            tried = error.errors if isinstance(error.errors, dict) else {}
            if any(isinstance(one, AuthenticationFailed) for one in tried.values()):
                text = f"the catalog's database at {where} refuses the user {self.place.user}"
                return MtsError("not_configured", f"{text}: set MTS_CATALOG_PASSWORD")
            if not tried:
                place = self.place
                names = f"{place.datacenter} (catalog.datacenter) or {place.home} (catalog.home)"
                return unavailable(f"the catalog's database at {where} has no node up in the datacenter {names}")
        if isinstance(error, InvalidRequest):
            _log.warning("a statement was refused: %s", error)
            return MtsError("not_configured", "the catalog's tables are not as they should be: `mts catalog migrate`")
        known = isinstance(error, NoHostAvailable | OperationTimedOut | RequestExecutionException)
        if not known:
            _log.error("an unknown failure of the catalog's database", exc_info=error)
        return unavailable(f"the catalog's database at {where} does not answer ({type(error).__name__})")

    async def close(self) -> None:
        cluster, self._cluster, self._session = self._cluster, None, None
        self._prepared.clear()
        if cluster is not None:
            await asyncio.to_thread(cluster.shutdown)


class _Inbox:
    """Answers on their way from the driver's thread to a loop: one call wakes it for all that came."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: deque[tuple[asyncio.Future[Any], Any, Exception | None]] = deque()
        self._called = False

    def put(self, answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        """By the driver's thread. What comes until the loop looks is taken along."""
        self._waiting.append((answer, result, error))
        if not self._called:
            self._called = True
            # A loop that was closed meanwhile waits for nothing.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        # First: what is put from now on calls again, what was put before is met below.
        self._called = False
        while self._waiting:
            _settle(*self._waiting.popleft())


def _settle(answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)
