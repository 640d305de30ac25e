"""The pack that takes the place of another: every byte that is kept once, at the place its row will look for it."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitoolstream.domain.deletion import Kept, check_reason, lay_out
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pack import (
    FRAME_PREFIX,
    HEAD_PREFIX,
    FrameCheck,
    InlineMessage,
    build_pack,
    head_length,
    read_frames,
    read_head,
)


def facts(sizes: list[int], **more: Any) -> dict[str, Any]:
    return {"subject": "s", "headers": {}, "content_type": "a/b", "codec": None, "sizes": sizes, "own": None, **more}


def packed(*payloads: bytes, **more: Any) -> tuple[bytes, int]:
    """A pack of ours, and where its frames begin."""
    messages = [InlineMessage("s", data, "a/b", producer_id="p", seqno=n) for n, data in enumerate(payloads, 1)]
    pack = build_pack(messages, **more)
    return b"".join(pack.body), pack.groups[0].byte_from


def rewritten(body: bytes, kept: list[Kept], head: bytes = b"") -> tuple[bytes, dict[int | str, int]]:
    layout = lay_out(kept, head)
    new = layout.head + b"".join(body[start:end] for start, end in layout.runs)
    assert len(new) == layout.size
    return new, {move.kept.key: move.first for move in layout.moves}


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=12),
    data=st.data(),
)
def test_what_is_kept_reads_the_same_in_the_new_pack(sizes: list[int], data: st.DataObject) -> None:
    payloads = [bytes([65 + n]) * size for n, size in enumerate(sizes)]
    body, at = packed(*payloads)
    starts = [at + sum(size + FRAME_PREFIX for size in sizes[:n]) for n in range(len(sizes))]
    kept = []
    for key in range(data.draw(st.integers(1, 6))):
        first = data.draw(st.integers(0, len(sizes) - 1))
        count = data.draw(st.integers(1, len(sizes) - first))
        length = sum(size + FRAME_PREFIX for size in sizes[first : first + count])
        kept.append(Kept("row", key, starts[first], length, facts(sizes[first : first + count])))
    new, places = rewritten(body, kept, body[:at])
    needed: set[int] = set()
    for one in kept:
        place = places[one.key]
        assert new[place : place + one.length] == body[one.first : one.first + one.length]
        assert list(read_frames(new[place : place + one.length]))
        needed |= set(range(one.first, one.first + one.length))
    head = new[: head_length(new[:HEAD_PREFIX])]
    assert len(new) == len(head) + len(needed), "every byte once, and no other"


def test_a_head_tells_of_what_is_kept_and_of_nothing_else() -> None:
    body, at = packed(b"one", b"two", b"three")
    third = at + 2 * (3 + FRAME_PREFIX)
    kept = [
        Kept("row", 1, at, 3 + FRAME_PREFIX, facts([3], headers={"h": "1"})),
        Kept("row", 3, third, 5 + FRAME_PREFIX, facts([5])),
        Kept("row", 9, third, 5 + FRAME_PREFIX, facts([5], headers={"mts-dlq-reason": "nacked"})),
    ]
    layout = lay_out(kept, body[:at])
    groups = read_head(layout.head)
    assert groups is not None
    assert [group["sizes"] for group in groups] == [[3], [5]], "a dead letter's bytes are described once"
    assert groups[0]["headers"] == {"h": "1"}
    assert [group["marks"][0]["seqno"] for group in groups] == [1, 3], "who published what is taken over"


def test_without_a_head_of_ours_rows_tell() -> None:
    layout = lay_out([Kept("row", 1, 11, 3 + FRAME_PREFIX, facts([3]))], b"")
    groups = read_head(layout.head)
    assert groups is not None
    assert (groups[0]["sizes"], groups[0]["marks"]) == ([3], [])


@pytest.mark.parametrize("beginning", [b"", b"MTSP\x01", b"something else", b"MTSP\x01\x00\x00\x00\x02[1"])
def test_what_is_no_head_is_none(beginning: bytes) -> None:
    assert read_head(beginning) is None


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 20))
def test_frames_are_checked_block_by_block(payloads: list[bytes], block: int) -> None:
    body, at = packed(*payloads) if payloads else (b"", 0)
    check = FrameCheck()
    for start in range(at, len(body), block):
        check.feed(body[start : start + block])
    check.finish()
    assert check.sizes == [len(payload) for payload in payloads]


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=4), st.data())
def test_a_flipped_bit_is_found(payloads: list[bytes], data: st.DataObject) -> None:
    body, at = packed(*payloads)
    frames = bytearray(body[at:])
    place = data.draw(st.integers(0, len(frames) - 1))
    frames[place] ^= 1 << data.draw(st.integers(0, 7))
    check = FrameCheck()
    with contextlib.suppress(MtsError):
        check.feed(bytes(frames))
        check.finish()
        assert check.sizes != [len(payload) for payload in payloads], "it looks right, and is not"


def test_a_frame_that_ends_early_is_found() -> None:
    body, at = packed(b"payload")
    for end in (at + 3, len(body) - 1):
        check = FrameCheck()
        check.feed(body[at:end])
        with pytest.raises(MtsError):
            check.finish()


@pytest.mark.parametrize("reason", ["x" * 1001, "two\nlines", "\x1b[31m"])
def test_a_reason_is_one_printable_line(reason: str) -> None:
    with pytest.raises(MtsError):
        check_reason(reason)
    assert check_reason("asked for by §17") == "asked for by §17"
