"""What the tests of faults would notice: each broken promise by its name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.audit import Faults, find_faults
from tests.faults.load import LARGE, name_of, payload_of

SENT = {"till-1": 3, "till-2": 5, "other-1": 6}


def faults_of(names: list[str], sequences: tuple[int, ...] = (3, 5, 6), **changes: Any) -> Faults:
    messages = [
        {"sequence": sequence, "partition": 0, "offset": changes.get("offsets", range(9))[place]}
        for place, sequence in enumerate(sequences)
    ]
    payloads = {sequence: payload_of(name) for sequence, name in zip(sequences, names, strict=True)}
    return find_faults(messages, payloads | changes.get("payloads", {}), SENT)


def test_what_is_as_it_was_acknowledged_has_no_fault() -> None:
    assert faults_of(["till-1", "till-2", "other-1"]).all() == []


def test_what_had_its_time_is_missing_at_the_head_and_no_fault() -> None:
    assert faults_of(["till-2", "other-1"], (5, 6), offsets=[7, 8]).all() == []


@pytest.mark.parametrize(
    ("names", "changes", "kind"),
    [
        (["till-1", "gone-9", "other-1"], {}, "lost"),
        (["till-1", "till-2", "other-1"], {"payloads": {5: payload_of("till-2")[:-1]}}, "lost"),
        (["till-1", "till-2", "till-2"], {}, "doubled"),
        (["till-2", "till-1", "other-1"], {}, "reordered"),
        (["till-1", "till-2", "other-1"], {"sequences": (3, 6, 5)}, "reordered"),
        (["till-1", "till-2", "other-1"], {"sequences": (3, 5, 5)}, "reordered"),
        (["till-1", "till-2", "other-1"], {"offsets": [0, 1, 3]}, "reordered"),
    ],
)
def test_each_broken_promise_is_noticed(names: list[str], changes: dict[str, Any], kind: str) -> None:
    assert getattr(faults_of(names, **changes), kind)


def test_a_payload_tells_its_name_only_when_it_is_whole() -> None:
    for whole in (payload_of("till-1"), payload_of("till-1", LARGE)):
        assert name_of(whole) == "till-1"
        assert name_of(whole[:-1]) is None
        assert name_of(whole[:-1] + b"x") is None
    assert name_of(None) is None
    assert name_of(b"\xff\xff \xff \xff \xff") is None
