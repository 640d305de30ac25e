"""`python -m bench.spark [--quick]`: replays against a raw downloader in the same run, into bench/results/spark.*"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.spark import load
from minitoolstream.client import Client
from minitoolstream.stack.get_java import get_java
from minitoolstream.stack.get_spark import get_spark, packages_of
from tests.live import Live, start_live
from tests.servers import start_tarantool

RESULTS = Path(__file__).resolve().parents[1] / "results"
MIB = 1 << 20


class Bench:
    def __init__(self, live: Live, folder: Path, *, quick: bool) -> None:
        self.live = live
        self.folder = folder
        self.quick = quick
        self.rounds = 1 if quick else 5
        self.rows: list[dict[str, Any]] = []
        self.spark: Any = None

    def say(self, text: str) -> None:
        print(f"  {text}", flush=True)

    def add(self, measure: str, value: float, unit: str, limit: float | None = None, note: str = "") -> None:
        met = "" if limit is None else ("met" if value <= limit else "not met")
        self.rows.append({"measure": measure, "value": value, "unit": unit, "limit": limit, "met": met, "note": note})
        self.say(f"{measure}: {value:.2f} {unit} {met}")

    def step(self, step: Any, *arguments: object) -> tuple[float, Any]:
        """Seconds, and the summary."""
        from spark_emr.steps._step import main

        text = io.StringIO()
        started = time.monotonic()
        with contextlib.redirect_stdout(text):
            code = main(step, [str(argument) for argument in arguments])
        seconds = time.monotonic() - started
        assert code == 0, text.getvalue()
        return seconds, json.loads(text.getvalue().splitlines()[-1])["summary"]

    def compared(self, raw: Callable[[], float], ours: Callable[[int], float]) -> tuple[float, float, float]:
        """Medians of the ratio and of both times, round by round in turn. A session starts its Python workers and
        compiles its own code with its first jobs, whatever they do: they are not counted."""
        for _ in range(self.rounds):
            ours(-1)
        raw()
        pairs = [(ours(number), raw()) for number in range(self.rounds)]
        ratio = load.median([one / other for one, other in pairs])
        return ratio, load.median([one for one, _ in pairs]), load.median([other for _, other in pairs])


def packed(bench: Bench, client: Client) -> None:
    from spark_emr.steps import replay_to_parquet

    count = 20_000 if bench.quick else 500_000
    bench.say(f"publishing {count:,} messages of 1 KB")
    load.publish_packed(client, "bench.packed", count, 1024)
    names = load.objects_of(bench.live.settings, "bench.packed")

    def replay(number: int) -> float:
        output = bench.folder / f"out-{number}"
        seconds, summary = bench.step(replay_to_parquet.STEP, "--subject", "bench.packed", "--output", output)
        assert summary["rows"] == count
        shutil.rmtree(output)
        return seconds

    ratio, ours, raw = bench.compared(lambda: load.download(bench.live.settings, names), replay)
    note = f"{ours:.2f} s against {raw:.2f} s, {count / ours:,.0f} messages/s"
    bench.add(f"{count:,} packed messages of 1 KB to Parquet, against a raw download", ratio, "x", 4, note)


def large(bench: Bench, client: Client) -> None:
    from spark_emr.frames import map_payloads

    count, size = 8, (16 if bench.quick else 128) * MIB
    bench.say(f"publishing {count} files of {size // MIB} MiB")
    load.publish_files(client, "bench.large", count, size, bench.folder)
    names = load.objects_of(bench.live.settings, "bench.large")

    def measure(_message: Any, blocks: Any) -> int:
        return sum(map(len, blocks))

    for checksum, raw_checksum, kind, limit in (
        (False, False, "as they are, against a raw download", 1.3),
        (True, True, "with their SHA-256, against a raw download with it", 1.3),
        (True, False, "with their SHA-256, against a raw download without", None),
    ):
        options = {"subject": "bench.large", "largeBytes": "8MiB", "partitions": 2, "checksum": checksum}

        def replay(_number: int, options: dict[str, Any] = options) -> float:
            started = time.monotonic()
            sizes = map_payloads(bench.spark, measure, **options).collect()
            assert sizes == [size] * count
            return time.monotonic() - started

        def download(checksum: bool = raw_checksum) -> float:
            return load.download(bench.live.settings, names, checksum=checksum)

        ratio, ours, raw = bench.compared(download, replay)
        note = f"{ours:.2f} s against {raw:.2f} s, {count * size / MIB / ours:,.0f} MiB/s; {empty_job(bench)}"
        bench.add(f"{count} payloads of {size // MIB} MiB that stay in Python, {kind}", ratio, "x", limit, note)


def empty_job(bench: Bench) -> str:
    """What Spark takes for as many tasks that do nothing."""
    seconds = []
    for _ in range(bench.rounds):
        started = time.monotonic()
        bench.spark.sparkContext.parallelize([0, 1], 2).mapPartitions(list).collect()
        seconds.append(time.monotonic() - started)
    return f"of it, a Spark job that does nothing: {load.median(seconds):.2f} s"


def plans(bench: Bench, client: Client) -> None:
    count = 50_000 if bench.quick else 1_000_000
    bench.say(f"publishing {count:,} small messages, and as many rows of single ones")
    load.publish_packed(client, "bench.plan", count, 16)
    load.add_single_rows(bench.live.settings, "bench.single", count)
    for subject, kind in (("bench.plan", "packed"), ("bench.single", "single")):
        runs = [planned(bench, subject, count) for _ in range(3)]
        seconds, megabytes = load.median([run[0] for run in runs]), max(run[1] for run in runs)
        note = f"{seconds / count * 1e6:.1f} us each"
        bench.add(f"plan of {count:,} {kind} messages", seconds, "s", None if bench.quick else 5.0, note)
        bench.add(f"its memory, {kind}", megabytes, "MB", None if bench.quick else 500)


def planned(bench: Bench, subject: str, messages: int) -> tuple[float, float]:
    """Seconds and peak memory of a plan, in a process of its own."""
    code = (
        "import time, re, pathlib\n"
        "from minitoolstream.config import load_settings\n"
        "from spark_emr.reader import plan_read, read_options\n"
        "settings = load_settings()\n"
        "started = time.monotonic()\n"
        f"plan = plan_read(settings, read_options({{'subject': '{subject}', 'payload': 'true'}}), 8)\n"
        "seconds = time.monotonic() - started\n"
        "peak = re.search(r'VmHWM:\\s+(\\d+)', pathlib.Path('/proc/self/status').read_text())[1]\n"
        "print(plan.messages, seconds, peak)\n"
    )
    environ = {**os.environ, **bench.live.environ, "MTS_HOME": str(bench.folder / "home")}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    found, seconds, peak = done.stdout.split()
    assert int(found) == messages, done.stdout
    return float(seconds), int(peak) / 1024


def growth(bench: Bench) -> list[dict[str, float]]:
    """Replay of the first N messages of the subject that was planned."""
    from spark_emr.steps import replay_to_parquet

    points = []
    first = with_first(bench)
    for count in (1_000, 5_000, 50_000) if bench.quick else (10_000, 100_000, 1_000_000):
        output = bench.folder / f"growth-{count}"
        arguments = ("--subject", "bench.plan", "--to-sequence", first + count - 1, "--output", output)
        seconds, summary = bench.step(replay_to_parquet.STEP, *arguments)
        points.append({"messages": summary["rows"], "seconds": seconds})
        bench.say(f"replay of {summary['rows']:,}: {seconds:.2f} s")
    small, big = points[-2], points[-1]
    ratio = (big["seconds"] / big["messages"]) / (small["seconds"] / small["messages"])
    bench.add(f"cost of a message at {big['messages']:,} against {small['messages']:,}", ratio, "x", 1.5)
    return points


def with_first(bench: Bench) -> int:
    with Client(bench.live.url, bench.live.token) as client:
        return client.fetch("bench.plan", start="first", limit=1).messages[0].sequence


def open_spark(live: Live) -> Any:
    os.environ.update({**get_java().environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"})
    packages = packages_of(get_spark())
    root = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, str(packages)])
    sys.path.append(str(packages))
    from pyspark.sql import SparkSession

    os.environ.update(live.environ)
    builder = SparkSession.builder.master("local[2]").appName("bench").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "2g")
    builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def report(bench: Bench, points: list[dict[str, float]]) -> None:
    lines = ["# Bulk replay on Spark", "", "| measure | value | limit | |", "|---|---|---|---|"]
    for row in bench.rows:
        limit = "" if row["limit"] is None else f"{row['limit']:g} {row['unit']} {row['met']}"
        lines.append(f"| {row['measure']} | {row['value']:.2f} {row['unit']} | {limit} | {row['note']} |")
    lines += ["", "![Replay of N messages](spark.png)", ""]
    (RESULTS / "spark.md").write_text("\n".join(lines))
    (RESULTS / "spark.json").write_text(json.dumps({"rows": bench.rows, "growth": points}, indent=1) + "\n")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot([point["messages"] for point in points], [point["seconds"] for point in points], marker="o")
    axes.set(xscale="log", yscale="log", xlabel="messages", ylabel="seconds", title="Replay to Parquet")
    axes.grid(visible=True, alpha=0.3)
    figure.savefig(RESULTS / "spark.png", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small numbers: does it run at all?")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mts-bench-spark-") as temporary:
        folder = Path(temporary)
        tarantool = start_tarantool(folder / "tarantool", memory=1024 * MIB)
        live = start_live(folder / "live", tarantool=tarantool)
        bench = Bench(live, folder, quick=args.quick)
        try:
            with Client(live.url, live.token) as client:
                bench.spark = open_spark(live)
                packed(bench, client)
                large(bench, client)
                plans(bench, client)
            points = growth(bench)
            bench.spark.stop()
        finally:
            live.stop()
        if not args.quick:
            report(bench, points)


if __name__ == "__main__":
    main()
