"""Writes docs/cli.md from the commands' own help; a test compares the two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from minitoolstream.cli.main import cli

HEAD = """# The command line: `mts`

`mts` finds the stack that `mts up` started in this folder or one above it; `MTS_URL` and `MTS_TOKEN` name another one
([configuration](configuration.md)).

- **`--json`** works on every command (`mts serve` aside: its output is its log, JSON already): stdout then holds JSON
  and nothing else, the result or `{"error": {"code", "message", "details", "hint"?}}`. Shapes are those of the
  [HTTP API](http.md). `mts publish` prints a receipt for each file, one a line.
- Without it, results go to stdout as text; errors go to stderr as `error: ...`, often with a `hint: ...`. Progress
  bars and hints are on stderr, bars only on a terminal.
- **After Ctrl-C**, the same `mts publish` or `mts get -o` goes on where it stopped. What that needs is kept in
  `~/.local/state/minitoolstream/` (or under `XDG_STATE_HOME`) and in a `.part` file beside the target.
- **`mts status`** tells scripts by its exit code: 0 when all runs, 5 when a part is down or cannot be reached, 3 when
  the stack is stopped or was never started.
- **Completion**: `mts completion bash`, `zsh` or `fish` prints the script.

This page is made from `mts --help` by `python -m scripts.gen_cli_docs`.
"""
WIDTH = 100


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from commands(command.commands[name], f"{path} {name}")


def help_of(path: str, command: click.Command) -> str:
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    context = click.Context(command, info_name=path, **{**settings, "help_option_names": ["-h", "--help"]})
    return command.get_help(context).rstrip()


def page() -> str:
    sections = [f"## {path}\n\n```\n{help_of(path, command)}\n```\n" for path, command in commands(cli, "mts")]
    return HEAD + "\n" + "\n".join(sections)


if __name__ == "__main__":
    Path("docs/cli.md").write_text(page(), "utf-8")
