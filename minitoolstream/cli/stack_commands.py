"""Commands for the stack on this machine: `up`, `down`, `status`, `logs`, `token`, `config`, `serve`."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from minitoolstream.cli.output import Exit, emit, json_option, note
from minitoolstream.cli.retention_text import attention_lines
from minitoolstream.cli.shapes import peer_problems, printable, when_text
from minitoolstream.config import Settings, find_home, load_settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.retention import Retention
from minitoolstream.options import OPTIONS
from minitoolstream.stack.console import Console
from minitoolstream.stack.state import CATALOG, GRPC, PARTS


@click.command()
@click.option("--quick", is_flag=True, help="Take the embedded object store at once instead of MinIO.")
@click.option("--demo", is_flag=True, help="Also publish a few sample messages.")
@click.option("--catalog", is_flag=True, help="Also start a Cassandra for the content catalog, from now on.")
@json_option
def up(quick: bool, demo: bool, catalog: bool, as_json: bool) -> None:
    """Start a stack on this machine: Tarantool, an object store, the host, the gRPC servers.

    What runs already is left alone, what crashed is started again, what was started with other settings is
    restarted. Data, logs and generated credentials live under `.mts/`.
    """
    from minitoolstream.stack.demo import SUBJECT, publish_samples
    from minitoolstream.stack.places import exposure
    from minitoolstream.stack.status import status as look
    from minitoolstream.stack.up import up as start

    console = Console()
    settings = load_settings()
    for warning in (*settings.warnings, *exposure(settings)):
        console.say(f"! {warning}")
    try:
        start(load_settings, console, quick=quick, catalog=catalog)
    except MtsError as error:
        _show_log(error)
        raise
    settings = load_settings()  # with what was chosen now
    if settings["catalog.database"] != "sqlite" and (
        catalog or settings.source("catalog.database") == str(settings.home)
    ):
        _migrate_catalog(settings)
    report = look(settings)
    first, subject = 1, "orders"
    if demo:
        with console.step("demo") as step:
            samples = publish_samples(settings)
            first, subject = samples.first, SUBJECT
            step.done(samples.outcome)
    emit(as_json, report, lambda: f"\n{_table(report)}\n\n{_try_this(report['http'], subject, first)}")


def _migrate_catalog(settings: Settings) -> None:
    from minitoolstream.bootstrap import open_catalog

    async def migrate() -> None:
        store = open_catalog(settings)
        try:
            await store.migrate()
        finally:
            await store.close()

    asyncio.run(migrate())


def _show_log(error: MtsError) -> None:
    lines = error.details.pop("log_tail", [])
    if "log" not in error.details:
        return
    note(f"\nThe end of {error.details['log']}:")
    for line in lines:
        note(f"    {line}")
    error.details.setdefault("hint", "mend what the log says and run `mts up` again")


def _try_this(url: str, subject: str, sequence: int) -> str:
    """The token is not shown: what is on a screen stays in its history."""
    mts = _program()
    file = shlex.quote(str(_some_file()))
    return (
        f"Try this:\n  {mts} publish {subject} {file}\n  {mts} fetch {subject}\n  {mts} get {sequence}\n"
        f"Or in a browser, with the token that `{mts} token` prints:\n  {url}/"
    )


def _some_file() -> Path:
    readme = Path("README.md")
    return readme if readme.exists() else Path("/etc/hostname")


def _program() -> str:
    """How the user can type `mts` here: by name when that is what it means, else by its path."""
    called = Path(sys.argv[0])
    if called.name != "mts":
        return "mts"
    found = shutil.which("mts")
    if found and Path(found).resolve() == called.resolve():
        return "mts"
    try:
        return str(called.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(called)


@click.command()
@click.option("--purge", is_flag=True, help="Also delete all data, logs and credentials.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before deleting.")
@json_option
def down(purge: bool, yes: bool, as_json: bool) -> None:
    """Stop the stack; data is kept."""
    from minitoolstream.stack.down import down as stop

    home = find_home()
    if purge and (home / "state.json").exists() and not yes:
        if not sys.stdin.isatty():
            raise MtsError("bad_request", f"--purge deletes everything under {home}: say --yes as well")
        click.confirm(f"Delete all messages, logs and credentials under {home}?", abort=True, err=True)
    stopped = stop(home, Console(), purge=purge)
    text = f"stopped: {', '.join(stopped)}" if stopped else "nothing was running"
    if purge:
        text += f"; what `mts up` made in {home} is deleted" if home.exists() else f"; {home} is deleted"
    emit(as_json, {"stopped": stopped, "purged": purge}, text)


@click.command()
@json_option
def status(as_json: bool) -> None:
    """Show what runs where, and what needs attention.

    It is about the host that MTS_URL names, or else about the stack of this folder. Exit code 0 when all runs, 5 when
    a part is down or cannot be reached, 3 when the stack is stopped or was never started.
    """
    from minitoolstream.stack.status import status as look
    from minitoolstream.stack.status import status_elsewhere

    settings = load_settings(go_on=True)
    for problem in settings.problems:
        note(f"! {problem}")
    report = status_elsewhere(settings) or look(settings)
    if settings.problems:
        report["problems"] = settings.problems
    emit(as_json, report, lambda: _table(report))
    click.get_current_context().exit(_exit_of(report))


def _exit_of(report: dict[str, Any]) -> Exit:
    if report["state"] == "running":
        return Exit.OK
    return Exit.NOT_FOUND if report["state"] == "stopped" and not _crashed(report) else Exit.DEPENDENCY_DOWN


def _crashed(report: dict[str, Any]) -> bool:
    return any(process["state"] == "crashed" for process in report["processes"].values())


def _table(report: dict[str, Any]) -> str:
    if "given_by" in report:
        about = f"host at {report['http']}, from {report['given_by']}; not the stack of this folder"
        return "\n".join((f"state: {report['state']}", about, *_needs_attention(report)))
    if report["state"] == "stopped" and not report["processes"]:
        return "state: stopped\n`mts up` starts it"
    store = report["object_store"]
    where = {
        "tarantool": report["tarantool"]["address"],
        "object-store": f"{store['endpoint']} ({store['kind'] or 'not chosen yet'}, bucket {store['bucket']})",
        "host": report["http"] or "",
        "catalog": report.get("catalog", {}).get("database", ""),
        "grpc": "ingress {ingress}, egress {egress}".format(**report["grpc"]) if report.get("grpc") else "",
    }
    rows = []
    for part in PARTS:
        process = report["processes"].get(part)
        if part in (GRPC, CATALOG) and process is None:
            continue
        state = process["state"] if process else "not ours"
        rows.append((part, state, str(process.get("pid", "")) if process else "", where[part]))
    lines = [f"{part:<14}{state:<10}{pid:<9}{address}" for part, state, pid, address in rows]
    if report["state"] == "running":
        lines.append(f"token in {report['token_file']}")
    else:
        lines.append("`mts up` starts it" + (" again" if report["state"] == "partial" or _crashed(report) else ""))
    return "\n".join((f"state: {report['state']}", *lines, *_needs_attention(report)))


def _needs_attention(report: dict[str, Any]) -> Iterator[str]:
    if report.get("ready") is False:
        yield from _not_ready(report["readiness"])
    if source := report.get("token_refused"):
        which = "no token is set" if source == "default" else f"the host refused the token from {source}"
        yield f"! {which}: `mts token` prints the token of this folder's stack, MTS_TOKEN gives another one"
    if report.get("uploads"):
        yield f"uploads not finished, or finished lately: {report['uploads']}"
    if retention := report.get("retention"):
        yield from attention_lines(msgspec.convert(retention, Retention))
    yield from _recovery(report)
    if problem := report.get("catalog_problem"):
        yield f"! the content catalog cannot be used: {printable(problem)}"
    yield from peer_problems(report.get("peers", []))
    if report.get("missing"):
        yield f"! rows whose payload is missing: {report['missing']}; `mts fsck` names them"
    for event in report.get("rejected_events", []):
        about = printable(f"{event.get('object_name')}: {event.get('reason')}")
        yield f"rejected: {when_text(event.get('at'))} {about}"


def _recovery(report: dict[str, Any]) -> Iterator[str]:
    journal, state = report.get("journal"), report.get("recovery")
    if journal:
        behind, seconds = journal["behind"], journal["seconds"]
        lag = f"{behind} sequences behind, the first for {seconds} s" if behind else "up to date"
        yield f"journal: {lag}"
    if state == "pending":
        yield "! restored: payloads that no message knows are kept until `mts restore --adopt` or `--discard`"
    elif state == "importing":
        yield "! an import is under way, or was interrupted: nothing is published before `mts import legacy` has ended"
    elif state:
        yield f"! recovery {state}: nothing is published before `mts restore` or `mts rebuild` has ended"


def _not_ready(readiness: Any) -> Iterator[str]:
    """What the host says of the parts behind it; a proxy in its place may say anything."""
    parts = readiness.get("parts") if isinstance(readiness, dict) else None
    down = {name: state for name, state in parts.items() if state != "ok"} if isinstance(parts, dict) else {}
    for name, state in down.items():
        yield f"! {name.replace('_', ' ')}: {state}"
    if not down:
        yield "! the host is not ready"


@click.command()
@click.argument("part", required=False, type=click.Choice(PARTS))
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on.")
@click.option("-n", "--lines", default=50, show_default=True, type=click.IntRange(0), help="How many lines to show.")
@json_option
def logs(part: str | None, follow: bool, lines: int, as_json: bool) -> None:
    """Show the logs of all parts, or of one."""
    from minitoolstream.stack.logs import follow as follow_logs
    from minitoolstream.stack.logs import last_lines

    home = find_home()
    parts = (part,) if part else PARTS
    shown = last_lines(home, parts, lines)
    if not shown and not (home / "state.json").exists():
        raise MtsError("not_found", f"no stack here: {home} has none", {"hint": "`mts up` starts one"})
    emit(as_json, shown, lambda: _log_text(shown))
    if follow:
        for name, line in follow_logs(home, parts):
            text = line if part else f"{name:<13} {line}"
            emit(as_json, {"part": name, "line": line}, text)


def _log_text(shown: dict[str, list[str]]) -> str:
    if len(shown) == 1:
        return "\n".join(next(iter(shown.values())))
    return "\n".join(f"{name:<13} {line}" for name, found in shown.items() for line in found)


@click.command()
@json_option
def token(as_json: bool) -> None:
    """Print the API's bearer token."""
    value = load_settings().secret("server.token")
    emit(as_json, {"token": value}, value)


@click.group()
def config() -> None:
    """Look at the configuration."""


@config.command("show")
@json_option
def config_show(as_json: bool) -> None:
    """Show each setting, its value and where that came from.

    What is wrong is told on stderr, with exit code 2; the setting's next source counts then.
    """
    settings = load_settings(go_on=True)
    rows = {}
    for option in OPTIONS:
        value = settings[option.key]
        if option.secret:
            value = "set" if value else "not set"
        rows[option.key] = {"value": value, "source": settings.source(option.key), "about": option.about}
    emit(as_json, rows, lambda: "\n".join(_setting(key, row) for key, row in rows.items()))
    for warning in (*settings.warnings, *settings.problems):
        note(f"! {warning}")
    if settings.problems:
        sys.exit(Exit.USAGE)


def _setting(key: str, row: dict[str, Any]) -> str:
    value = row["value"]
    shown = ",".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else str(value)
    return f"{key:<30}{shown:<34}{row['source']}"


@click.command()
@json_option
def serve(as_json: bool) -> None:  # noqa: ARG001 - it concerns errors only
    """Run the host in the foreground; `mts up` does this for you."""
    from minitoolstream.host.serve import serve as run

    sys.exit(run(load_settings()))


@click.command("grpc")
@json_option
def grpc_servers(as_json: bool) -> None:  # noqa: ARG001 - it concerns errors only
    """Run the gRPC servers in the foreground; `mts up` does this for you."""
    from minitoolstream.grpc.serve import serve_grpc

    sys.exit(serve_grpc(load_settings()))


COMMANDS: list[click.Command] = [up, down, status, logs, token, config, serve, grpc_servers]
