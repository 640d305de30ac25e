"""Compute the content ids of messages that came without a checksum, and tell them to the catalog."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from minitoolstream.client import Client
from minitoolstream.config import Settings
from minitoolstream.domain.message import cut_extent
from spark_emr.frames import run_tasks
from spark_emr.reader import ReadOptions, ReadPartition, plan_read, read_blocks, read_stretches
from spark_emr.steps._range import add_range, options_of, told
from spark_emr.steps._step import Run, Step, main

_TOLD_AT_ONCE = 1000


def arguments(parser: argparse.ArgumentParser) -> None:
    add_range(parser, missing=False)


def work(run: Run) -> Mapping[str, Any]:
    options = options_of(run.args, payload="false", on_missing="null")
    settings = run.settings
    plan = plan_read(settings, options, run.spark.sparkContext.defaultParallelism)
    facts = told(run, options, plan)
    results = run_tasks(run.spark, plan.partitions, lambda partition: tell(settings, options, partition))
    return {**facts, **{name: sum(one[name] for one in results) for name in ("hashed", "held")}}


def tell(settings: Settings, options: ReadOptions, partition: ReadPartition) -> dict[str, int]:
    """What a task hashed, and how many of it the catalog holds; told twice, it holds them once."""
    hashed = held = 0
    waiting: dict[int, str] = {}
    with Client.from_settings(settings) as client:
        for sequence, digest in digests(settings, options, partition):
            waiting[sequence] = digest
            hashed += 1
            if len(waiting) == _TOLD_AT_ONCE:
                held += client.catalog.hold(options.subject, waiting)
                waiting = {}
        if waiting:
            held += client.catalog.hold(options.subject, waiting)
    return {"hashed": hashed, "held": held}


def digests(settings: Settings, options: ReadOptions, partition: ReadPartition) -> Iterator[tuple[int, str]]:
    """Sequence and sha256 of what is stored, of every message that has none."""
    for stretch in read_stretches(settings, options, partition):
        extent = stretch.extent
        if extent.missing or extent.unverified or (extent.sha256 is not None and extent.byte_from is None):
            continue
        for sequence in range(extent.sequence - extent.count + 1, extent.sequence + 1):
            digest = hashlib.sha256()
            for block in read_blocks(settings, cut_extent(extent, sequence, sequence)):
                digest.update(block)
            yield sequence, digest.hexdigest()


STEP = Step("content_ids", str(__doc__), arguments, work)

if __name__ == "__main__":
    sys.exit(main(STEP))
