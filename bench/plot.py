"""The picture of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from bench.report import Run, facts, number
from bench.rows import GrowthPoint, Row

mpl.use("Agg")
import matplotlib.pyplot as plt

MET, MISSED, PLAIN, INK, RAW = "#2a9d8f", "#e76f51", "#8ab6d6", "#264653", "#adb5bd"
RATIOS = {
    "raw": "raw PUT",
    "sink": "do-nothing webhook",
    "select": "select",
    "alone": "alone",
    "one": "one partition",
    "named": "with a producer",
    "http": "HTTP",
}
"""Units that are ratios, and what is 1 there."""


def draw(run: Run, path: Path, title: str) -> None:
    """Ratios and their latencies; below, figures in units of their own, and growth."""
    ratios = [row for row in run.rows if row.unit in RATIOS and row.value]
    others = [row for row in run.rows if row.unit not in RATIOS and row.floor and row.value]
    rates = [row for row in run.rows if row.unit.endswith("/s") and row.value]
    heights = [max(len(ratios), 2), max(len(others) or len(rates), 4)]
    with plt.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = plt.subplots(
            2,
            2,
            figsize=(13, 2.2 + 0.36 * sum(heights)),
            gridspec_kw={"height_ratios": heights, "width_ratios": [1.25, 1]},
            layout="constrained",
        )
        _ratios(axes[0][0], ratios)
        _latencies(axes[0][1], ratios)
        if others or run.growth:
            _against_floors(axes[1][0], others)
            _growth(axes[1][1], run.growth)
        else:
            _rates(axes[1][0], rates)
            _latencies(axes[1][1], rates)
        figure.suptitle(f"MiniToolStream: {title[0].lower()}{title[1:]}", fontweight="bold", color=INK)
        figure.text(0.5, -0.01, facts(run), ha="center", va="top", fontsize=7, color="#6c757d")
        figure.savefig(path, dpi=140, bbox_inches="tight")
        plt.close(figure)


def _colour(row: Row) -> str:
    if row.floor is None or row.value is None:
        return PLAIN
    return MET if row.floor.met(row.value) else MISSED


def _rows_on(axis: Any, rows: Sequence[Row], *, labels: bool) -> range:
    places = range(len(rows))
    axis.set_yticks(list(places), [row.measure.partition(" (")[0] for row in rows] if labels else [])
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x", alpha=0.25, which="both")
    axis.set_axisbelow(True)
    return places


def _logarithmic(axis: Any, ticks: Sequence[float], last: float) -> None:
    axis.set_xscale("log")
    axis.set_xticks([tick for tick in ticks if tick <= last], [f"{tick:g}" for tick in ticks if tick <= last])
    axis.minorticks_off()


def _ratios(axis: Any, rows: Sequence[Row]) -> None:
    for place in _rows_on(axis, rows, labels=True):
        row = rows[place]
        axis.barh(place, row.value, height=0.62, color=_colour(row))
        axis.plot(row.rounds, [place] * len(row.rounds), "o", color=INK, ms=3, alpha=0.55)
        if row.floor:
            axis.plot([row.floor.value] * 2, [place - 0.4, place + 0.4], color=INK, lw=2)
        end = max([row.value or 0, *row.rounds])
        axis.text(end * 1.04, place, f"{number(row.value)}x", va="center", color=INK)
    values = [row.value or 0 for row in rows]
    _logarithmic(axis, [0.01, 0.05, 0.25, 0.5, 1, 2, 4, 8, 16], max(values, default=1) * 1.5)
    axis.set_xlim(left=min([0.25, *(value / 2 for value in values)]))
    axis.axvline(1, color=RAW, lw=1.2, ls="--")
    bases = " or ".join(name for unit, name in RATIOS.items() if any(row.unit == unit for row in rows))
    axis.set_title(f"1 = {bases or 'raw PUT'}  (dots: rounds, line: floor)", loc="left", color=INK)


def _latencies(axis: Any, rows: Sequence[Row]) -> None:
    for place in _rows_on(axis, rows, labels=False):
        row = rows[place]
        for latency, colour, shift in ((row.base_latency_ms, RAW, 0.16), (row.latency_ms, INK, -0.16)):
            if latency:
                axis.plot([latency["p50"], latency["p99"]], [place + shift] * 2, color=colour, lw=1.4)
                for name, marker, size in (("p50", "o", 4), ("p95", "D", 4), ("p99", "|", 6)):
                    axis.plot(latency[name], place + shift, marker, color=colour, ms=size)
    _logarithmic(axis, [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000], 5000)
    axis.set_title("Latency in ms: p50 o, p95 ◆, p99 |  (grey: the other side)", loc="left", color=INK)


def _against_floors(axis: Any, rows: Sequence[Row]) -> None:
    """Figures in units of their own, all turned so that longer is better and 1 is the floor."""
    for place in _rows_on(axis, rows, labels=True):
        row = rows[place]
        assert row.floor
        assert row.value
        share = row.floor.value / row.value if row.floor.at_most else row.value / row.floor.value
        axis.barh(place, share, height=0.62, color=_colour(row))
        unit = {"n": "", "x": "x"}.get(row.unit, f" {row.unit}")
        axis.text(share * 1.04, place, f"{number(row.value)}{unit}", va="center", color=INK)
    _logarithmic(axis, [0.25, 0.5, 1, 2, 4, 8, 16, 32, 64], 64)
    axis.axvline(1, color=INK, lw=2)
    axis.set_title("Against its floor or target  (line: floor; longer is better)", loc="left", color=INK)


def _rates(axis: Any, rows: Sequence[Row]) -> None:
    for place in _rows_on(axis, rows, labels=True):
        row = rows[place]
        axis.barh(place, row.value, height=0.62, color=PLAIN)
        axis.plot(row.rounds, [place] * len(row.rounds), "o", color=INK, ms=3, alpha=0.55)
        axis.text(max([row.value or 0, *row.rounds]) * 1.1, place, number(row.value), va="center", color=INK)
    axis.set_xscale("log")
    axis.set_xlim(left=10)
    axis.set_title("A second  (dots: rounds)", loc="left", color=INK)


def _growth(axis: Any, points: Sequence[GrowthPoint]) -> None:
    if not points:
        axis.set_axis_off()
        return
    stored = [point.stored for point in points]
    for label, colour, latencies in (
        ("publish", MET, [point.publish_ms for point in points]),
        ("fetch of 100", "#e9a03b", [point.fetch_ms for point in points]),
    ):
        for name, style in (("p50", "o-"), ("p95", "D--")):
            values = [one[name] for one in latencies]
            axis.plot(stored, values, style, color=colour, label=f"{label}, {name}")
    axis.set_xscale("log")
    axis.set_xticks(stored, [f"{count:,}" for count in stored])
    axis.minorticks_off()
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.25)
    axis.set_xlabel("messages already stored")
    axis.set_title("Growth: latency in ms", loc="left", color=INK)
    axis.legend(frameon=False, ncols=2, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.25))
