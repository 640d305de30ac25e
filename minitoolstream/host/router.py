"""From a method and a path to the route that answers, and from a query string to its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import unquote_to_bytes

from minitoolstream.api.app import Route
from minitoolstream.domain.errors import MtsError, bad_request, not_found

TICKET_ROUTE = "POST /v1/subjects/{subject}/uploads"


class Guard(Protocol):
    """Says who sends a request, or raises `unauthorized`."""

    def principal_of(self, headers: Mapping[str, str]) -> str: ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route and what the host knows beyond it: who may call it, how long a body may be, where it counts."""

    route: Route
    guard: Guard | None
    limit: int
    side: str
    label: str
    payload: bool = False
    names: tuple[str, ...] = field(init=False)
    query: frozenset[str] = field(init=False)
    headers: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        segments = self.route.path.split("/")
        object.__setattr__(self, "names", tuple(part[1:-1] for part in segments if part[:1] == "{"))
        object.__setattr__(self, "query", frozenset(self.route.query))
        object.__setattr__(self, "headers", frozenset(self.route.headers))

    def too_large(self) -> MtsError:
        """The error for a body above the limit; for a payload it says which way is open to it."""
        limit = self.limit
        if not self.payload:
            return MtsError("too_large", f"the body is larger than {limit:,} bytes", {"limit": limit})
        advice = f"the body is larger than {limit:,} bytes; upload it with a ticket: {TICKET_ROUTE}"
        return MtsError("too_large", advice, {"limit": limit, "use": TICKET_ROUTE})


class _Node:
    __slots__ = ("children", "endpoints", "parameter")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.endpoints: dict[str, Endpoint] = {}


class Router:
    """A tree of path segments. As with API Gateway, a fixed segment wins over a `{name}`."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, endpoint: Endpoint) -> None:
        node = self._root
        for segment in endpoint.route.path[1:].split("/"):
            if segment[:1] == "{":
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.children.setdefault(segment, _Node())
        method = endpoint.route.method
        if method in node.endpoints:
            raise ValueError(f"{method} {endpoint.route.path} is routed twice")
        node.endpoints[method] = endpoint

    def _search(self, path: str, segments: list[str]) -> tuple[_Node, list[str]]:
        """The slow way, for a fixed segment that led nowhere where a name would not have."""
        for node, values in _walk(self._root, segments):
            if node.endpoints:
                return node, values
        raise _no_such_path(path)

    def find(self, method: str, path: str) -> tuple[Endpoint, dict[str, str]]:
        """The endpoint and its decoded path parameters; `path` is as it came, still percent-encoded."""
        node = self._root
        values: list[str] = []
        if path[:1] != "/":
            raise _no_such_path(path)
        segments = path[1:].split("/")
        for segment in segments:
            child = node.children.get(segment)
            if child is None:
                child = node.parameter
                if child is None:
                    node, values = self._search(path, segments)
                    break
                values.append(segment)
            node = child
        endpoint = node.endpoints.get(method)
        if endpoint is None:
            if not node.endpoints or (path[-1:] == "/" and len(path) > 1):
                raise _no_such_path(path)
            allow = sorted(node.endpoints)
            raise MtsError("method_not_allowed", f"{method} is not possible here", {"allow": allow})
        if not values:
            return endpoint, {}
        # An empty last segment is a trailing slash; an empty name further left is the route's to refuse.
        if not values[-1] and path[-1] == "/":
            raise _no_such_path(path)
        names = endpoint.names
        return endpoint, {names[at]: _decode(value, names[at]) for at, value in enumerate(values)}


def _walk(node: _Node, segments: list[str], at: int = 0) -> Iterator[tuple[_Node, list[str]]]:
    """Every node that the segments lead to, fixed ones first, with what stands for the names."""
    if at == len(segments):
        yield node, []
        return
    if child := node.children.get(segments[at]):
        yield from _walk(child, segments, at + 1)
    if node.parameter:
        for found, values in _walk(node.parameter, segments, at + 1):
            yield found, [segments[at], *values]


def _no_such_path(path: str) -> MtsError:
    hint = "; leave out the slash at its end" if len(path) > 1 and path[-1] == "/" else ""
    return not_found(f"there is no such path{hint}; /openapi.json lists all")


def _decode(text: str, name: str) -> str:
    if "%" not in text:
        return text
    try:
        return _unquoted(text)
    except ValueError:
        raise bad_request(f"`{name}` in the path is not percent-encoded UTF-8", field=name) from None


def _unquoted(text: str) -> str:
    raw = unquote_to_bytes(text)
    # An escape that is none (`%zz`) is left as it is by the library, so fewer bytes went than escapes say.
    if len(text) - len(raw) != 2 * text.count("%"):
        raise ValueError(text)
    return raw.decode("utf-8")


def parse_query(raw: bytes, known: frozenset[str]) -> dict[str, str]:
    """Parameters by name. Unknown and repeated ones are refused: a typo must not read as a default."""
    if not raw:
        return {}
    found: dict[str, str] = {}
    try:
        for pair in raw.decode("ascii").split("&"):
            if not pair:
                continue
            name, _, value = pair.replace("+", " ").partition("=")
            if "%" in pair:
                name, value = _unquoted(name), _unquoted(value)
            if name in found:
                raise bad_request(f"the query parameter `{name}` is given twice", field=name)
            found[name] = value
    except ValueError:
        raise bad_request("the query is not percent-encoded UTF-8") from None
    if not found.keys() <= known:
        raise _unknown_parameters(sorted(found.keys() - known), sorted(known))
    return found


def _unknown_parameters(unknown: list[str], known: list[str]) -> MtsError:
    allowed = f"known here: {', '.join(known)}" if known else "this call takes none"
    names = ", ".join(f"`{name}`" for name in unknown)
    return bad_request(f"unknown query parameter {names}; {allowed}", unknown=unknown)
