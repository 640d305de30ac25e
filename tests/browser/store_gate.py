"""A gate in front of the object store: it passes requests on unchanged, and can hold, drop or refuse some."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tests.live import eventually

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}
LONGEST_HOLD = 60.0


@dataclass(frozen=True)
class Passage:
    """A request as the gate sees it; `part` is 0 for a single PUT."""

    method: str
    path: str
    query: dict[str, str] = field(repr=False)
    client: socket.socket = field(repr=False, compare=False)

    @property
    def part(self) -> int:
        return int(self.query.get("partNumber", 0))

    @property
    def object_name(self) -> str:
        return self.path.split("/", 2)[2]

    @property
    def upload_id(self) -> str:
        return self.path.rsplit("/", 1)[1]

    def is_given_up(self) -> bool:
        """Whether the browser has hung up."""
        try:
            return not self.client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True


class DroppedError(Exception):
    """The connection ends here, without an answer."""


class BusyError(Exception):
    """The store says that it is overloaded."""


Rule = Callable[[Passage], None]
BUSY = (503, [("Access-Control-Allow-Origin", "*")], b"<Error><Code>SlowDown</Code></Error>")


@dataclass
class StoreGate:
    """`before` and `after` see each PUT on its way in and its answer on its way out; they may raise."""

    endpoint: str
    before: Rule | None = None
    after: Rule | None = None
    stored: list[Passage] = field(default_factory=list)
    refused: list[tuple[Passage, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        gate = self

        class Handler(_Handler):
            pass

        Handler.gate = gate
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def stored_under(self, object_name: str) -> list[int]:
        """The parts of an object that the store took, in the order it took them; 0 for a single PUT."""
        return [passage.part for passage in self.stored if passage.object_name == object_name]

    @contextmanager
    def ruled(self, before: Rule) -> Iterator[None]:
        self.before = before
        try:
            yield
        finally:
            self.before = None

    @contextmanager
    def holding(self, *parts: int, answers: bool = False) -> Iterator[list[Passage]]:
        """Hold these PUTs (of all parts, when none is named), or their answers, until the browser gives them up, and
        drop them; yields those that wait."""
        waiting: list[Passage] = []
        over = threading.Event()

        def hold(passage: Passage) -> None:
            if not parts or passage.part in parts:
                waiting.append(passage)
                over.wait(LONGEST_HOLD)
                raise DroppedError

        name = "after" if answers else "before"
        setattr(self, name, hold)
        try:
            yield waiting
            # A browser that is hung up on before it has given up itself sends the request again.
            eventually(lambda: all(passage.is_given_up() for passage in waiting))
        finally:
            setattr(self, name, None)
            over.set()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    gate: StoreGate

    def _pass_on(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        passage = Passage(self.command, parts.path, query, self.connection)
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            self._let(self.gate.before, passage)
            status, headers, answer = self._ask_store(body)
            if self.command == "PUT":
                if status == 200:
                    self.gate.stored.append(passage)
                else:
                    self.gate.refused.append((passage, status))
            self._let(self.gate.after, passage)
        except DroppedError:
            self.close_connection = True
            return
        except BusyError:
            status, headers, answer = BUSY
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _let(self, rule: Rule | None, passage: Passage) -> None:
        if rule and self.command == "PUT":
            rule(passage)

    def _ask_store(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(urlsplit(self.gate.endpoint).netloc, timeout=60)
        try:
            # With the browser's own Host, which is signed.
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    do_GET = do_PUT = do_OPTIONS = do_HEAD = _pass_on  # noqa: N815 - names of http.server

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            return  # the page was reloaded

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in http.server
        pass
