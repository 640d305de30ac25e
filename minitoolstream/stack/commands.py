"""Run a command to its end, with its output in a log and a way to show how far it is."""

from __future__ import annotations

import os
import subprocess  # nosec B404
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from minitoolstream.domain.errors import MtsError
from minitoolstream.stack.processes import tail

Update = Callable[[str], None]


def ignore(_text: str) -> None:
    """For callers that show nothing."""


def run(
    command: Sequence[str],
    *,
    log: Path,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    each_line: Update = ignore,
) -> None:
    """MtsError `start_failed` with the end of the log when it does not exit with 0."""
    log.parent.mkdir(parents=True, exist_ok=True)
    since = log.stat().st_size if log.exists() else 0
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n")
        file.flush()
        try:
            child = subprocess.Popen(  # nosec B603
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environ or {})},
                cwd=folder,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise MtsError("start_failed", f"{command[0]} cannot be run: {error}") from error
        with child:
            try:
                for line in child.stdout or ():
                    file.write(line)
                    each_line(line.rstrip())
            except BaseException:
                child.kill()
                raise
    if child.returncode:
        raise MtsError(
            "start_failed",
            f"`{' '.join(command)}` ended with {child.returncode}",
            {"log": str(log), "log_tail": tail(log, since=since)},
        )


def output(command: Sequence[str], *, environ: Mapping[str, str] | None = None, timeout: float = 60) -> str | None:
    """What a command prints; None when it fails or does not exist."""
    try:
        answer = subprocess.run(  # nosec B603
            list(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=timeout,
            env={**os.environ, **(environ or {})},
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout


def prepended(name: str, folders: Sequence[Path]) -> str:
    """The value of a search-path variable with some folders before what it held."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get(name)])])
