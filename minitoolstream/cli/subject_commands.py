"""Subjects: look at them, make them, change their settings, purge and delete them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from minitoolstream.cli.deletion_commands import deleted_text, purge
from minitoolstream.cli.options import confirm_by_name, open_client, parse_duration, parse_size
from minitoolstream.cli.output import Exit, emit, json_option, note
from minitoolstream.cli.progress import human_size
from minitoolstream.cli.shapes import fields_text, life_text, shape_of, table, when_text
from minitoolstream.client import Client, MtsError, SubjectDetails, SubjectInfo
from minitoolstream.domain.limits import MAX_PARTITIONS
from minitoolstream.domain.subject_settings import CODECS

_F = TypeVar("_F", bound=Callable[..., Any])
_QUOTAS = ("messages", "bytes", "rate")
_SPLITS = ("mode", "max_partitions", "write_speed", "utilization", "stabilization")


@click.group()
def subject() -> None:
    """Make subjects, look at them, change them, delete them."""


@subject.command("ls")
@click.option("--prefix", default="", help="Only names that begin with it.")
@json_option
def subject_ls(prefix: str, as_json: bool) -> None:
    """List the subjects. Exit code 3 when there are none."""
    with open_client() as client:
        found = list(client.subjects.list(prefix))
    if as_json or found:
        emit(as_json, {"subjects": [shape_of(one) for one in found]}, lambda: _list_text(found))
    if not found:
        if not as_json:
            note("there are no subjects" + (f" that begin with {prefix}" if prefix else ""))
        click.get_current_context().exit(Exit.NOT_FOUND)


def _list_text(found: list[SubjectInfo]) -> str:
    rows = [
        (one.subject, str(one.partitions), str(one.messages), human_size(one.bytes), when_text(one.created_at))
        for one in found
    ]
    return table(("SUBJECT", "PARTITIONS", "MESSAGES", "SIZE", "CREATED"), rows, numbers=(1, 2, 3))


@subject.command("info")
@click.argument("name", metavar="SUBJECT")
@json_option
def subject_info(name: str, as_json: bool) -> None:
    """Show the counters, settings and partitions of SUBJECT."""
    with open_client() as client:
        found = client.subjects.get(name)
    _show(found, as_json)


def _show(found: SubjectDetails, as_json: bool) -> None:
    emit(as_json, shape_of(found), lambda: _info_text(found))


def _info_text(found: SubjectDetails) -> str:
    settings = found.settings
    limits = settings.get("quota", {})
    quota = [_quota_text(found, name, limits[name]) for name in _QUOTAS if limits.get(name)]
    splits = settings.get("autopartitioning", {})
    text = fields_text(
        [
            ("subject", found.subject),
            ("messages", str(found.messages)),
            ("size", human_size(found.bytes)),
            ("latest", str(found.latest_sequence)),
            ("durables", str(found.consumers)),
            ("codecs", ", ".join(settings.get("codecs", []))),
            ("quota", ", ".join(quota)),
            ("expires after", _life(found)),
            ("keeps at most", _kept(settings)),
            ("copies", _copies_text(settings.get("copies") or {})),
            ("autopartitioning", splits.get("mode")),
            ("splits at", _splits_text(splits)),
            ("created", when_text(found.created_at)),
        ]
    )
    rows = [
        (
            str(one.partition),
            "active" if one.active else f"split into {', '.join(map(str, one.children or ()))}",
            str(one.messages),
            human_size(one.bytes),
            str(one.next_offset),
        )
        for one in found.partitions
    ]
    return f"{text}\n\n{table(('PARTITION', 'STATE', 'MESSAGES', 'SIZE', 'NEXT OFFSET'), rows, numbers=(0, 2, 3, 4))}"


def _quota_text(found: SubjectDetails, name: str, limit: int) -> str:
    if name == "rate":
        return f"{limit} messages/s"
    if name == "bytes":
        return f"{human_size(found.used.bytes)} of {human_size(limit)}"
    return f"{found.used.messages} of {limit} messages"


def _life(found: SubjectDetails) -> str:
    if found.expires_after is None:
        return "never"
    return life_text(found.expires_after) + ("" if found.settings.get("ttl") else " (the default)")


def _copies(count: int | None, zones: tuple[str, ...]) -> dict[str, Any] | None:
    if count is None:
        if zones:
            raise click.UsageError("--copy-zone needs --copies")
        return None
    return {"rf": count, **({"zones": list(zones)} if zones else {})} if count else {}


def _copies_text(copies: dict[str, Any]) -> str:
    zones = f" in {', '.join(copies['zones'])}" if copies.get("zones") else ""
    return f"{copies['rf']}{zones}" if copies else ""


def _kept(settings: dict[str, Any]) -> str:
    most = [f"{settings['max_messages']} messages"] if settings.get("max_messages") else []
    most += [human_size(settings["max_bytes"])] if settings.get("max_bytes") else []
    return ", ".join(most)


def _splits_text(splits: dict[str, Any]) -> str:
    if splits.get("mode", "disabled") == "disabled":
        return ""
    speed = f"{splits['utilization']} % of {human_size(splits['write_speed'])}/s"
    return f"{speed} for {splits['stabilization']} s, to {splits['max_partitions']}"


def _settings(command: _F) -> _F:
    options = (
        click.option("--partitions", type=click.IntRange(1, MAX_PARTITIONS), help="How many; can only grow."),
        click.option("--codec", "codecs", type=click.Choice(CODECS), multiple=True, help="Allowed. Repeatable."),
        click.option("--quota-messages", type=click.IntRange(0), help="Messages it may hold; 0: no limit."),
        click.option("--quota-bytes", type=click.IntRange(0), help="Bytes it may hold; 0: no limit."),
        click.option("--quota-rate", type=click.IntRange(0), help="Messages a second; 0: no limit."),
        click.option(
            "--ttl",
            callback=parse_duration,
            metavar="DURATION",
            help="How long messages stay: 30s, 24h, 7d, 1y; 0: the default again.",
        ),
        click.option("--copies", type=click.IntRange(0, 16), help="Copies that the catalog keeps; 0: none."),
        click.option("--copy-zone", "copy_zones", multiple=True, help="Only in these zones. Repeatable."),
        click.option("--max-messages", type=click.IntRange(0), help="The newest that stay; 0: no limit."),
        click.option(
            "--max-bytes",
            callback=parse_size,
            metavar="SIZE",
            help="How much of the newest stays: 10GiB; 0: no limit.",
        ),
        click.option(
            "--autopartitioning",
            "mode",
            type=click.Choice(["disabled", "up", "paused"]),
            help="Whether busy partitions split; once up, it can be paused, not disabled.",
        ),
        click.option("--max-partitions", type=click.IntRange(1, MAX_PARTITIONS), help="Where splitting ends."),
        click.option("--write-speed", type=click.IntRange(1), help="Bytes a second that a partition is made for."),
        click.option("--utilization", type=click.IntRange(1, 100), help="Per cent of it that are too much."),
        click.option("--stabilization", type=click.IntRange(1), help="Seconds that it must have been too much."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _wanted(given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, as the SDK takes them."""
    quota = {name: given[f"quota_{name}"] or None for name in _QUOTAS if given[f"quota_{name}"] is not None}
    splits = {name: given[name] for name in _SPLITS if given[name] is not None}
    wanted = {
        "partitions": given["partitions"],
        "codecs": list(given["codecs"]) or None,
        "quota": quota or None,
        "autopartitioning": splits or None,
        "ttl": given["ttl"],
        "max_messages": given["max_messages"],
        "max_bytes": given["max_bytes"],
        "copies": _copies(given["copies"], given["copy_zones"]),
    }
    return {name: value for name, value in wanted.items() if value is not None}


@subject.command("create")
@click.argument("name", metavar="SUBJECT")
@_settings
@json_option
def subject_create(name: str, as_json: bool, **given: Any) -> None:
    """Make SUBJECT, with these settings.

    A subject's first message makes it too, with default settings.

    \b
    mts subject create orders --partitions 4 --codec raw --codec zstd --quota-rate 1000
    """
    with open_client() as client:
        if _exists(client, name):
            raise MtsError(
                "already_exists", f"{name} is there already", {"hint": f"change it: mts subject alter {name}"}
            )
        found = client.subjects.put(name, **_wanted(given))
    _show(found, as_json)


@subject.command("alter")
@click.argument("name", metavar="SUBJECT")
@_settings
@json_option
def subject_alter(name: str, as_json: bool, **given: Any) -> None:
    """Change settings of SUBJECT; those that are not given stay.

    \b
    mts subject alter orders --partitions 8
    mts subject alter orders --ttl 7d --max-bytes 10GiB
    """
    wanted = _wanted(given)
    if not wanted:
        raise click.UsageError("give at least one setting to change")
    with open_client() as client:
        client.subjects.get(name)  # which must be there: this is no way to make one
        found = client.subjects.put(name, **wanted)
    _show(found, as_json)


def _exists(client: Client, name: str) -> bool:
    try:
        client.subjects.get(name)
    except MtsError as error:
        if error.code != "unknown_subject":
            raise
        return False
    return True


@subject.command("rm")
@click.argument("name", metavar="SUBJECT")
@click.option("--yes", metavar="SUBJECT", help="Its name again, instead of being asked for it.")
@json_option
def subject_rm(name: str, yes: str | None, as_json: bool) -> None:
    """Delete SUBJECT with all its messages, payloads and durables. There is no way back."""
    with open_client() as client:
        found = client.subjects.get(name)
        confirm_by_name(name, yes, f"{name} with its {found.messages} messages and {found.consumers} durables")
        client.subjects.delete(name)
    emit(as_json, {"subject": name, "deleted": True}, f"{name} is deleted")


@subject.command("purge")
@click.argument("name", metavar="SUBJECT")
@click.option("--reason", default="", help="Why; goes on the record.")
@click.option("--yes", metavar="SUBJECT", help="Its name again, instead of being asked for it.")
@json_option
def subject_purge(name: str, reason: str, yes: str | None, as_json: bool) -> None:
    """Delete all messages of SUBJECT for good; the subject, its durables and producers stay.

    Payloads leave the bucket at once; packs that hold messages of others too are written anew without these.
    """
    with open_client() as client:
        found = client.subjects.get(name)
        confirm_by_name(name, yes, f"all {found.messages} messages of {name}")
        done = purge(client, name, reason)
    emit(as_json, shape_of(done), lambda: deleted_text(done))


COMMANDS: list[click.Command] = [subject]
