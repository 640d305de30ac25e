"""How long messages stay, for all subjects; sweeping by hand; the bucket's lifecycle."""

from __future__ import annotations

from math import ceil
from typing import Any

import click
import msgspec

from minitoolstream.cli.options import open_client, parse_duration
from minitoolstream.cli.output import Exit, emit, json_option, note
from minitoolstream.cli.progress import human_size
from minitoolstream.cli.retention_text import status_text
from minitoolstream.cli.shapes import table
from minitoolstream.domain.lifecycle import LifecycleAnswer, Rule
from minitoolstream.domain.retention import Retention, Swept
from minitoolstream.setting_values import channels as parse_channels


@click.group()
def ttl() -> None:
    """See and say how long messages stay."""


@ttl.command("status")
@json_option
def ttl_status(as_json: bool) -> None:
    """Show what expires when, who holds back what, and how deep the trash is."""
    with open_client() as client:
        _show(client.retention.status(), as_json)


def _show(found: Retention, as_json: bool) -> None:
    emit(as_json, msgspec.to_builtins(found), lambda: status_text(found))


def _channel(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    try:
        return {one.channel: ceil(one.seconds) for one in parse_channels(values)}
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@ttl.command("set")
@click.option(
    "--default",
    "default_ttl",
    callback=parse_duration,
    metavar="DURATION",
    help="For subjects that set nothing: 30s, 24h, 7d, 1y.",
)
@click.option(
    "--channel", "channels", multiple=True, callback=_channel, metavar="SUBJECT=DURATION", help="For one. Repeatable."
)
@click.option("--check-interval", callback=parse_duration, metavar="DURATION", help="Pause between two looks.")
@click.option("--enable/--disable", "enabled", default=None, help="Whether messages expire at all.")
@json_option
def ttl_set(as_json: bool, channels: dict[str, int], **given: Any) -> None:
    """Change what holds for subjects that set no ttl themselves.

    It stays until `mts.yaml` or the environment of a host that starts says otherwise. A channel that is given joins
    those there are; `mts subject alter SUBJECT --ttl` counts more than a channel.

    \b
    mts ttl set --default 7d --channel logs=30d
    """
    wanted = {name: value for name, value in given.items() if value is not None}
    if not wanted and not channels:
        raise click.UsageError("give at least one setting to change")
    with open_client() as client:
        if channels:
            wanted["channels"] = {**client.retention.status().channels, **channels}
        _show(client.retention.configure(**wanted), as_json)


@click.command()
@json_option
def sweep(as_json: bool) -> None:
    """Expire what is due now, and delete payloads whose grace is over.

    The host does it by itself, every `ttl.check_interval`. Exit code 4 when nothing was done because the clocks of
    Tarantool and the object store differ.
    """
    with open_client() as client:
        swept = client.retention.sweep()
    emit(as_json, msgspec.to_builtins(swept), lambda: _swept_text(swept))
    if swept.clocks_differ:
        note("nothing expires while the clocks differ: `mts ttl status` shows by how much")
        click.get_current_context().exit(Exit.VERIFICATION_FAILED)


def _swept_text(swept: Swept) -> str:
    return f"{swept.messages} messages expired ({human_size(swept.bytes)}), {swept.objects_deleted} objects deleted"


@click.group()
def lifecycle() -> None:
    """See and apply the bucket's lifecycle rules."""


@lifecycle.command("show")
@json_option
def lifecycle_show(as_json: bool) -> None:
    """Show the bucket's rules. Exit code 4 when ours are not as they should be, or another one is dangerous."""
    with open_client() as client:
        _show_lifecycle(client.retention.lifecycle(), as_json)


@lifecycle.command("apply")
@json_option
def lifecycle_apply(as_json: bool) -> None:
    """Put our rules in place, and leave those of others.

    They end multiparts that nobody finished and remove versions that are not current. None deletes a current object by
    its age: that is done by the sweeper alone, which knows what is still needed. A host does this when it starts.
    """
    with open_client() as client:
        _show_lifecycle(client.retention.apply_lifecycle(), as_json)


def _show_lifecycle(found: LifecycleAnswer, as_json: bool) -> None:
    emit(as_json, msgspec.to_builtins(found), lambda: _lifecycle_text(found))
    threats = [rule.id for rule in found.rules if rule.dangerous]
    for rule_id in threats:
        note(f"! the rule {rule_id} deletes payloads that messages still need: remove it")
    if threats or not found.in_step:
        click.get_current_context().exit(Exit.VERIFICATION_FAILED)


def _lifecycle_text(found: LifecycleAnswer) -> str:
    rows = [(rule.id, "ours" if rule.ours else "", rule.prefix or "(all)", _does(rule)) for rule in found.rules]
    shown = table(("RULE", "", "PREFIX", "DOES"), rows) if rows else "there are no rules"
    state = "in step" if found.in_step else "not as it should be: `mts lifecycle apply`"
    lock = ", object lock" if found.object_lock else ""
    return f"{shown}\n\nlifecycle: {state}; versioning {found.versioning}{lock}"


def _does(rule: Rule) -> str:
    does = ["deletes current objects by age"] if rule.expires_current else []
    if rule.noncurrent_days is not None:
        does.append(f"removes old versions after {rule.noncurrent_days} d")
    if rule.abort_after_days is not None:
        does.append(f"ends multiparts after {rule.abort_after_days} d")
    return ", ".join(does) if rule.enabled else "nothing: disabled"


COMMANDS: list[click.Command] = [ttl, sweep, lifecycle]
