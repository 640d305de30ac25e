"""Reading what was planned, on a store in memory."""

from __future__ import annotations

import gzip

import msgspec
import pytest

from minitoolstream.adapters.memory.payloads import MemoryPayloads
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import KIB, MIB
from minitoolstream.domain.message import Extent, cut_extent
from spark_emr.reader.plan import Part
from spark_emr.reader.read import read_parts
from tests.spark.kit import options, pack, payloads_of, plain, put_pack, put_plain, read


class CountingPayloads(MemoryPayloads):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, int, int]] = []

    async def get_range(self, name: str, first: int, last: int) -> bytes:
        self.asked.append((name, first, last))
        return await super().get_range(name, first, last)

    async def get_whole(self, name: str, size: int) -> bytes:
        self.asked.append((name, 0, size - 1))
        return await super().get_whole(name, size)


@pytest.fixture
def store() -> CountingPayloads:
    return CountingPayloads()


async def test_a_pack_is_read_once_for_all_its_messages(store: CountingPayloads) -> None:
    payloads = [b"%d" % n * n for n in range(100)]
    found = await read(store, [put_pack(store, 100, payloads)])
    assert payloads_of(found) == payloads
    assert len(store.asked) == 1


async def test_rows_of_the_same_pack_share_one_look(store: CountingPayloads) -> None:
    whole = put_pack(store, 6, [b"a" * 10, b"b" * 10, b"c" * 10, b"d" * 10, b"e" * 10, b"f" * 10])
    begin = whole.byte_from or 0
    rows = [
        pack(2, [10, 10], name=whole.object_name, byte_from=begin),
        pack(6, [10, 10], name=whole.object_name, byte_from=begin + 4 * 18),
    ]
    assert payloads_of(await read(store, rows)) == [b"a" * 10, b"b" * 10, b"e" * 10, b"f" * 10]
    assert len(store.asked) == 1


async def test_whole_objects_come_in_their_order(store: CountingPayloads) -> None:
    extents = [put_plain(store, n, b"payload %d" % n) for n in range(1, 200)]
    found = await read(store, extents)
    assert payloads_of(found) == [b"payload %d" % n for n in range(1, 200)]
    assert [stretch.extent.sequence for stretch in found] == list(range(1, 200))


async def test_empty_payloads_are_payloads(store: CountingPayloads) -> None:
    assert payloads_of(await read(store, [put_plain(store, 1, b""), put_pack(store, 3, [b"", b"x"])])) == [
        b"",
        b"",
        b"x",
    ]


async def test_a_large_object_is_read_by_ranges(store: CountingPayloads) -> None:
    body = bytes(20 * MIB)
    assert payloads_of(await read(store, [put_plain(store, 1, body)])) == [body]
    assert len(store.asked) == 3


async def test_a_large_pack_is_read_some_frames_at_a_time(store: CountingPayloads) -> None:
    payloads = [bytes([n]) * (3 * MIB) for n in range(12)]
    assert payloads_of(await read(store, [put_pack(store, 12, payloads)])) == payloads
    assert max(last - first for _, first, last in store.asked) < 16 * MIB


async def test_payloads_above_the_limit_stay_in_the_store(store: CountingPayloads) -> None:
    extents = [put_plain(store, 1, b"small"), plain(2, 100 * MIB), put_pack(store, 4, [b"x" * 2000, b"y"])]
    found = await read(store, extents, large_bytes=1000)
    assert payloads_of(found) == [b"small", None, None, b"y"]
    assert [problem for stretch in found for problem in stretch.problems.values()] == ["reference", "reference"]


async def test_or_come_in_chunks(store: CountingPayloads) -> None:
    body = bytes(range(256)) * 1024
    extent = put_plain(store, 2, body)
    parts = [Part(put_plain(store, 1, b"small")), Part(extent, 0, 2), Part(extent, 2, 2)]
    wanted = options(large="chunks", large_bytes=100 * KIB, chunk_bytes=64 * KIB)
    found = [stretch async for stretch in read_parts(store, parts, wanted)]
    assert [stretch.chunk for stretch in found] == [0, 0, 1, 2, 3]
    assert b"".join(payload or b"" for payload in payloads_of(found[1:])) == body


@pytest.mark.parametrize(
    ("stored", "problem"), [(None, "payload_missing"), (300, "size_mismatch"), (150, "size_mismatch")]
)
async def test_each_chunk_of_what_is_not_as_large_as_its_row_says_tells_so(
    store: CountingPayloads, stored: int | None, problem: str
) -> None:
    extent = plain(2, 200 * KIB)
    if stored is not None:
        store.client_put(extent.object_name, bytes(stored * KIB))
    wanted = options(large="chunks", large_bytes=100 * KIB, chunk_bytes=64 * KIB, on_missing="null")
    found = [stretch async for stretch in read_parts(store, [Part(extent, 0, 4)], wanted)]
    assert [(stretch.chunk, stretch.problems) for stretch in found] == [(n, {0: problem}) for n in range(4)]


async def test_chunks_of_a_message_whose_pack_was_written_anew_are_found_again(store: CountingPayloads) -> None:
    body = bytes(range(256)) * 1024
    now = put_pack(store, 2, [b"small", body])

    async def locate(subject: str, first: int, last: int) -> list[Extent]:
        return [cut_extent(now, first, last)]

    old = pack(2, [len(body)], name="_mts/packs/rewritten")
    wanted = options(large="chunks", large_bytes=100 * KIB, chunk_bytes=64 * KIB)
    found = [stretch async for stretch in read_parts(store, [Part(old, 0, 4)], wanted, locate)]
    assert [stretch.chunk for stretch in found] == [0, 1, 2, 3]
    assert b"".join(payload or b"" for payload in payloads_of(found)) == body


async def test_each_chunk_of_a_message_that_is_known_to_be_missing_by_now_tells_so(store: CountingPayloads) -> None:
    old = pack(2, [200 * KIB], name="_mts/packs/rewritten")

    async def locate(subject: str, first: int, last: int) -> list[Extent]:
        return [msgspec.structs.replace(old, missing=True, object_name="_mts/packs/now")]

    wanted = options(large="chunks", large_bytes=100 * KIB, chunk_bytes=64 * KIB, on_missing="null")
    found = [stretch async for stretch in read_parts(store, [Part(old, 0, 4)], wanted, locate)]
    assert [(stretch.chunk, stretch.problems) for stretch in found] == [(n, {0: "payload_missing"}) for n in range(4)]


async def test_a_large_frame_of_a_pack_comes_in_chunks_too(store: CountingPayloads) -> None:
    payloads = [b"a", bytes(range(256)) * 1024, b"b"]
    found = await read(
        store, [put_pack(store, 3, payloads)], large="chunks", large_bytes=100 * KIB, chunk_bytes=64 * KIB
    )
    got = [(stretch.extent.sequence, stretch.chunk) for stretch in found]
    assert got == [(1, 0), (2, 0), (2, 1), (2, 2), (2, 3), (3, 0)]
    assert b"".join(payload or b"" for payload in payloads_of(found)) == b"".join(payloads)


async def test_codecs_are_undone_unless_told_otherwise(store: CountingPayloads) -> None:
    stored = gzip.compress(b"hello")
    extent = put_plain(store, 1, stored, codec="gzip")
    assert payloads_of(await read(store, [extent])) == [b"hello"]
    assert payloads_of(await read(store, [extent], decode=False)) == [stored]


async def test_a_pack_that_grows_when_it_is_decoded_comes_some_messages_at_a_time(
    store: CountingPayloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_emr.reader.read._DECODED", 1000)
    bodies = [bytes([number]) * 400 for number in range(5)]
    stored = [*map(gzip.compress, bodies[:4]), b"not gzip"]
    own = [[3, {"mine": "yes"}, None]]
    found = await read(store, [put_pack(store, 9, stored, codec="gzip", own=own)], on_missing="null")
    assert [(stretch.extent.sequence, stretch.extent.count) for stretch in found] == [(7, 3), (9, 2)]
    assert payloads_of(found) == [*bodies[:4], None]
    assert found[1].extent.own == [[0, {"mine": "yes"}, None]]
    assert found[1].problems == {1: "checksum_mismatch"}


def broken(store: MemoryPayloads) -> dict[str, Extent]:
    """Payloads that are not what their rows say, one of a kind."""
    of_another_size = put_plain(store, 3, b"right")
    store.objects[of_another_size.object_name].body = b"longer than it should be"
    changed = put_plain(store, 4, b"right")
    store.objects[changed.object_name].body = b"wrong"
    return {
        "payload_missing": plain(1, b"nobody stored me"),
        "size_mismatch": of_another_size,
        "checksum_mismatch": changed,
    }


@pytest.mark.parametrize("problem", ["payload_missing", "size_mismatch", "checksum_mismatch"])
async def test_a_payload_that_is_not_what_its_row_says_is_an_error_with_its_sequence(
    store: CountingPayloads, problem: str
) -> None:
    extent = broken(store)[problem]
    with pytest.raises(MtsError, match=f"message {extent.sequence} ") as error:
        await read(store, [extent])
    assert (error.value.code, error.value.details["sequence"]) == (problem, extent.sequence)


async def test_or_it_is_told_in_its_row(store: CountingPayloads) -> None:
    extents = broken(store)
    found = await read(store, [*extents.values(), put_plain(store, 9, b"fine")], on_missing="null")
    assert payloads_of(found) == [None, None, None, b"fine"]
    assert [stretch.problems.get(0) for stretch in found] == [*extents, None]


async def test_a_damaged_frame_does_not_concern_its_neighbours(store: CountingPayloads) -> None:
    extent = put_pack(store, 3, [b"one", b"two", b"three"])
    stored = store.objects[extent.object_name]
    stored.body = stored.body.replace(b"two", b"2wo")
    found = await read(store, [extent], on_missing="null")
    assert payloads_of(found) == [b"one", None, b"three"]
    with pytest.raises(MtsError, match="message 2 "):
        await read(store, [extent])


async def test_a_pack_that_was_cut_off_has_what_lies_before_its_end(store: CountingPayloads) -> None:
    extent = put_pack(store, 9, [b"seven", b"eight", b"nine"])
    stored = store.objects[extent.object_name]
    stored.body = stored.body[:-1]
    found = await read(store, [extent], on_missing="null")
    assert payloads_of(found) == [b"seven", b"eight", None]
    assert [stretch.problems for stretch in found] == [{}, {0: "payload_missing"}]
    with pytest.raises(MtsError, match="message 9 "):
        await read(store, [extent])


async def test_what_claims_to_be_compressed_and_is_not_is_damaged(store: CountingPayloads) -> None:
    with pytest.raises(MtsError, match=r"message 5 .* not the zstd") as error:
        await read(store, [put_plain(store, 5, b"plain text", codec="zstd")])
    assert error.value.code == "checksum_mismatch"


async def test_rows_that_are_known_to_have_no_payload_are_not_looked_for(store: CountingPayloads) -> None:
    extents = [plain(1, 10, missing=True), plain(2, 10, unverified=True)]
    found = await read(store, extents, on_missing="null")
    assert [stretch.problems[0] for stretch in found] == ["payload_missing", "unverified"]
    assert store.asked == []


async def test_a_message_whose_pack_was_written_anew_is_found_again(store: CountingPayloads) -> None:
    old = pack(3, [3, 3, 5], name="_mts/packs/rewritten")
    now = put_pack(store, 3, [b"two", b"three"])

    async def locate(subject: str, first: int, last: int) -> list[Extent]:
        assert (subject, first, last) == ("orders", 1, 3)
        return [now]

    found = await read(store, [old], locate, on_missing="null")
    assert payloads_of(found) == [b"two", b"three", None]
    assert found[-1].extent.sequence == 1


async def test_a_store_that_is_away_is_not_a_missing_payload(store: CountingPayloads) -> None:
    extent = put_plain(store, 8, b"there")
    store.down = True
    with pytest.raises(MtsError) as error:
        await read(store, [extent], on_missing="skip")
    assert (error.value.code, error.value.details["sequence"]) == ("unavailable", 8)
