"""What every command shares: the `--json` switch, the form of answers and errors, the exit codes.

With `--json`, stdout holds JSON and nothing else: the result, or `{"error": {"code", "message", "details"}}`.
Without it, results go to stdout as text and errors to stderr as `error: ...`, often with a `hint: ...`.
Progress, warnings and hints always go to stderr.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeVar

import click
import msgspec

from minitoolstream.domain.errors import MtsError

_F = TypeVar("_F", bound=Callable[..., Any])
_JSON = "minitoolstream.json"


class Exit(IntEnum):
    """The exit codes of `mts`; the values are a promise to scripts."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    NOT_FOUND = 3
    VERIFICATION_FAILED = 4
    DEPENDENCY_DOWN = 5
    INTERRUPTED = 130


EXIT_CODES_HELP = """\b
Exit codes:
  0    done
  1    unexpected failure
  2    wrong usage, or input that was refused
  3    not found, or no data
  4    verification failed: a checksum or size differs; or an upload failed: it was rejected or
       aborted, or it expired
  5    a dependency is down: the host or the object store cannot be reached
  130  interrupted (Ctrl-C)
"""

_EXIT_OF_CODE = {
    "internal": Exit.UNEXPECTED,
    "cannot_write": Exit.UNEXPECTED,
    "not_found": Exit.NOT_FOUND,
    "unknown_durable": Exit.NOT_FOUND,
    "unknown_subject": Exit.NOT_FOUND,
    "payload_gone": Exit.NOT_FOUND,
    "payload_missing": Exit.NOT_FOUND,
    "checksum_mismatch": Exit.VERIFICATION_FAILED,
    "size_mismatch": Exit.VERIFICATION_FAILED,
    "file_changed": Exit.VERIFICATION_FAILED,
    "upload_rejected": Exit.VERIFICATION_FAILED,
    "upload_aborted": Exit.VERIFICATION_FAILED,
    "upload_expired": Exit.VERIFICATION_FAILED,
    "upload_incomplete": Exit.VERIFICATION_FAILED,
    "unavailable": Exit.DEPENDENCY_DOWN,
    "timeout": Exit.DEPENDENCY_DOWN,
    "overloaded": Exit.DEPENDENCY_DOWN,
    "outcome_unknown": Exit.DEPENDENCY_DOWN,
    "unreachable": Exit.DEPENDENCY_DOWN,
    "dependency_missing": Exit.DEPENDENCY_DOWN,
    "start_failed": Exit.DEPENDENCY_DOWN,
    "interrupted": Exit.INTERRUPTED,
}
_HINTS = {
    "unreachable": "is it running? `mts up` starts it, `mts status` shows it; MTS_URL names another address",
    "unavailable": "`mts status` shows which part is down, `mts up` starts it again",
    "unauthorized": "`mts token` prints the token of the local stack; MTS_TOKEN gives another one",
    "bad_config": "`mts config show` lists the keys and where each value came from; docs/configuration.md has more",
    "unknown_durable": "`mts consumer ls SUBJECT` lists the durables of a subject, `mts consumer create` makes one",
    "mode_mismatch": "a durable keeps its mode: `mts consumer info` shows it; take another name for the other mode",
    "quota_exceeded": "`mts subject info` shows the quotas, `mts subject alter` changes them",
    "unknown_subject": "`mts subject ls` lists the subjects; the first message makes one, or `mts subject create`",
    "no_permission": "run it in a folder of yours, or set MTS_HOME to one",
}


def json_option(command: _F) -> _F:
    """Adds `--json`; the command gets it as `as_json`, and its errors come as JSON too."""

    def remember(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
        ctx.meta[_JSON] = value
        return value

    return click.option(
        "--json", "as_json", is_flag=True, callback=remember, is_eager=True, help="Answer in JSON on stdout."
    )(command)


def wants_json(ctx: click.Context) -> bool:
    """Whether the running command was asked for JSON."""
    return bool(ctx.meta.get(_JSON))


def emit(as_json: bool, data: Any, text: str | Callable[[], str]) -> None:
    """Print a result: `data` as one line of JSON, or `text` (a function when making it costs something)."""
    if as_json:
        click.echo(to_json(data))
        return
    click.echo(text() if callable(text) else text)


def to_json(data: Any) -> str:
    return msgspec.json.encode(data).decode()


def note(text: str) -> None:
    """A line for people, on stderr, so that it never mixes with a result."""
    click.echo(text, err=True)


def exit_code(error: MtsError) -> Exit:
    """The exit code for an error; a code that is not listed means that the input was refused."""
    return _EXIT_OF_CODE.get(error.code, Exit.USAGE)


def print_error(error: MtsError, as_json: bool) -> None:
    hint = error.details.get("hint") or _HINTS.get(error.code)
    if as_json:
        body: dict[str, Any] = {"code": error.code, "message": error.message, "details": error.details}
        if hint:
            body["hint"] = hint
        click.echo(to_json({"error": body}))
        return
    note(f"error: {error.message}")
    if hint:
        note(f"hint: {hint}")
