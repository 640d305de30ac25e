"""A TCP relay that can be cut without anybody being told: as a network that drops packets does it."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType


class Relay:
    """Listens at `address` and passes on to `target`. Connections of before `cut` stay open and carry nothing any
    more; later ones work."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lines: list[tuple[socket.socket, socket.socket, threading.Event]] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Relay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def cut(self) -> int:
        """Returns how many connections are cut by now."""
        for _, _, silent in self._lines:
            silent.set()
        return len(self._lines)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far, silent = socket.create_connection(self._target), threading.Event()
                self._lines.append((near, far, silent))
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_pass_on, args=(source, sink, silent), daemon=True).start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for near, far, _ in self._lines:
            near.close()
            far.close()


def _pass_on(source: socket.socket, sink: socket.socket, silent: threading.Event) -> None:
    """What comes on a cut line is taken and dropped: neither side sees a full buffer, or an end."""
    with suppress(OSError):
        while data := source.recv(65536):
            if not silent.is_set():
                sink.sendall(data)
        if not silent.is_set():
            sink.shutdown(socket.SHUT_WR)
