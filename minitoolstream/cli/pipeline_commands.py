"""The tracked pipeline: run its daemons here, see where files are, try again what failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from minitoolstream.cli.options import has_subject, open_client, parse_duration
from minitoolstream.cli.output import Exit, emit, json_option, note
from minitoolstream.cli.shapes import printable, table
from minitoolstream.client import Client, MtsError
from minitoolstream.config import load_settings
from minitoolstream.domain.tracking import STAGES, STATUSES, WORK_STAGES

_HEADS = tuple(stage.upper() for stage in STAGES)
_FIELDS = tuple(stage.replace("-", "_") for stage in STAGES)


@click.group()
def pipeline() -> None:
    """Files of messages on their way through stages into MySQL."""


@pipeline.command("status")
@click.argument("filename", required=False)
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="How many files.")
@click.option("--before", help="Files whose names come before this one.")
@json_option
def pipeline_status(filename: str | None, limit: int, before: str | None, as_json: bool) -> None:
    """Show the last files and how far each is in every stage; with FILENAME, its shards."""
    with open_client() as client:
        if filename:
            file = client.pipeline.file(filename)
            emit(as_json, msgspec.to_builtins(file), lambda: _file_text(file.shards))
            return
        found = client.pipeline.files(limit=limit, before=before)
    if as_json or found.files:
        emit(as_json, msgspec.to_builtins(found), lambda: _files_text(found.files))
    if as_json:
        return
    if not found.files:
        note("no file is registered yet")
    if found.next:
        note(f"more: mts pipeline status --before {found.next}")


def _files_text(files: Sequence[Any]) -> str:
    rows = [
        (file.filename, str(file.shards), *(_counts(file.by_stage[name]) for name in _FIELDS), file.updated_at)
        for file in files
    ]
    return table(("FILE", "SHARDS", *_HEADS, "UPDATED"), rows, numbers=(1,))


def _counts(counts: Any) -> str:
    """`done` when all are, else how many are what."""
    there = [(name, getattr(counts, name)) for name in STATUSES if getattr(counts, name)]
    return there[0][0] if len(there) == 1 else ", ".join(f"{count} {name}" for name, count in there)


def _file_text(shards: Sequence[Any]) -> str:
    rows = [
        (
            str(shard.shard),
            *(getattr(shard, f"{name}_status") for name in _FIELDS),
            str(sum(shard.attempts.values())),
            shard.updated_at,
            shard.owner or "",
        )
        for shard in shards
    ]
    # Below, where there is room for all that they say.
    errors = [
        f"shard {shard.shard}, {stage}: {printable(error)}" for shard in shards for stage, error in shard.errors.items()
    ]
    shown = table(("SHARD", *_HEADS, "ATTEMPTS", "UPDATED", "OWNER"), rows, numbers=(0, len(STAGES) + 1))
    return "\n".join([shown, *([""] if errors else []), *errors])


@pipeline.command("retry")
@click.argument("filename")
@click.option("--stage", type=click.Choice(WORK_STAGES), help="Only this stage.")
@click.option("--shard", "only", multiple=True, type=click.IntRange(0), help="Only this shard. Repeatable.")
@json_option
def pipeline_retry(filename: str, stage: str | None, only: tuple[int, ...], as_json: bool) -> None:
    """Put what failed of FILENAME back into its queues. Exit code 3 when nothing has failed."""
    stages = [stage] if stage else WORK_STAGES
    with open_client() as client:
        shards = client.pipeline.file(filename).shards
        unknown = sorted(set(only) - {shard.shard for shard in shards})
        if unknown:
            raise MtsError("not_found", f"{filename} has no shard {', '.join(map(str, unknown))}")
        failed = [
            (name, shard.shard)
            for shard in shards
            for name in stages
            if (not only or shard.shard in only) and _status(shard, name) == "failed"
        ]
        for name, number in failed:
            client.pipeline.retry(name, filename, number)
    retried = [{"stage": name, "shard": number} for name, number in failed]
    if as_json or failed:
        text = "\n".join(f"{name} of shard {number} waits again" for name, number in failed)
        emit(as_json, {"filename": filename, "retried": retried}, text)
    if not failed:
        if not as_json:
            note(f"nothing of {filename} has failed")
        click.get_current_context().exit(Exit.NOT_FOUND)


def _status(shard: Any, stage: str) -> str:
    return str(getattr(shard, f"{stage.replace('-', '_')}_status"))


@pipeline.command("run")
@click.option("--subject", help="First make a file of this subject's messages.")
@click.option("--from", "first", default=1, show_default=True, type=click.IntRange(1), help="Its first sequence.")
@click.option("--to", "last", type=click.IntRange(1), help="Its last one; without it, the latest.")
@click.option("--window", callback=parse_duration, metavar="DURATION", help="Or: what came in the last whole 15m, 1h.")
@click.option("--shards", default=2, show_default=True, type=click.IntRange(1, 10_000), help="Over how many shards.")
@click.option("--key", default="header:key", show_default=True, help="header:NAME or field:NAME; decides the shard.")
@click.option("--filename", help="The file's name; without it, the time at which it begins.")
@click.option("--files", metavar="DIR|s3://BUCKET/PREFIX", help="Where files are (setting pipeline.files).")
@click.option("--function", metavar="MODULE:NAME", help="What the worker does; without it, it aggregates by key.")
@click.option("--lease", default=60, show_default=True, type=click.IntRange(1, 604800), help="Seconds a task is ours.")
@click.option("--wait", default=90, show_default=True, type=click.IntRange(0), help="Seconds to wait for others.")
@json_option
def pipeline_run(as_json: bool, **given: Any) -> None:
    """Run the daemons on this machine until nothing waits: split, work, send.

    With --subject, a file is made first. Killed at any point, run it again: the rows end the same. Databases of the
    shards are those of the setting pipeline.shards. Exit code 3: nothing to do; 4: tasks failed.

    \b
    export MTS_PIPELINE_SHARDS=0=mysql://app@db:3306/app_0,1=mysql://app@db:3306/app_1
    mts pipeline run --subject orders --window 1h --key header:customer
    """
    has_range = given["first"] != 1 or given["last"] is not None
    if given["window"] and has_range:
        raise click.UsageError("--window and --from/--to exclude each other")
    if not given["subject"] and (has_range or given["window"] or given["filename"]):
        raise click.UsageError("--from, --to, --window and --filename are of a file that is made: give a --subject")
    with open_client() as client:
        done = _run(client, **given)
    shown = {name: msgspec.to_builtins(one) for name, one in done.items()}
    emit(as_json, shown, lambda: _run_text(shown))
    stages = [shown[stage] for stage in WORK_STAGES]
    if any(one["failed"] for one in stages):
        failed = {task["filename"] for one in stages for task in one["tasks"] if task["state"] == "failed"}
        for name in () if as_json else sorted(failed):
            note(f"`mts pipeline status {name}` says why; `mts pipeline retry {name}` tries again")
        click.get_current_context().exit(Exit.VERIFICATION_FAILED)
    if not shown.get("event-ingest") and not any(one["tasks"] for one in stages):
        click.get_current_context().exit(Exit.NOT_FOUND)


def _run(client: Client, **given: Any) -> dict[str, Any]:
    from minitoolstream.pipeline import run
    from minitoolstream.pipeline.daemon import Manner, new_owner
    from minitoolstream.pipeline.ingest import Range, ingest, last_window
    from minitoolstream.pipeline.stages import DEFAULT_FUNCTION, load_function

    settings = load_settings()
    files = run.files_of(settings, given["files"])
    function = load_function(given["function"] or DEFAULT_FUNCTION)
    done: dict[str, Any] = {}
    if given["subject"]:
        window = given["window"] and last_window(given["window"], client.server_time(given["subject"]))
        done["event-ingest"] = ingest(
            client,
            files,
            given["subject"],
            window or Range(given["first"], given["last"]),
            shards=range(given["shards"]),
            key=given["key"],
            filename=given["filename"],
        )
        if done["event-ingest"] is None and not has_subject(client, given["subject"]):
            raise MtsError("unknown_subject", f"there is no subject {given['subject']}")
    manners = {stage: Manner(new_owner(stage), given["lease"], given["wait"]) for stage in WORK_STAGES}
    done[run.SPLITTER] = run.run_splitter(client, files, manners[run.SPLITTER])
    done[run.WORKER] = run.run_worker(client, files, function, manners[run.WORKER])
    done[run.SENDER] = run.run_sender(client, files, settings, manners[run.SENDER])
    return done


def _run_text(shown: dict[str, Any]) -> str:
    lines = []
    if "event-ingest" in shown:
        file = shown["event-ingest"]
        count = file and ("already there" if file["messages"] is None else f"{file['messages']} messages")
        lines += [f"{file['filename']}: {count}, {file['url']}" if file else "no messages in the range", ""]
    rows = [(stage, *(str(shown[stage][name]) for name in ("done", "failed", "lost"))) for stage in WORK_STAGES]
    return "\n".join([*lines, table(("STAGE", "DONE", "FAILED", "LOST"), rows, numbers=(1, 2, 3))])


COMMANDS: list[click.Command] = [pipeline]
