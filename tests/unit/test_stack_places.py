from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from minitoolstream.config import Settings, load_settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.stack import places, ports
from minitoolstream.stack.places import given, grpc_place, host_place, store_place, tarantool_place
from minitoolstream.stack.ports import free_port
from minitoolstream.stack.state import State, save_state


@pytest.fixture
def foreign() -> Iterator[int]:
    """The port of somebody else's server."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def settings(tmp_path: Path, **environ: str) -> Settings:
    return load_settings({"MTS_HOME": str(tmp_path), **environ}, cwd=tmp_path)


def test_without_settings_every_part_is_ours_on_a_free_port_of_loopback(tmp_path: Path) -> None:
    places = [place(settings(tmp_path), State()) for place in (tarantool_place, store_place, host_place)]
    assert all(place.managed and place.host == "127.0.0.1" for place in places)
    assert len({place.port for place in places}) == 3


def test_remembered_ports_are_taken_again(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(3)]
    state = State(
        {
            "tarantool.address": f"127.0.0.1:{ports[0]}",
            "minio.endpoint": f"http://127.0.0.1:{ports[1]}",
            "server.port": ports[2],
        }
    )
    save_state(tmp_path, state)
    found = [place(settings(tmp_path), state).port for place in (tarantool_place, store_place, host_place)]
    assert found == ports


def test_a_server_of_the_user_on_another_machine_is_used_not_started(tmp_path: Path) -> None:
    place = tarantool_place(settings(tmp_path, MTS_TARANTOOL_ADDRESS="db.example:3305"), State())
    assert (place.address, place.managed) == ("db.example:3305", False)


def test_a_server_of_the_user_on_this_machine_is_used_not_started(tmp_path: Path, foreign: int) -> None:
    place = store_place(settings(tmp_path, MTS_MINIO_ENDPOINT=f"127.0.0.1:{foreign}"), State())
    assert (place.url, place.managed) == (f"http://127.0.0.1:{foreign}", False)


def test_a_configured_port_of_this_machine_where_nobody_listens_is_where_ours_goes(tmp_path: Path) -> None:
    port = free_port()
    place = tarantool_place(settings(tmp_path, MTS_TARANTOOL_ADDRESS=f"localhost:{port}"), State())
    assert (place.port, place.managed) == (port, True)


def test_an_address_with_a_login_is_the_users_even_while_it_is_down(tmp_path: Path) -> None:
    given_login = {"MTS_TARANTOOL_ADDRESS": f"127.0.0.1:{free_port()}", "MTS_TARANTOOL_PASSWORD": "x"}
    assert not tarantool_place(settings(tmp_path, **given_login), State()).managed
    given_keys = {"MTS_MINIO_ENDPOINT": f"127.0.0.1:{free_port()}", "MTS_MINIO_ACCESS_KEY": "x"}
    assert not store_place(settings(tmp_path, **given_keys), State()).managed


def test_port_0_means_a_free_one(tmp_path: Path) -> None:
    place = tarantool_place(settings(tmp_path, MTS_TARANTOOL_ADDRESS="127.0.0.1:0"), State())
    assert place.port > 0
    assert place.managed


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("https://s3.example", "https://s3.example:443"),
        ("http://s3.example:9001", "http://s3.example:9001"),
        ("s3.example", "http://s3.example:9000"),
    ],
)
def test_an_endpoint_may_be_a_url_or_host_and_port(tmp_path: Path, endpoint: str, url: str) -> None:
    place = store_place(settings(tmp_path, MTS_MINIO_ENDPOINT=endpoint), State())
    assert (place.url, place.managed) == (url, False)


def test_a_configured_port_of_the_host_that_is_taken_is_a_clear_error(tmp_path: Path, foreign: int) -> None:
    with pytest.raises(MtsError, match="is taken") as caught:
        host_place(settings(tmp_path, MTS_SERVER_PORT=str(foreign)), State())
    assert "MTS_SERVER_PORT" in caught.value.details["hint"]


def test_a_port_that_this_user_may_not_open_is_not_called_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "bind_problem", lambda *_: PermissionError(errno.EACCES, "Permission denied"))
    with pytest.raises(MtsError, match="may not be opened by this user"):
        host_place(settings(tmp_path, MTS_SERVER_PORT="80"), State())


def test_a_host_for_other_machines_comes_with_warnings(tmp_path: Path) -> None:
    assert places.exposure(settings(tmp_path)) == []
    everywhere = {"MTS_SERVER_HOST": "0.0.0.0"}
    token, urls = places.exposure(settings(tmp_path, **everywhere))
    assert "TLS" in token
    assert "minio.public_endpoint" in urls
    assert len(places.exposure(settings(tmp_path, MTS_MINIO_PUBLIC_ENDPOINT="https://s3.example", **everywhere))) == 1


def test_a_remembered_port_of_the_host_that_is_taken_is_replaced(tmp_path: Path, foreign: int) -> None:
    state = State({"server.port": foreign})
    save_state(tmp_path, state)
    assert host_place(settings(tmp_path), state).port != foreign


def test_grpc_listens_at_the_usual_ports_where_they_are_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = "grpc.ingress_port", "grpc.egress_port"

    def found(taken: set[int], state: State, **environ: str) -> list[int]:
        in_use = OSError(errno.EADDRINUSE, "Address already in use")
        for module in (places, ports):
            monkeypatch.setattr(module, "bind_problem", lambda _host, port: in_use if port in taken else None)
        return [grpc_place(settings(tmp_path, **environ), state, key).port for key in keys]

    assert found(set(), State()) == [50051, 50052]
    first, second = found({50051}, State())
    assert first not in {0, 50051, 50052}
    assert second == 50052
    assert found(set(), State({"grpc.ingress_port": 4711})) == [4711, 50052]
    free = found(set(), State(), MTS_GRPC_INGRESS_PORT="0", MTS_GRPC_EGRESS_PORT="0")
    assert not {0, 50051, 50052} & set(free)
    with pytest.raises(MtsError, match=r"port 50061 on .* is taken"):
        found({50061}, State(), MTS_GRPC_INGRESS_PORT="50061")


def test_remembered_values_are_not_given_ones(tmp_path: Path) -> None:
    save_state(tmp_path, State({"server.port": 4711}))
    assert not given(settings(tmp_path), "server.port")
    assert given(settings(tmp_path, MTS_SERVER_PORT="4712"), "server.port")
    assert not given(settings(tmp_path), "tarantool.user")
