"""Read every payload of a range and compare it with its size, checksum and codec; exit code 4 when one does not fit."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from minitoolstream.client._codec import Decoder
from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import Extent
from spark_emr.frames import run_tasks
from spark_emr.reader import ReadOptions, ReadPartition, plan_read, read_blocks, read_stretches
from spark_emr.reader.read import REFERENCE, Stretch
from spark_emr.steps._range import add_range, options_of, told
from spark_emr.steps._step import DAMAGED, Run, Step, VerificationFailed, main

_MOST_TOLD = 100


def arguments(parser: argparse.ArgumentParser) -> None:
    add_range(parser, missing=False)


def work(run: Run) -> Mapping[str, Any]:
    options = options_of(run.args, payload="true", on_missing="null")
    settings = run.settings
    plan = plan_read(settings, options, run.spark.sparkContext.defaultParallelism)
    facts = told(run, options, plan)
    results = run_tasks(run.spark, plan.partitions, lambda partition: check(settings, options, partition))
    counts: Counter[str] = Counter()
    problems: list[Mapping[str, Any]] = []
    for result in results:
        counts.update(result["counts"])
        problems += result["problems"]
    summary = {**facts, **{name: counts[name] for name in ("by_sha256", "by_crc32", "by_size", "unverified")}}
    summary["damaged"] = counts["damaged"]
    if counts["damaged"]:
        named = ", ".join(str(problem["sequence"]) for problem in problems[:5])
        raise VerificationFailed(
            f"{counts['damaged']} payloads are not what they should be, among them those of {named}",
            **summary,
            problems=problems[:_MOST_TOLD],
        )
    return summary


def check(settings: Settings, options: ReadOptions, partition: ReadPartition) -> dict[str, Any]:
    """What a task found."""
    counts: Counter[str] = Counter()
    problems: list[dict[str, Any]] = []
    for stretch in read_stretches(settings, options, partition):
        known = "by_crc32" if stretch.extent.byte_from is not None else "by_sha256"
        if known == "by_sha256" and stretch.extent.sha256 is None:
            known = "by_size"
        counts[known] += stretch.extent.count - len(stretch.problems)
        for index, problem in stretch.problems.items():
            found = check_large(settings, stretch) if problem == REFERENCE else problem
            if found is None:
                counts[known] += 1
            elif found in {"unverified", "too_large"}:
                counts["unverified"] += 1
            else:
                counts["damaged"] += 1
                sequence = stretch.extent.sequence - stretch.extent.count + 1 + index
                problems.append({"sequence": sequence, "problem": found, "object_name": stretch.extent.object_name})
    return {"counts": dict(counts), "problems": problems[:_MOST_TOLD]}


def check_large(settings: Settings, stretch: Stretch) -> str | None:
    """The problem of a payload that is too large for memory, if it has one."""
    extent: Extent = stretch.extent
    decoder = Decoder(extent.codec, extent.sequence)
    try:
        for block in read_blocks(settings, extent):
            for _ in decoder.feed(block):
                pass
        decoder.finish()
    except MtsError as error:
        if error.code not in DAMAGED:
            raise
        return error.code
    return None


STEP = Step("verify", str(__doc__), arguments, work)

if __name__ == "__main__":
    sys.exit(main(STEP))
