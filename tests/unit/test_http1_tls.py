"""HTTPS: a certificate nobody vouches for is refused, one of a known authority is accepted."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from minitoolstream.net.http1 import HttpClient, HttpError

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    openssl = shutil.which("openssl")
    if not openssl:
        pytest.skip("no openssl here to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    command = [
        openssl,
        *options.split(),
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(cert),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


@pytest.fixture
async def url(certificate: tuple[Path, Path]) -> AsyncIterator[str]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                body = await reader.readexactly(int(head.rpartition("content-length: ")[2]))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
    yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    server.close()


async def test_an_unknown_certificate_is_refused(url: str) -> None:
    client = HttpClient()
    with pytest.raises(HttpError, match="certificate verify failed") as error:
        await client.request("PUT", url, body=b"secret")
    assert not error.value.sent
    await client.close()


async def test_payloads_of_all_sizes_go_over_https(url: str, certificate: tuple[Path, Path]) -> None:
    client = HttpClient(ssl_context=ssl.create_default_context(cafile=str(certificate[0])))
    for body in (b"hello", bytes(range(256)) * 4 * 4096):
        assert (await client.request("PUT", url, body=body)).body == body
    async with client.stream("PUT", url, body=bytes(3 * MIB)) as answer:
        assert sum([len(chunk) async for chunk in answer.chunks()]) == 3 * MIB
    await client.close()
