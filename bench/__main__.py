"""`python -m bench`: start a private stack, measure, write tables and plots."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import generator, machine, plot, report
from bench.api import Api, RawStore
from bench.measure import Bench
from bench.rows import GrowthPoint, Row
from bench.scenarios import (
    batch,
    claims,
    durables,
    fetch,
    fsck,
    growth,
    grpc,
    isolation,
    live,
    memory,
    multipart,
    publish,
    reading,
    reconcile,
    restore,
    sweep,
    targets,
    topics,
    waiting,
)
from bench.stack import running_stack
from minitoolstream.config import load_settings
from minitoolstream.host.serve import worker_count

RESULTS = Path(__file__).parent / "results"
Scenario = Callable[[Bench], list[Row] | tuple[list[Row], list[GrowthPoint]]]


@dataclass(frozen=True, eq=False)
class Table:
    """Scenarios that are shown together, in a file and a picture of their own."""

    name: str
    title: str
    scenarios: Mapping[str, Scenario]


TABLES = (
    Table(
        "speed",
        "Against raw PUTs of the same object store",
        {
            "publish": publish.run,
            "batch": batch.run,
            "fetch": fetch.run,
            "multipart": multipart.run,
            "memory": memory.run,
            "growth": growth.run,
            "targets": targets.run,
        },
    ),
    Table(
        "delivery",
        "Delivery and topics",
        {
            "live": live.run,
            "reading": reading.run,
            "durables": durables.run,
            "waiting": waiting.run,
            "isolation": isolation.run,
            "topics": topics.run,
        },
    ),
    Table("grpc", "gRPC", {"grpc": grpc.run}),
    Table("retention", "Retention", {"sweep": sweep.run, "reconcile": reconcile.run}),
    Table("pipeline", "Pipeline", {"claims": claims.run}),
    Table("recovery", "Recovery", {"restore": restore.run, "fsck": fsck.run}),
)
TRIAL = "trial"
SCENARIOS = [name for table in TABLES for name in table.scenarios]


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # its servers go with it
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
        runs = {table: _measure(table, options.only, bench) for table in TABLES}
    for table, run in _whole(runs, options).items():
        _write(run, table.name, table.title, as_json=options.json)
    if rest := [run for table, run in runs.items() if run.rows and table not in _whole(runs, options)]:
        rows, growth_points = [row for run in rest for row in run.rows], [one for run in rest for one in run.growth]
        _write(report.Run(rest[0].machine, rows, growth_points), TRIAL, "A trial", as_json=options.json)
    return 1 if any(row.failed for run in runs.values() for row in run.rows) else 0


def _whole(runs: Mapping[Table, report.Run], options: argparse.Namespace) -> dict[Table, report.Run]:
    """What is not whole goes where it cannot be mistaken for a result."""
    return {table: run for table, run in runs.items() if options.only >= set(table.scenarios) and not options.quick}


def _options() -> argparse.Namespace:
    known = {name: [name] for name in SCENARIOS} | {table.name: list(table.scenarios) for table in TABLES}
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", help=f"some of: {', '.join(known)} (comma between)")
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
    names = options.only.split(",") if options.only else SCENARIOS
    if unknown := set(names) - set(known):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    options.only = {scenario for name in names for scenario in known[name]}
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.seconds = options.seconds or (0.5 if options.quick else 3)
    return options


def _measure(table: Table, names: set[str], bench: Bench) -> report.Run:
    run = report.Run(machine.describe(bench), [], [])
    for name, scenario in table.scenarios.items():
        if name in names:
            _add(run, name, scenario, bench)
    return run


def _add(run: report.Run, name: str, scenario: Scenario, bench: Bench) -> None:
    """One scenario that cannot be measured does not take the others with it."""
    try:
        found = scenario(bench)
    except Exception as error:
        traceback.print_exc()
        run.rows.append(Row(key=name, measure=name, unit="n", failed=f"not measured: {error}"[:300]))
        return
    rows, points = found if isinstance(found, tuple) else (found, [])
    run.rows.extend(rows)
    run.growth.extend(points)


def _write(run: report.Run, name: str, title: str, *, as_json: bool) -> None:
    report.write(run, RESULTS, name, title)
    plot.draw(run, RESULTS / f"{name}.png", title)
    print(f"written: bench/results/{name}.md, .json, .png", file=sys.stderr)
    print((RESULTS / f"{name}.{'json' if as_json else 'md'}").read_text())


if __name__ == "__main__":
    sys.exit(main())
