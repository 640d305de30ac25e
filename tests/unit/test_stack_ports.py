from __future__ import annotations

import socket

import pytest

from minitoolstream.stack.ports import (
    bind_problem,
    free_port,
    keep_or_free,
    listens,
    reachable,
    split_address,
)


def test_free_ports_are_never_given_twice() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50


def test_a_remembered_port_is_kept_while_it_is_free() -> None:
    port = free_port()
    assert keep_or_free(port) == port


def test_a_remembered_port_that_another_program_took_is_replaced() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        assert bind_problem("127.0.0.1", taken)
        assert listens("127.0.0.1", taken)
        assert keep_or_free(taken) != taken


def test_nobody_listens_on_a_free_port() -> None:
    assert not listens("127.0.0.1", free_port())


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("db.example:3302", ("db.example", 3302)),
        ("db.example", ("db.example", 3301)),
        ("[::1]:3303", ("::1", 3303)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
    ],
)
def test_an_address_is_split_into_host_and_port(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address, 3301) == expected


def test_a_server_on_every_interface_is_reached_by_loopback() -> None:
    assert reachable("0.0.0.0") == "127.0.0.1"
    assert reachable("192.168.1.5") == "192.168.1.5"
