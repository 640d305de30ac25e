"""Plans from the journal, on a store in memory: read as a restore reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from minitoolstream.adapters.memory.payloads import MemoryPayloads
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.journal import Segment, decode, encode, merged, segment_name
from minitoolstream.domain.message import Extent
from spark_emr.reader.journal import journal_rows
from tests.spark.kit import SUBJECT, options, pack, plain


def row(extent: Extent) -> list[Any]:
    return list(msgspec.structs.astuple(extent))


def subject_row(first_sequence: int = 0) -> list[Any]:
    return ["subject", [SUBJECT, 1, 1, 1000, {}, first_sequence, 1], None, None]


def head(sequence: int) -> list[Any]:
    return ["partition", [SUBJECT, 0, 10, 10, 10, 0], None, sequence]


class Journal:
    def __init__(self) -> None:
        self.store = MemoryPayloads()
        self._number = 0
        self._upto = 0

    def write(
        self,
        rows: Sequence[Extent] = (),
        side: Sequence[list[Any]] = (),
        removed: Sequence[int] = (),
        checkpoint: bool = False,
        after: int = 2**62,
    ) -> None:
        self._number += 1
        after = min([after, self._upto, *(extent.sequence - extent.count for extent in rows)])
        self._upto = max([self._upto, *(extent.sequence for extent in rows)])
        segment = Segment(
            self._number, after, self._upto, 0, checkpoint, True, [row(one) for one in rows], list(side), list(removed)
        )
        self.store.client_put(segment_name(segment), encode(segment))

    async def sequences(self, **changes: Any) -> list[int]:
        found = await journal_rows(self.store, options(**changes))
        return [n for extent in found for n in range(extent.sequence - extent.count + 1, extent.sequence + 1)]


@pytest.fixture
def journal() -> Journal:
    made = Journal()
    made.write(side=[subject_row()], checkpoint=True)
    return made


async def test_rows_of_all_segments_come_in_order(journal: Journal) -> None:
    journal.write([plain(1, 10), pack(5, [1, 1, 1, 1])])
    journal.write([plain(6, 10)])
    assert await journal.sequences() == [1, 2, 3, 4, 5, 6]
    assert await journal.sequences(from_sequence=3, to_sequence=5) == [3, 4, 5]


async def test_of_a_row_that_changed_the_later_one_counts(journal: Journal) -> None:
    journal.write([pack(5, [1] * 5, name="old"), plain(6, 10)])
    journal.write([pack(2, [1, 1], name="new"), pack(5, [1, 1], name="new")])
    found = await journal_rows(journal.store, options())
    assert [(extent.sequence, extent.count, extent.object_name) for extent in found[:2]] == [
        (2, 2, "new"),
        (5, 2, "new"),
    ]


async def test_of_a_row_that_changed_the_later_one_counts_where_the_range_ends_inside_the_old_one(
    journal: Journal,
) -> None:
    journal.write([pack(5, [1] * 5)])
    journal.write([pack(2, [1, 1]), pack(5, [1, 1])])  # without 3
    assert await journal.sequences(to_sequence=2) == [1, 2]
    assert await journal.sequences(from_sequence=3, to_sequence=3) == []


async def test_what_became_of_a_row_counts_also_when_it_stands_behind_the_range_and_before_a_checkpoint(
    journal: Journal,
) -> None:
    journal.write([pack(5, [1] * 5), pack(9, [1] * 4)])
    journal.write([pack(5, [1, 1, 1])])  # without 1 and 2
    journal.write(removed=[9], after=8)
    journal.write(side=[subject_row()], checkpoint=True)
    assert await journal.sequences(to_sequence=2) == []
    assert await journal.sequences(to_sequence=6) == [3, 4, 5]


async def test_what_was_removed_or_lies_before_its_partitions_head_is_gone(journal: Journal) -> None:
    journal.write([plain(n, 10) for n in range(1, 7)])
    journal.write(removed=[4])
    journal.write(side=[head(3)])
    assert await journal.sequences() == [3, 5, 6]


async def test_messages_of_a_deleted_incarnation_are_gone(journal: Journal) -> None:
    journal.write([plain(1, 10), plain(2, 10)])
    journal.write(side=[["subject", None, [SUBJECT]]])  # a row that is gone has no head behind its key
    for again in (False, True):  # a checkpoint leaves out what is gone
        journal.write(checkpoint=again)
        with pytest.raises(MtsError, match="knows no subject"):
            await journal.sequences()
    journal.write([plain(3, 10)], side=[subject_row(first_sequence=3)])
    assert await journal.sequences() == [3]


async def test_segments_that_are_merged_while_they_are_read_are_looked_for_again(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.write([plain(1, 10)])
    journal.write([plain(2, 10)])
    journal.write(side=[subject_row()], checkpoint=True)
    look = journal.store.list_after

    async def look_and_merge(*args: Any) -> Any:
        found = await look(*args)
        whole = merged([decode(e.name, await journal.store.get_whole(e.name, e.size)) for e in found[1:3]])
        await journal.store.delete_many([entry.name for entry in found[1:3]])
        journal.store.client_put(segment_name(whole), encode(whole))
        monkeypatch.undo()
        return found

    monkeypatch.setattr(journal.store, "list_after", look_and_merge)
    assert await journal.sequences() == [1, 2]


async def test_times_and_partitions_are_looked_at(journal: Journal) -> None:
    journal.write([plain(1, 10, partition=1), plain(2, 10)])
    assert await journal.sequences(partition=1) == [1]
    assert await journal.sequences(from_time=1001) == []
    assert await journal.sequences(to_time=1001) == [1, 2]


async def test_a_range_that_ends_behind_the_journal_is_refused(journal: Journal) -> None:
    journal.write([plain(1, 10)])
    with pytest.raises(MtsError, match="toSequence 9 is behind 1") as error:
        await journal.sequences(to_sequence=9)
    assert error.value.code == "bad_request"


async def test_a_subject_or_journal_that_is_not_there_is_told(journal: Journal) -> None:
    with pytest.raises(MtsError) as error:
        await journal_rows(MemoryPayloads(), options())
    assert error.value.code == "not_found"
    empty = Journal()
    empty.write()
    with pytest.raises(MtsError) as error:
        await empty.sequences()
    assert error.value.code == "unknown_subject"
