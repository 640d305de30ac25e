"""The `mts` command: gathers the commands and turns every failure into a message and an exit code."""

from __future__ import annotations

import traceback
from importlib import metadata
from typing import Any

import click
from click.shell_completion import get_completion_class

from minitoolstream.cli import (
    aws_commands,
    catalog_commands,
    consumer_commands,
    deletion_commands,
    dlq_commands,
    export_commands,
    fsck_command,
    pipeline_commands,
    recovery_commands,
    retention_commands,
    stack_commands,
    stream_commands,
    subject_commands,
    tail_command,
)
from minitoolstream.cli.output import (
    EXIT_CODES_HELP,
    Exit,
    emit,
    exit_code,
    json_option,
    note,
    print_error,
    wants_json,
)
from minitoolstream.config import no_permission
from minitoolstream.domain.errors import MtsError

_ASKED = "minitoolstream.json_asked"


class Group(click.Group):
    """A group whose commands may raise MtsError, be interrupted or fail: each has its exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # A usage error comes before the command's own `--json` was read.
        ctx.meta[_ASKED] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MtsError as error:
            print_error(error, wants_json(ctx))
            ctx.exit(exit_code(error))
        except (KeyboardInterrupt, click.Abort):
            print_error(MtsError("interrupted", "interrupted"), wants_json(ctx))
            ctx.exit(Exit.INTERRUPTED)
        except click.UsageError as error:
            if not ctx.meta[_ASKED]:
                raise
            print_error(MtsError("bad_request", error.format_message()), as_json=True)
            ctx.exit(Exit.USAGE)
        except (click.ClickException, click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as error:
            refused = no_permission(error) if isinstance(error, OSError) else None
            if refused:
                print_error(refused, wants_json(ctx))
                ctx.exit(exit_code(refused))
            note("".join(traceback.format_exception(error)).rstrip())
            message = f"unexpected {type(error).__name__}: {error}"
            print_error(MtsError("internal", message), wants_json(ctx))
            ctx.exit(Exit.UNEXPECTED)


def version() -> str:
    try:
        return metadata.version("minitoolstream")
    except metadata.PackageNotFoundError:
        return "unknown (not installed)"


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXIT_CODES_HELP,
)
@click.version_option(version(), prog_name="mts", message="%(prog)s %(version)s")
def cli() -> None:
    """MiniToolStream: a message stream for payloads of any size.

    \b
    mts up                            start a stack on this machine
    mts publish orders ./video.mp4    put a file into the subject `orders`
    mts fetch orders                  see what is in it
    mts get 1 -o video.mp4            get a payload back
    mts tail orders -f                see messages as they come
    """


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
def completion(shell: str, as_json: bool) -> None:
    """Print the shell completion script.

    \b
    bash:  mts completion bash > ~/.local/share/bash-completion/completions/mts
    zsh:   mts completion zsh > "${fpath[1]}/_mts"
    fish:  mts completion fish > ~/.config/fish/completions/mts.fish
    """
    found = get_completion_class(shell)
    if found is None:
        raise MtsError("internal", f"no completion for {shell}")
    script = found(cli, {}, "mts", "_MTS_COMPLETE").source()
    emit(as_json, {"shell": shell, "script": script}, script.strip())


for _command in (
    *stack_commands.COMMANDS,
    *stream_commands.COMMANDS,
    *consumer_commands.COMMANDS,
    *dlq_commands.COMMANDS,
    *subject_commands.COMMANDS,
    *retention_commands.COMMANDS,
    *recovery_commands.COMMANDS,
    *deletion_commands.COMMANDS,
    *export_commands.COMMANDS,
    *pipeline_commands.COMMANDS,
    *aws_commands.COMMANDS,
    *catalog_commands.COMMANDS,
    tail_command.tail,
    fsck_command.fsck,
):
    cli.add_command(_command)


def main() -> None:
    """Runs `mts`, also as `python -m minitoolstream.cli.main`."""
    cli(prog_name="mts")


if __name__ == "__main__":
    main()
