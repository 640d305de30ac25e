"""What readers may write: names, starts, filters."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitoolstream.domain.consumer import (
    AtTime,
    Condition,
    check_durable,
    check_filter,
    read_after,
    read_filter,
    read_start,
)
from minitoolstream.domain.errors import MtsError

WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@pytest.mark.parametrize("name", ["a", "A.b_c-d", "0" * 255])
def test_a_durable_has_a_plain_name(name: str) -> None:
    assert check_durable(name) == name


@pytest.mark.parametrize("name", ["", "a/b", ".a", "ä", "a b", "a" * 256, "a\n"])
def test_a_name_that_is_not_plain_is_refused(name: str) -> None:
    with pytest.raises(MtsError, match="durable"):
        check_durable(name)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("0", 0),
        (7, 7),
        ("first", "first"),
        ("last", "last"),
        ("new", "new"),
        ("time:1700000000", AtTime(1_700_000_000)),
        ("time:1700000000.5", AtTime(1_700_000_001)),
        ("time:2023-11-14T22:13:20Z", AtTime(1_700_000_000)),
        ("time:2023-11-14T23:13:20+01:00", AtTime(1_700_000_000)),
        ("time:2023-11-14T22:13:20", AtTime(1_700_000_000)),
        ("time:2023-11-14", AtTime(1_699_920_000)),
    ],
)
def test_a_start_is_a_sequence_a_word_or_a_time(text: int | str, start: object) -> None:
    assert read_start(text) == start


@pytest.mark.parametrize("text", ["", "latest", "-1", "1.5", "time:", "time:yesterday", "time:-5", "time:1960-01-01"])
def test_any_other_start_is_refused(text: str) -> None:
    with pytest.raises(MtsError) as caught:
        read_start(text)
    assert caught.value.details["field"] == "start"


def test_a_filter_has_conditions_that_must_all_hold() -> None:
    assert read_filter("kind=order,region^=eu-") == (
        Condition("kind", "equals", "order"),
        Condition("region", "prefix", "eu-"),
    )
    assert read_filter("kind=") == (Condition("kind", "equals", ""),)
    assert read_filter("formula=a=b") == (Condition("formula", "equals", "a=b"),)
    assert read_filter("Kind=order") == (Condition("Kind", "equals", "order"),), "names keep their case when published"


@given(value=WORDS)
def test_a_backslash_keeps_what_would_separate(value: str) -> None:
    escaped = value.replace("\\", "\\\\").replace(",", "\\,")
    assert read_filter(f"a={escaped},b=1") == (Condition("a", "equals", value), Condition("b", "equals", "1"))


@pytest.mark.parametrize("text", ["", "kind", "=order", "a=b,", ",a=b", "a=b\\", "^=a"])
def test_a_filter_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(MtsError) as caught:
        read_filter(text)
    assert caught.value.details["field"] == "filter"


@given(text=st.text())
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    with suppress(MtsError):
        assert read_filter(text)


def test_a_filter_has_bounds() -> None:
    with pytest.raises(MtsError, match="at most 16"):
        check_filter([Condition("a", "equals", "b")] * 17)
    with pytest.raises(MtsError, match="larger"):
        check_filter([Condition("a", "equals", "b" * 20_000)])
    with pytest.raises(MtsError, match="UTF-8"):
        check_filter([Condition("a", "equals", "\ud800")])


def test_how_far_a_session_got_is_said_by_partition() -> None:
    assert read_after("0:17:5,3:9:6") == ((0, 17, 5), (3, 9, 6))
    assert read_after("0:17") == ((0, 17),)
    for text in ("", "0", "0:", "0::1", "a:1:1", "0:1:1,", "0:1:1:1"):
        with pytest.raises(MtsError):
            read_after(text)
