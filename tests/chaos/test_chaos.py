"""A short run of `make chaos`."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.run import PARTS, Chaos

SEED = 20
CYCLES = 6


def test_parts_killed_at_random_while_everything_is_in_use_break_no_promise(tmp_path: Path) -> None:
    told: list[str] = []
    chaos = Chaos(tmp_path, SEED, told.append)
    try:
        summary = chaos.run(CYCLES, check_every=CYCLES)
    finally:
        chaos.stop()

    assert summary.promises_kept(), summary.table()
    assert (set(summary.recoveries), summary.cycles) == (set(PARTS), CYCLES)
    assert summary.acknowledged > 100
    assert summary.verdicts == ["clean", "clean"]
