"""`python -m bench`: start a private stack, measure, write tables and a plot."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from bench import generator, machine, plot, report
from bench.api import Api, RawStore
from bench.measure import Bench
from bench.rows import GrowthPoint, Row
from bench.scenarios import batch, fetch, growth, memory, multipart, publish, targets
from bench.stack import running_stack
from minitoolstream.config import load_settings
from minitoolstream.host.serve import worker_count

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
SCENARIOS: dict[str, Callable[[Bench], list[Row] | tuple[list[Row], list[GrowthPoint]]]] = {
    "publish": publish.run,
    "batch": batch.run,
    "fetch": fetch.run,
    "multipart": multipart.run,
    "memory": memory.run,
    "growth": growth.run,
    "targets": targets.run,
}


def main() -> int:
    options = _options()
    with running_stack(options.workers) as stack:
        bench = Bench(
            generator=generator.build(),
            stack=stack,
            api=Api(stack.host.url, stack.token),
            raw=RawStore(stack.minio.endpoint, stack.minio.root, stack.minio.region),
            rounds=options.rounds,
            seconds=options.seconds,
            quick=options.quick,
        )
        run = report.Run(machine.describe(bench), [], [])
        for name in options.only:
            _add(run, name, bench)
    whole = options.only == list(SCENARIOS) and not options.quick
    _write(run, "speed" if whole else "trial")
    if whole:
        report.update_page(run, PAGE)
    print((RESULTS / f"{'speed' if whole else 'trial'}.{'json' if options.json else 'md'}").read_text())
    return 1 if any(row.failed for row in run.rows) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", help=f"some of: {', '.join(SCENARIOS)} (comma between)")
    parser.add_argument("--rounds", type=int, help="interleaved rounds (5)")
    parser.add_argument("--seconds", type=float, help="about how long one run takes (3)")
    parser.add_argument(
        "--workers",
        type=int,
        default=worker_count(load_settings({})),
        help="worker processes of the host",
    )
    parser.add_argument("--quick", action="store_true", help="short and coarse: does everything still work?")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    options = parser.parse_args()
    options.only = options.only.split(",") if options.only else list(SCENARIOS)
    if unknown := set(options.only) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.seconds = options.seconds or (0.5 if options.quick else 3)
    return options


def _add(run: report.Run, name: str, bench: Bench) -> None:
    """One scenario that cannot be measured does not take the others with it."""
    try:
        found = SCENARIOS[name](bench)
    except Exception as error:
        traceback.print_exc()
        run.rows.append(Row(key=name, measure=name, unit="n", failed=f"not measured: {error}"[:300]))
        return
    rows, points = found if isinstance(found, tuple) else (found, [])
    run.rows.extend(rows)
    run.growth.extend(points)


def _write(run: report.Run, name: str) -> None:
    report.write(run, RESULTS, name)
    plot.draw(run, RESULTS / f"{name}.png")
    print(f"written: bench/results/{name}.md, .json, .png", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
