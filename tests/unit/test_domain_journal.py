"""Segments of the journal and names of the ceiling."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from minitoolstream.domain.backup import Piece, check_piece, ids_of, made_at_ms, piece_of, read_manifest
from minitoolstream.domain.ceiling import STEP, ceiling_name, highest, lower_than, next_ceiling
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.journal import (
    Segment,
    decode,
    encode,
    merged,
    newest_checkpoint,
    parse_name,
    segment_name,
    segments_of,
)
from minitoolstream.domain.keys import JOURNAL_PREFIX
from minitoolstream.domain.limits import MAX_SEQUENCE
from minitoolstream.domain.subject import new_id

BEYOND = 2**53 + 1


def segment(number: int = 1, *, checkpoint: bool = False, complete: bool = True) -> Segment:
    row = [BEYOND, {"a": "b"}, "m/s/1/x", "s", 1, 0, 0, 1, 3, None, None, None, "text/plain", None, None, None]
    side: list[list[Any]] = [["partition", ["s", 0, 1, 1, 3, 0], None, BEYOND], ["consumers", None, ["d", "s"]]]
    return Segment(number, BEYOND - 1, BEYOND, 1234, checkpoint, complete, [row], side, [BEYOND - 5])


def test_a_segment_comes_back_as_it_was() -> None:
    assert decode("x", encode(segment())) == segment()


def test_put_together_messages_that_are_gone_keep_nothing_of_their_headers() -> None:
    rows: list[list[Any]] = [
        [key, {"name": name}, "_mts/packs/x", "s", 1, 0, 0, 2, 6, 9, [3, 3], [[0, {"of": name}, None]], "text/plain"]
        for key, name in ((2, "gone"), (4, "kept"))
    ]
    parts = [Segment(1, 0, 4, 1, False, True, rows), Segment(2, 4, 4, 2, False, True, [], [], [2])]
    whole = merged(parts)
    assert [(row[0], row[1], row[11]) for row in whole.rows] == [
        (2, {}, None),
        (4, {"name": "kept"}, [[0, {"of": "kept"}, None]]),
    ]
    assert [row[2:11] for row in whole.rows] == [row[2:11] for row in rows], "a restore finds its payload by it"
    assert whole.removed == [2]
    assert b"gone" not in zlib.decompress(encode(whole)[37:])


def test_a_segments_name_tells_what_is_in_it() -> None:
    name = segment_name(segment(7, checkpoint=True))
    parsed = parse_name(name)
    assert parsed is not None
    assert (parsed.number, parsed.after, parsed.upto) == (7, BEYOND - 1, BEYOND)
    assert (parsed.checkpoint, parsed.complete, parsed.name) == (True, True, name)


@pytest.mark.parametrize("at", [0, 10, 40, -1])
def test_a_damaged_segment_is_never_read(at: int) -> None:
    content = bytearray(encode(segment()))
    content[at] ^= 1
    with pytest.raises(MtsError, match="seg-1 is damaged") as refused:
        decode("seg-1", bytes(content))
    assert refused.value.code == "checksum_mismatch"


def test_a_segment_that_was_cut_off_is_never_read() -> None:
    with pytest.raises(MtsError, match="damaged"):
        decode("seg-1", encode(segment())[:-7])


def test_segments_are_replayed_in_the_order_of_their_numbers_and_foreign_objects_are_none() -> None:
    names = [segment_name(segment(number)) for number in (10, 9, 100)]
    found = segments_of([*names, f"{JOURNAL_PREFIX}notes.txt", "_mts/packs/x"])
    assert [one.number for one in found] == [9, 10, 100]


def test_the_newest_checkpoint_is_the_newest_whole_one() -> None:
    rounds = [
        segment(1, checkpoint=True, complete=False),
        segment(2, checkpoint=True),
        segment(3),
        segment(4, checkpoint=True, complete=False),
        segment(5, checkpoint=True, complete=False),
        segment(6, checkpoint=True),
        segment(7),
        segment(8, checkpoint=True, complete=False),
    ]
    found = newest_checkpoint(segments_of(map(segment_name, rounds)))
    assert found is not None
    assert found.number == 4
    assert newest_checkpoint(segments_of([segment_name(segment(3))])) is None


def test_the_ceiling_is_the_largest_name() -> None:
    names = [ceiling_name(value) for value in (STEP, BEYOND, 5)]
    assert highest([*names, "_mts/ceiling/readme"]) == BEYOND
    assert highest([]) == 0
    assert lower_than(names, BEYOND) == [ceiling_name(STEP), ceiling_name(5)]
    assert names == sorted(names, key=lambda name: names.index(name))
    assert ceiling_name(5) < ceiling_name(STEP) < ceiling_name(BEYOND), "so the bucket lists them in order"


def test_the_next_ceiling_never_passes_the_largest_sequence() -> None:
    assert next_ceiling(BEYOND) == BEYOND + STEP
    assert next_ceiling(MAX_SEQUENCE - 3) == MAX_SEQUENCE


def test_a_backup_without_its_manifest_is_none() -> None:
    one, other = new_id(1_000), new_id(2_000)
    names = [f"{one}/manifest.json", f"{one}/1.snap.00000", f"{other}/1.snap.00000", "notes/manifest.json"]
    assert ids_of(names) == ([one], [other])
    assert made_at_ms(other) == 2_000


def test_a_damaged_backup_is_an_error_that_says_so() -> None:
    piece = piece_of("1.snap", 0, b"content")
    assert check_piece("b", piece, b"content") == b"content"
    for wrong in (b"Content", b"conten"):
        with pytest.raises(MtsError, match="damaged"):
            check_piece("b", Piece(piece.name, piece.size, piece.sha256), wrong)
    with pytest.raises(MtsError, match="damaged"):
        read_manifest("b", b"{")
