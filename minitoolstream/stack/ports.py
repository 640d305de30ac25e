"""Ports on this machine: free ones, and whether something listens."""

from __future__ import annotations

import socket

# Given out by this process already; the kernel may offer a port again before its server has bound it.
_given: set[int] = set()


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on, different at each call."""
    for _ in range(100):
        with socket.socket() as probe:
            probe.bind((host, 0))
            port = int(probe.getsockname()[1])
        if port not in _given:
            _given.add(port)
            return port
    raise OSError(f"no free port on {host}")


def bind_problem(host: str, port: int) -> OSError | None:
    """What stands against listening there; None when nothing does."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


def keep_if_free(port: int | None, host: str = "127.0.0.1") -> int | None:
    """The port, if it can be had."""
    return port if port and bind_problem(host, port) is None else None


def keep_or_free(port: int | None, host: str = "127.0.0.1") -> int:
    """The remembered port while it is free, so that addresses stay the same from run to run; else another."""
    return keep_if_free(port, host) or free_port(host)


def listens(host: str, port: int, timeout: float = 1.0) -> bool:
    try:
        with socket.create_connection((host, port), timeout):
            return True
    except OSError:
        return False


def split_address(address: str, default_port: int) -> tuple[str, int]:
    """Host and port of `host:port`, `[::1]:port` or a bare host."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        host, port = address, str(default_port)
    return host.strip("[]"), int(port)


def reachable(host: str) -> str:
    """The address under which this machine reaches a server that listens on `host`."""
    return "127.0.0.1" if host in {"0.0.0.0", "::", ""} else host  # noqa: S104  # nosec B104
