"""Tables and JSON of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bench.rows import GrowthPoint, Row

_UNITS = {
    "raw": "x raw",
    "sink": "x do-nothing",
    "select": "x select",
    "alone": "x alone",
    "one": "x one",
    "named": "x named",
    "http": "x HTTP",
    "n": "",
}
"""How a unit is printed, where that is not its name."""


class Run(msgspec.Struct):
    """Everything a run found, as it is written to JSON."""

    machine: Mapping[str, str]
    rows: list[Row]
    growth: list[GrowthPoint]


def speed_table(run: Run) -> str:
    lines = [
        "| measure | result | floor | | rounds | reference | rate /s | p50 / p95 / p99 ms "
        "| compared with /s | its p50 / p95 / p99 ms |",
        "|---|---:|---:|---|---|---|---:|---|---:|---|",
    ]
    for row in run.rows:
        lines.append("| " + " | ".join(_cells(row)) + " |")
    return "\n".join(lines)


def _cells(row: Row) -> list[str]:
    unit = _UNITS.get(row.unit, row.unit)
    bound = "<=" if row.floor and row.floor.at_most else ">="
    floor = f"{bound} {number(row.floor.value)} {unit}".strip() if row.floor else ""
    rounds = f"{number(min(row.rounds))} - {number(max(row.rounds))}" if row.rounds else ""
    measure = f"{row.measure}: {row.note}" if row.note else row.measure
    failed = row.failed.replace("|", "/").replace("\n", " ")
    result = f"**{number(row.value)}** {unit}".strip() if row.value is not None else failed
    return [
        measure,
        result,
        floor,
        row.verdict,
        rounds,
        row.reference,
        number(row.rate),
        _latency(row.latency_ms),
        number(row.base_rate),
        _latency(row.base_latency_ms),
    ]


def growth_table(points: Sequence[GrowthPoint]) -> str:
    lines = [
        "| stored | publish, x raw | p50 / p95 / p99 ms | CPU us: host, Tarantool "
        "| fetch msg/s | p50 / p95 / p99 ms | CPU us: host, Tarantool | Tarantool MB |",
        "|---:|---:|---|---|---:|---|---|---:|",
    ]
    for point in points:
        cells = [
            f"{point.stored:,}",
            number(point.publish_ratio),
            _latency(point.publish_ms),
            ", ".join(map(number, point.publish_cpu.values())),
            number(point.fetch_rate),
            _latency(point.fetch_ms),
            ", ".join(map(number, point.fetch_cpu.values())),
            number(point.arena_used / 1e6),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def facts(run: Run) -> str:
    """One line on where and how."""
    return "; ".join(f"{name}: {value}" for name, value in run.machine.items())


def document(run: Run) -> str:
    """The Markdown of a run: where, how, and the tables."""
    text = f"{facts(run)}\n\n{speed_table(run)}\n"
    if run.growth:
        text += f"\n{growth_table(run.growth)}\n"
    return text


def write(run: Run, folder: Path, name: str, title: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(f"# {title}\n\n{document(run)}")
    (folder / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n")


def number(value: float | None) -> str:
    """Three digits that mean something, and no more."""
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 10 else f"{value:.2f}".rstrip("0").rstrip(".")


def _latency(latency: Mapping[str, float]) -> str:
    return " / ".join(number(latency[name]) for name in ("p50", "p95", "p99")) if latency else ""
