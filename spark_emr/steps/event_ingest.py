"""Event ingest: messages of a subject become a registered file, `<YYYYMMDDHHMMSS>.event-ingest.txt`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from minitoolstream.client import Client
from minitoolstream.domain.errors import bad_request
from minitoolstream.pipeline.events import DEFAULT_KEY
from minitoolstream.pipeline.ingest import Range, Window, ingest, last_window
from minitoolstream.pipeline.run import files_of
from minitoolstream.setting_values import duration
from spark_emr.steps._daemon import UNDER_SPARK, files_argument
from spark_emr.steps._step import NoData, Run, Step, main


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--subject", required=True, help="whose messages")
    parser.add_argument("--from", dest="first", type=int, default=1, help="the first sequence (1)")
    parser.add_argument("--to", dest="last", type=int, help="the last one (the latest)")
    parser.add_argument("--window", metavar="DURATION", help="or: what came in the last whole 15m, 1h ...")
    parser.add_argument("--at", metavar="TIME", help="or in the window that this time lies in (ISO 8601)")
    parser.add_argument("--shards", type=int, default=2, help="over how many shards it is spread (2)")
    parser.add_argument("--key", default=DEFAULT_KEY, help=f"header:NAME or field:NAME: the shard ({DEFAULT_KEY})")
    parser.add_argument("--filename", help="the file's name (the time at which it begins)")
    files_argument(parser)


def work(run: Run) -> Mapping[str, Any]:
    args = run.args
    with Client.from_settings(run.settings) as client:
        done = ingest(
            client,
            files_of(run.settings, args.files),
            args.subject,
            wanted_of(args, client),
            shards=range(args.shards),
            key=args.key,
            filename=args.filename,
        )
    if done is None:
        raise NoData(f"no message of {args.subject} is in the range")
    plan = done.plan
    run.manifest.add_read(subject=plan.subject, first_sequence=plan.first, last_sequence=plan.last)
    run.manifest.add_wrote(url=done.url, messages=done.messages)
    return {"filename": done.filename, "shards": plan.shards, "created": done.created, "messages": done.messages}


def wanted_of(args: argparse.Namespace, client: Client) -> Range | Window:
    if args.window is None:
        if args.at is not None:
            raise bad_request("--at needs a --window", field="at")
        return Range(args.first, args.last)
    if args.first != 1 or args.last is not None:
        raise bad_request("--window and --from/--to exclude each other", field="window")
    try:
        seconds = int(duration(args.window))
        moment = None if args.at is None else datetime.fromisoformat(args.at)
    except ValueError as error:
        raise bad_request(str(error), field="window") from None
    if moment is None:
        return last_window(seconds, client.server_time(args.subject))
    return Window(seconds, moment if moment.tzinfo else moment.replace(tzinfo=UTC))


STEP = Step("event_ingest", "Make a registered file of a subject's messages.", arguments, work, uses_spark=UNDER_SPARK)

if __name__ == "__main__":
    sys.exit(main(STEP))
