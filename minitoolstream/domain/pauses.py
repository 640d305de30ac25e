"""How long to wait after a failure."""

from __future__ import annotations

_MOST_DOUBLINGS = 64


def doubled(first: float, times: int, longest: float) -> float:
    """`first`, doubled so many times, up to the longest; also where so many doublings would be more than a number
    holds."""
    return min(first * 2.0 ** min(times, _MOST_DOUBLINGS), longest)
