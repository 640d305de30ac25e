"""Put small objects of a subject together into packs. Messages stay what they are, with their sequences; their rows
point into the packs, and the old objects are deleted after the grace of the trash."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from minitoolstream.domain.compaction import PACK_BYTES, worth_moving
from minitoolstream.domain.message import Extent
from minitoolstream.services.compact_rows import compact_rows
from minitoolstream.services.core import Core
from minitoolstream.setting_values import duration, size
from spark_emr.frames import run_tasks
from spark_emr.reader.core import with_core
from spark_emr.reader.options import ReadOptions
from spark_emr.reader.rows import find_bounds, tarantool_rows
from spark_emr.steps._range import add_range, options_of
from spark_emr.steps._step import NoData, Run, Step, main

_GROUPS_A_TASK = 8
_MOST_TOLD = 100


def arguments(parser: argparse.ArgumentParser) -> None:
    add_range(parser, missing=False)
    parser.add_argument("--small", type=size, default="1MiB", metavar="SIZE", help="objects up to this: 1MiB")
    parser.add_argument("--pack-bytes", type=size, default=PACK_BYTES, metavar="SIZE", help="a pack's size: 16MiB")
    parser.add_argument("--span", type=duration, default="1h", help="messages of a pack lie at most so far apart: 1h")


def work(run: Run) -> Mapping[str, Any]:
    options, settings, args = options_of(run.args, plan="tarantool"), run.settings, run.args

    async def find(core: Core) -> list[list[Extent]]:
        rows = await _whole_rows(core, options)
        return list(worth_moving(rows, args.small, int(args.span), min(args.pack_bytes, PACK_BYTES)))

    groups = with_core(settings, find)
    if not groups:
        raise NoData(f"{options.subject} has no small objects to put together in this range", subject=options.subject)
    rows = [row for group in groups for row in group]
    run.manifest.add_read(
        subject=options.subject,
        first_sequence=rows[0].sequence - rows[0].count + 1,
        last_sequence=rows[-1].sequence,
        objects=len(rows),
        bytes=sum(row.size for row in rows),
    )

    def compact(some: list[list[Extent]]) -> list[dict[str, Any]]:
        async def do(core: Core) -> list[dict[str, Any]]:
            return [asdict(await compact_rows(core, group)) for group in some]

        return with_core(settings, do)

    tasks = [groups[first : first + _GROUPS_A_TASK] for first in range(0, len(groups), _GROUPS_A_TASK)]
    results = [one for some in run_tasks(run.spark, tasks, compact) for one in some]
    left: Counter[str] = Counter(why for one in results for _, why in one["left"])
    for one in results:
        if one["target"]:
            run.manifest.add_wrote(object_name=one["target"], rows=one["rows"], bytes=one["bytes"])
    return {
        "subject": options.subject,
        "objects_before": len(rows),
        "packs": sum(1 for one in results if one["target"]),
        "rows": sum(one["rows"] for one in results),
        "messages": sum(one["messages"] for one in results),
        "bytes": sum(one["bytes"] for one in results),
        "left": dict(left),
        "left_sequences": [sequence for one in results for sequence, _ in one["left"]][:_MOST_TOLD],
    }


async def _whole_rows(core: Core, options: ReadOptions) -> list[Extent]:
    """Rows that lie in the range with all of their messages: a part of a row is not moved."""
    bounds = await find_bounds(core, options)
    found = [row async for page in tarantool_rows(core, options, bounds) for row in page]
    cut = {bounds.first, bounds.last}
    return [row for row in found if row.count == 1 or not cut & {row.sequence - row.count + 1, row.sequence}]


STEP = Step("compact", str(__doc__), arguments, work)

if __name__ == "__main__":
    sys.exit(main(STEP))
