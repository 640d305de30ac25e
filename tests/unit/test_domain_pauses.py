"""Pauses that grow."""

from __future__ import annotations

import pytest

from minitoolstream.domain.pauses import doubled


@pytest.mark.parametrize(("times", "pause"), [(0, 0.5), (1, 1.0), (3, 4.0), (4, 5.0), (5_000, 5.0)])
def test_a_pause_doubles_up_to_the_longest_however_many_failures_there_were(times: int, pause: float) -> None:
    assert doubled(0.5, times, 5.0) == pause
