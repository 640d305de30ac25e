"""Codecs: what is published compressed comes back as it was, whichever way it is read."""

from __future__ import annotations

import gzip
import io
import os
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from minitoolstream.client import AsyncClient, Item, MtsError
from minitoolstream.client._codec import Decoder, decode_now, encode_now
from minitoolstream.domain.limits import MIB
from tests.unit.fake_delivery import DeliveryHost
from tests.unit.fake_host import FakeHost

TEXT = b"the same words again and again, " * 200


class CodecHost(DeliveryHost):
    """Answers with the codec of what was published, in extents too."""

    def _extent(self, pack: list[int]) -> dict[str, object]:
        return {**super()._extent(pack), "codec": self.messages[pack[0] - 1].meta.get("codec")}


@pytest.fixture
def host() -> FakeHost:
    host = CodecHost()
    host.inline = False
    return host


@pytest.fixture
def client(host: FakeHost) -> AsyncClient:
    return host.client()


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
async def test_a_payload_is_stored_compressed_and_read_as_it_was(
    codec: str, host: FakeHost, client: AsyncClient, tmp_path: Path
) -> None:
    await client.publish_batch("orders", [Item(TEXT, codec=codec, group="g")])
    (stored,) = host.messages
    assert len(stored.data) < len(TEXT) / 10
    assert stored.meta["codec"] == codec
    assert stored.meta["group"] == "g"
    message = await client.get(1)
    assert (message.codec, message.size) == (codec, len(stored.data))
    assert await client.payload(message) == TEXT
    await client.download(message, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == TEXT
    assert os.listdir(tmp_path) == ["copy"]  # noqa: PTH208
    file = io.BytesIO()
    await client.download(message, file)
    assert file.getvalue() == TEXT
    assert [message.data async for message in client.read("orders")] == [TEXT]
    async with client.subscribe("orders", idle=0) as orders:
        delivery = await anext(orders)
        assert await delivery.data() == TEXT
        assert b"".join([block async for block in delivery.stream()]) == TEXT
        await delivery.save(tmp_path / "saved")
    assert (tmp_path / "saved").read_bytes() == TEXT


async def test_what_comes_along_is_decompressed_too(host: DeliveryHost, client: AsyncClient) -> None:
    host.inline = True
    await client.publish_batch("orders", [Item(TEXT, codec="zstd")])
    assert (await client.fetch("orders", inline=True)).messages[0].data == TEXT
    async with client.subscribe("orders", idle=0) as orders:
        assert await (await anext(orders)).data() == TEXT


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
async def test_a_file_is_compressed_on_its_way_and_its_type_stays(
    codec: str, host: FakeHost, client: AsyncClient, tmp_path: Path
) -> None:
    (tmp_path / "words.txt").write_bytes(TEXT)
    await client.publish_file("orders", tmp_path / "words.txt", codec=codec, resume=False)
    (stored,) = host.messages
    assert decode_now(stored.data, codec, 1) == TEXT
    assert (stored.meta["content_type"], stored.meta["codec"]) == ("text/plain", codec)


async def test_small_messages_say_their_codec_and_group_in_headers(host: FakeHost, client: AsyncClient) -> None:
    await client.publish("orders", TEXT, codec="gzip", group="customer-7")
    assert host.sent_headers[-1]["x-mts-codec"] == "gzip"
    assert host.sent_headers[-1]["x-mts-group"] == "customer-7"
    await client.publish("orders", TEXT, codec="gzip", group="Größe")  # no HTTP header: goes as JSON
    assert host.messages[-1].meta["group"] == "Größe"
    assert host.messages[-1].meta["codec"] == "gzip"


async def test_raw_is_no_codec_and_lzop_is_refused(host: FakeHost, client: AsyncClient) -> None:
    await client.publish("orders", TEXT, codec="raw")
    assert "x-mts-codec" not in host.sent_headers[-1]
    with pytest.raises(MtsError, match="raw, gzip, zstd") as caught:
        await client.publish("orders", TEXT, codec="lzop")
    assert caught.value.code == "codec_not_allowed"


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_frames_that_follow_each_other_are_one_payload_however_they_are_cut(codec: str) -> None:
    stored = encode_now(TEXT, codec) + encode_now(b"and more", codec)
    for size in (1, 7, len(stored)):
        decoder = Decoder(codec, 1)
        blocks = [stored[start : start + size] for start in range(0, len(stored), size)]
        assert b"".join(piece for block in blocks for piece in decoder.feed(block)) == TEXT + b"and more"
        decoder.finish()


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: b"no" + data, lambda _: b""])
def test_damaged_payloads_are_told(codec: str, damage: object) -> None:
    with pytest.raises(MtsError) as caught:
        decode_now(damage(encode_now(TEXT, codec)), codec, 7)  # type: ignore[operator]
    assert caught.value.code == "checksum_mismatch"
    assert "message 7" in caught.value.message


@pytest.mark.parametrize(
    "bomb",
    [
        ("gzip", gzip.compress(b"\0" * (100 * MIB), 9)),
        ("zstd", zstandard.ZstdCompressor().compress(b"\0" * (100 * MIB))),
    ],
    ids=["gzip", "zstd"],
)
def test_a_payload_that_explodes_is_refused_in_memory_and_streams_in_little(bomb: tuple[str, bytes]) -> None:
    codec, data = bomb
    with pytest.raises(MtsError) as caught:
        decode_now(data, codec, 1, 16 * MIB)
    assert caught.value.code == "too_large"
    tracemalloc.start()
    assert sum(len(piece) for piece in Decoder(codec, 1).feed(data)) == 100 * MIB
    assert tracemalloc.get_traced_memory()[1] < 32 * MIB
    tracemalloc.stop()


def test_a_payload_that_does_not_compress_comes_back_too() -> None:
    noise = os.urandom(3 * MIB)
    for codec in ("gzip", "zstd"):
        assert decode_now(encode_now(noise, codec), codec, 1) == noise
