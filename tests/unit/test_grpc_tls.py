"""TLS of the gRPC servers, on fakes, and which way the connector takes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from minitoolstream.config import load_settings
from minitoolstream.connector import ByteMessagePreparer, MtsError, PublisherBuilder
from minitoolstream.connector._address import target_of
from minitoolstream.connector._wires import Options
from minitoolstream.grpc.tls import tls_files
from tests.certificates import Certificate, certificate
from tests.grpc_kit import TOKEN, GrpcKit, grpc_kit

MESSAGE = ByteMessagePreparer("orders", b"x")


@pytest.fixture
def server(tmp_path: Path) -> Certificate:
    return certificate(tmp_path, "server")


def tls(server: Certificate, **more: Any) -> Any:
    return grpc_kit(grpc__certificate=str(server.file), grpc__key=str(server.key), **more)


def builder(kit: GrpcKit, scheme: str = "grpcs://") -> PublisherBuilder:
    return PublisherBuilder(f"{scheme}localhost:{kit.servers[0].port}").with_token(TOKEN).with_timeout(1)


async def publish(made: PublisherBuilder) -> int:
    def publishing() -> int:
        with made.build() as publisher:
            return publisher.publish(MESSAGE).sequence

    return await asyncio.to_thread(publishing)


async def test_servers_with_a_certificate_speak_tls_alone(server: Certificate) -> None:
    async with tls(server) as kit:
        assert await publish(builder(kit).with_timeout(20).with_tls(server.file)) == 1
        for wrong in (builder(kit), builder(kit, "grpc://"), builder(kit, "")):  # not trusted, and without TLS
            with pytest.raises(MtsError) as raised:
                await publish(wrong)
            assert raised.value.code in {"unavailable", "timeout"}


async def test_clients_show_a_certificate_where_one_is_asked_for(server: Certificate, tmp_path: Path) -> None:
    client, stranger = certificate(tmp_path, "client"), certificate(tmp_path, "stranger")
    async with tls(server, grpc__client_ca=str(client.file)) as kit:
        known = builder(kit).with_timeout(20).with_tls(server.file, certificate=client.file, key=client.key)
        assert await publish(known) == 1
        unknown = builder(kit).with_tls(server.file, certificate=stranger.file, key=stranger.key)
        for refused in (unknown, builder(kit).with_tls(server.file)):
            with pytest.raises(MtsError) as raised:
                await publish(refused)
            assert raised.value.code in {"unavailable", "timeout"}


async def test_a_renewed_certificate_is_used_and_a_broken_one_is_not(server: Certificate, tmp_path: Path) -> None:
    first, renewed = tmp_path / "first.pem", certificate(tmp_path, "renewed")
    first.write_bytes(server.file.read_bytes())
    async with tls(server) as kit:
        assert await publish(builder(kit).with_timeout(20).with_tls(first)) == 1
        server.key.write_bytes(renewed.key.read_bytes())  # its certificate has not come yet
        assert await publish(builder(kit).with_timeout(20).with_tls(first)) == 2
        server.install(renewed)
        assert await publish(builder(kit).with_timeout(20).with_tls(renewed.file)) == 3


def test_what_tls_cannot_use_is_named_before_anything_starts(server: Certificate, tmp_path: Path) -> None:
    other = certificate(tmp_path, "other")
    settings = load_settings({"MTS_HOME": str(tmp_path / ".mts")}, cwd=tmp_path)
    assert tls_files(settings) is None
    for half in ({"grpc__certificate": "server.pem"}, {"grpc__key": "server.key"}, {"grpc__client_ca": "ca.pem"}):
        with pytest.raises(MtsError, match=r"grpc\.certificate and grpc\.key"):
            tls_files(settings.with_values(**half))
    for file, key, told in (
        (tmp_path / "none.pem", server.key, "none.pem"),
        (server.file, other.key, "do not belong together"),
        (server.key, server.key, "not PEM"),
    ):
        files = tls_files(settings.with_values(grpc__certificate=str(file), grpc__key=str(key)))
        assert files is not None
        with pytest.raises(MtsError, match=told) as raised:
            files.read()
        assert raised.value.code == "bad_config"


@pytest.mark.parametrize(
    ("address", "place", "is_tls"),
    [
        ("localhost:50051", "localhost:50051", False),
        ("[::1]:50051", "[::1]:50051", False),
        ("grpc://mesh:50051", "mesh:50051", False),
        ("grpcs://far.example:443", "far.example:443", True),
    ],
)
def test_an_address_says_how_it_is_spoken_to(address: str, place: str, is_tls: bool) -> None:
    target = target_of(address, Options(token="t"))
    assert (target.address, target.tls, target.token) == (place, is_tls, "t")


def test_a_token_does_not_leave_this_machine_unencrypted_by_mistake() -> None:
    with pytest.raises(MtsError, match="unencrypted"):
        target_of("far.example:50051", Options(token="t"))
    assert target_of("far.example:50051", Options(token="")).token == ""
    assert target_of("far.example:50051", Options(token="t", credentials=object())).tls


@pytest.mark.parametrize("address", ["", "localhost", ":50051", "grpcs://", "localhost:http"])
def test_what_is_no_address_is_said_at_once(address: str) -> None:
    with pytest.raises(MtsError, match="is not an address"):
        target_of(address, Options(token="t"))


def test_the_token_of_this_folders_stack_is_told_to_its_own_servers_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / ".mts"
    home.mkdir()
    state = {"grpc.ingress_port": 50061, "grpc.egress_port": 50062, "server.urls": ["http://127.0.0.1:8080"]}
    (home / "state.json").write_bytes(msgspec.json.encode({"settings": state}))
    (home / "secrets.json").write_bytes(msgspec.json.encode({"settings": {"server.token": "of-the-stack"}}))
    monkeypatch.setenv("MTS_HOME", str(home))
    monkeypatch.delenv("MTS_TOKEN", raising=False)
    for own in ("localhost:50061", "127.0.0.1:50062", "grpcs://localhost:50061"):
        assert target_of(own, Options()).token == "of-the-stack"
    assert Options().token_for("http://localhost:8080") == "of-the-stack"
    for other in ("localhost:50063", "grpc://far.example:50061", "grpcs://far.example:50061"):
        assert target_of(other, Options()).token == ""
    assert Options().token_for("http://far.example:8080") == ""
    monkeypatch.setenv("MTS_TOKEN", "said")
    assert target_of("grpcs://far.example:443", Options()).token == "said"
