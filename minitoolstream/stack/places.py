"""Where each part listens, and whether it is ours to start or given by the user."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from urllib.parse import urlsplit

from minitoolstream.config import Settings, option_default
from minitoolstream.domain.errors import MtsError
from minitoolstream.net.addresses import is_loopback
from minitoolstream.stack.cassandra import Node
from minitoolstream.stack.ports import bind_problem, keep_if_free, keep_or_free, listens, reachable, split_address
from minitoolstream.stack.state import CATALOG, GRPC, HOST, OBJECT_STORE, TARANTOOL, State

# What a user may ask for; never a default.
_ANY = {"0.0.0.0", "::"}  # noqa: S104  # nosec B104


@dataclass(frozen=True, slots=True)
class Place:
    """`managed`: we start the server there; else it is the user's, and only used."""

    host: str
    port: int
    managed: bool
    scheme: str = "http"

    @property
    def address(self) -> str:
        host = reachable(self.host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.address}"


def given(settings: Settings, key: str) -> bool:
    """Set by the environment or `mts.yaml`, neither remembered nor a default."""
    return settings.source(key) not in {"default", str(settings.home)}


def tarantool_place(settings: Settings, state: State) -> Place:
    host, port = split_address(settings["tarantool.address"], 3301)
    remembered = _remembered(state, "tarantool.address", 3301)
    if not given(settings, "tarantool.address"):
        return Place("127.0.0.1", _free(state, TARANTOOL, remembered), managed=True)
    ours = not given(settings, "tarantool.password")
    return _given_place(state, TARANTOOL, Place(host, port, managed=ours), remembered)


def store_place(settings: Settings, state: State) -> Place:
    remembered = _remembered(state, "minio.endpoint", 9000)
    if not given(settings, "minio.endpoint"):
        return Place("127.0.0.1", _free(state, OBJECT_STORE, remembered), managed=True)
    scheme, host, port = _endpoint(settings["minio.endpoint"], settings["minio.use_ssl"])
    ours = not given(settings, "minio.access_key") and scheme == "http"
    return _given_place(state, OBJECT_STORE, Place(host, port, ours, scheme), remembered)


def host_place(settings: Settings, state: State) -> Place:
    host, port = settings["server.host"], settings["server.port"]
    remembered = state.settings.get("server.port")
    if not given(settings, "server.port") or port == 0:
        return Place(host, _free(state, HOST, remembered, host), managed=True)
    problem = bind_problem(host, port)
    if problem and not (state.alive(HOST) and remembered == port):
        raise MtsError(
            "bad_config",
            _cannot_listen(host, port, problem),
            {"hint": f"server.port is set by {settings.source('server.port')}; 0 takes a free one"},
        )
    return Place(host, port, managed=True)


def catalog_node(state: State) -> Node:
    """Where the catalog's Cassandra listens, the same from run to run."""
    port = _remembered_port(state)
    storage = state.storage_port or None
    if state.alive(CATALOG) is None or not port or not storage:
        port, storage = keep_or_free(port), keep_or_free(storage)
    state.storage_port = storage
    return Node("127.0.0.1", port, storage)


def _remembered_port(state: State) -> int | None:
    address = str(state.settings.get("catalog.database", "")).removeprefix("cql://").partition("/")[0]
    return int(address.rpartition(":")[2]) if address else None


def grpc_place(settings: Settings, state: State, key: str) -> Place:
    """Where one of the gRPC servers listens: as set; else where it did, at the usual port, or at a free one."""
    host, port, remembered = settings["server.host"], settings[key], state.settings.get(key)
    if remembered and state.alive(GRPC) and (port in (0, remembered) or not given(settings, key)):
        return Place(host, remembered, managed=True)
    if given(settings, key) and port:
        problem = bind_problem(host, port)
        if problem:
            hint = f"{key} is set by {settings.source(key)}; 0 takes a free one"
            raise MtsError("bad_config", _cannot_listen(host, port, problem), {"hint": hint})
        return Place(host, port, managed=True)
    usual = None if given(settings, key) else option_default(key)
    return Place(host, keep_or_free(keep_if_free(remembered, host) or usual, host), managed=True)


def _cannot_listen(host: str, port: int, problem: OSError) -> str:
    if problem.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is taken"
    if problem.errno == errno.EACCES:
        return f"port {port} on {host} may not be opened by this user: low ports are for root"
    return f"port {port} on {host} cannot be opened: {problem.strerror}"


def exposure(settings: Settings) -> list[str]:
    """What to know when the host listens for other machines."""
    host = settings["server.host"]
    if is_loopback(host):
        return []
    told = [f"server.host is {host}: the token travels in plain HTTP; put TLS in front of the host"]
    if not settings["minio.public_endpoint"]:
        told.append(
            "other machines cannot use presigned URLs until minio.public_endpoint says how they reach the object store"
        )
    return told


def _given_place(state: State, part: str, place: Place, remembered: int | None) -> Place:
    """Ours when it is on this machine, nobody else listens there, and no login was given with it."""
    if place.port == 0:
        return Place(place.host, _free(state, part, remembered, place.host), managed=True, scheme=place.scheme)
    own = state.alive(part) is not None and remembered == place.port
    here = is_loopback(place.host) or place.host in _ANY
    managed = place.managed and here and (own or not listens(reachable(place.host), place.port))
    return Place(place.host, place.port, managed, place.scheme)


def _free(state: State, part: str, remembered: int | None, host: str = "127.0.0.1") -> int:
    return remembered if remembered and state.alive(part) else keep_or_free(remembered, host)


def _remembered(state: State, key: str, default_port: int) -> int | None:
    value = state.settings.get(key)
    return split_address(str(value).partition("://")[2] or str(value), default_port)[1] if value else None


def _endpoint(endpoint: str, use_ssl: bool) -> tuple[str, str, int]:
    if "://" not in endpoint:
        return "https" if use_ssl else "http", *split_address(endpoint, 9000)
    parts = urlsplit(endpoint)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
