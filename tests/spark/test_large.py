"""Payloads of any size, block by block, on a store in memory."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from minitoolstream.adapters.memory.payloads import MemoryPayloads
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MIB
from spark_emr.reader.large import stored_blocks
from tests.spark.kit import put_pack, put_plain

BODY = b"".join(bytes([n]) * MIB for n in range(100))


class CountingPayloads(MemoryPayloads):
    """Knows how many ranges are under way."""

    def __init__(self) -> None:
        super().__init__()
        self.open = self.most = self.ranges = 0

    def blocks(self, name: str, first: int, last: int, *, size: int | None = None) -> Generator[bytes]:
        found = self._counted(super().blocks(name, first, last, size=size))
        next(found)
        return found

    def _counted(self, blocks: Generator[bytes]) -> Generator[bytes]:
        self.open += 1
        self.ranges += 1
        self.most = max(self.most, self.open)
        try:
            yield b""
            yield from blocks
        finally:
            self.open -= 1


@pytest.fixture
def store() -> CountingPayloads:
    return CountingPayloads()


def test_a_payload_comes_whole_and_in_order_by_ranges(store: CountingPayloads) -> None:
    extent = put_plain(store, 1, BODY)
    assert b"".join(stored_blocks(store, extent)) == BODY
    assert (store.open, store.most, store.ranges) == (0, 2, 4)


def test_a_frame_of_a_pack_comes_like_an_object(store: CountingPayloads) -> None:
    extent = put_pack(store, 2, [BODY[: 40 * MIB]])
    assert b"".join(stored_blocks(store, extent)) == BODY[: 40 * MIB]


def test_who_stops_in_the_middle_leaves_nothing_open(store: CountingPayloads) -> None:
    blocks = stored_blocks(store, put_plain(store, 1, BODY))
    next(blocks)
    blocks.close()
    assert store.open == 0


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("damage", ["payload_missing", "size_mismatch", "checksum_mismatch"])
def test_damage_is_an_error_with_the_sequence(store: CountingPayloads, damage: str, packed: bool) -> None:
    extent = put_pack(store, 7, [b"payload"]) if packed else put_plain(store, 7, b"payload")
    stored = store.objects[extent.object_name]
    if damage == "payload_missing":
        del store.objects[extent.object_name]
    elif damage == "checksum_mismatch":
        stored.body = stored.body.replace(b"payload", b"PAYLOAD")
    elif packed:
        stored.body = stored.body.replace((7).to_bytes(4, "big"), (8).to_bytes(4, "big"))
    else:
        stored.body += b"!"
    with pytest.raises(MtsError, match="message 7 ") as caught:
        list(stored_blocks(store, extent))
    assert (caught.value.code, caught.value.details["sequence"]) == (damage, 7)


def test_without_a_checksum_only_the_size_is_looked_at(store: CountingPayloads) -> None:
    extent = put_plain(store, 7, b"payload")
    store.objects[extent.object_name].body = b"PAYLOAD"
    assert b"".join(stored_blocks(store, extent, checksum=False)) == b"PAYLOAD"
    store.objects[extent.object_name].body = b"PAYLOAD!"
    with pytest.raises(MtsError, match="another size"):
        list(stored_blocks(store, extent, checksum=False))
