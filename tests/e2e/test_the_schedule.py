"""The sweeper's own call. Last, since it comes once a minute."""

from __future__ import annotations

from tests.e2e.conftest import EARLY, Target
from tests.live import eventually


def test_the_schedule_sweeps_by_itself(aws_target: Target) -> None:
    """Nobody asks: the message of the beginning goes when EventBridge calls the sweeper."""
    eventually(lambda: aws_target.messages(EARLY) == [], within=90, pause=1)
