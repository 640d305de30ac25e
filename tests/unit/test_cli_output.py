"""What all commands share: JSON, errors, exit codes, help."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from minitoolstream.api.errors import HTTP_STATUS
from minitoolstream.api.schema_catalog import CopyFailure, PinShape, Placed
from minitoolstream.cli import output
from minitoolstream.cli.catalog_commands import _pin_text
from minitoolstream.cli.main import Group, cli
from minitoolstream.cli.output import EXIT_CODES_HELP, Exit, emit, exit_code, json_option
from minitoolstream.cli.progress import ProgressBar, human_size, human_time
from minitoolstream.cli.shapes import fields_text
from minitoolstream.domain.errors import MtsError
from tests.error_codes import raised_by


def group_with(failure: BaseException | None) -> click.Group:
    group = Group("mts")

    @group.command()
    @json_option
    @click.option("--number", type=int)
    def act(as_json: bool, number: int | None) -> None:
        if failure:
            raise failure
        emit(as_json, {"number": number}, lambda: f"the number is {number}")

    return group


def test_a_result_is_text_or_json() -> None:
    group = group_with(None)
    assert CliRunner().invoke(group, ["act", "--number", "5"]).stdout == "the number is 5\n"
    assert json.loads(CliRunner().invoke(group, ["act", "--number", "5", "--json"]).stdout) == {"number": 5}


def test_an_error_is_a_line_on_stderr_with_a_hint() -> None:
    result = CliRunner().invoke(group_with(MtsError("unreachable", "cannot reach it")), ["act"])
    assert result.stdout == ""
    assert result.stderr.splitlines()[0] == "error: cannot reach it"
    assert result.stderr.splitlines()[1].startswith("hint: is it running? `mts up`")
    assert result.exit_code == Exit.DEPENDENCY_DOWN


def test_an_error_with_json_is_json_on_stdout() -> None:
    failure = MtsError("not_found", "nothing", {"sequence": 7})
    result = CliRunner().invoke(group_with(failure), ["act", "--json"])
    error = json.loads(result.stdout)["error"]
    assert error == {"code": "not_found", "message": "nothing", "details": {"sequence": 7}}
    assert result.stderr == ""
    assert result.exit_code == Exit.NOT_FOUND


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("bad_request", 2),
        ("unauthorized", 2),
        ("too_large", 2),
        ("seqno_too_old", 2),
        ("something_new", 2),
        ("not_found", 3),
        ("checksum_mismatch", 4),
        ("upload_rejected", 4),
        ("upload_aborted", 4),
        ("upload_expired", 4),
        ("upload_incomplete", 4),
        ("unavailable", 5),
        ("internal", 1),
        ("interrupted", 130),
    ],
)
def test_each_error_has_its_exit_code(code: str, expected: int) -> None:
    assert exit_code(MtsError(code, "")) == expected


def test_every_code_with_an_exit_code_of_its_own_is_raised_somewhere() -> None:
    assert set(output._EXIT_OF_CODE) | set(output._HINTS) <= raised_by() | set(HTTP_STATUS)


def test_ctrl_c_is_130() -> None:
    result = CliRunner().invoke(group_with(KeyboardInterrupt()), ["act"])
    assert (result.exit_code, result.stderr) == (130, "error: interrupted\n")


def test_an_unexpected_failure_is_1_with_its_traceback() -> None:
    result = CliRunner().invoke(group_with(ZeroDivisionError("oh")), ["act", "--json"])
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert json.loads(result.stdout)["error"]["message"] == "unexpected ZeroDivisionError: oh"


def test_wrong_usage_is_2_also_in_json() -> None:
    group = group_with(None)
    result = CliRunner().invoke(group, ["act", "--number", "x"])
    assert result.exit_code == 2
    assert "not a valid integer" in result.stderr
    result = CliRunner().invoke(group, ["act", "--number", "x", "--json"])
    assert result.exit_code == 2
    assert "not a valid integer" in json.loads(result.stdout)["error"]["message"]
    assert CliRunner().invoke(group, ["unknown"]).exit_code == 2


def commands(group: click.Group, path: str = "mts") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


ALL = dict(commands(cli))


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_help_and_json(name: str) -> None:
    command = ALL[name]
    assert command.help
    if name != "mts serve":  # its output is its log
        assert "--json" in {flag for parameter in command.params for flag in parameter.opts}
    assert CliRunner().invoke(cli, [*name.split()[1:], "--help"]).exit_code == 0


def test_help_lists_every_exit_code() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).stdout
    assert all(f"\n    {code.value} " in shown for code in Exit)
    assert all(f"\n  {code.value} " in EXIT_CODES_HELP for code in Exit)


def test_version() -> None:
    assert CliRunner().invoke(cli, ["--version"]).stdout.startswith("mts ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_ask_mts(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert f"_MTS_COMPLETE={shell}_complete" in result.stdout


# -- progress


class Terminal:
    def __init__(self, tty: bool = True) -> None:
        self.text = ""
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        return


def test_progress_shows_bytes_rate_and_time_left() -> None:
    terminal = Terminal()
    now = iter([0.0, 1.0, 2.0]).__next__
    with ProgressBar("film", terminal, now) as bar:  # type: ignore[arg-type]
        for done in (0, 1024, 4096):
            bar(done, 4096)
    lines = terminal.text.split("\r")[1:]
    assert lines[1].strip() == "film  1.0 KiB / 4.0 KiB  25%  1.0 KiB/s  ETA 0:03"
    assert lines[2].strip() == "film  4.0 KiB / 4.0 KiB  100%  2.0 KiB/s"
    assert terminal.text.endswith("\n")


def test_progress_is_drawn_at_most_ten_times_a_second() -> None:
    terminal = Terminal()
    with ProgressBar("film", terminal, lambda: 0.0) as bar:  # type: ignore[arg-type]
        for done in range(1000):
            bar(done, 1000)
        bar(1000, 1000)
    assert terminal.text.count("\r") == 2


def test_progress_is_silent_where_nobody_watches() -> None:
    terminal = Terminal(tty=False)
    with ProgressBar("film", terminal) as bar:  # type: ignore[arg-type]
        bar(1, 2)
    assert terminal.text == ""


def test_sizes_and_times_are_readable() -> None:
    assert [human_size(n) for n in (0, 1023, 1536, 5 * 2**40)] == ["0 B", "1023 B", "1.5 KiB", "5.0 TiB"]
    assert [human_time(n) for n in (0, 75, 3675)] == ["0:00", "1:15", "1:01:15"]


def test_ctrl_c_while_the_command_is_still_being_loaded_is_130() -> None:
    code = """
import sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "click":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
from minitoolstream.cli.entry import main
main()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (130, "error: interrupted\n")


def test_fields_are_shown_whole_but_never_steer_the_terminal() -> None:
    assert fields_text([("name", "x" * 200), ("none", ""), ("n", "a\x1b[2J\nb")]) == f"name  {'x' * 200}\nn     a·[2J·b"


def test_a_pin_is_shown_with_what_is_known_of_it() -> None:
    placed = Placed(["eu", "us"], ["eu"], [], ["us"], drift=True, attempts=0)
    pin = PinShape(
        cid="bafk", owner="alice", status="pinning", rf=2, version=3, created_at="", updated_at="", placement=placed
    )
    lines = ["bafk", "status   pinning, version 3, owner alice", "copies   1 of 2: eu"]
    assert _pin_text(pin).splitlines() == lines
    pin.failures = [CopyFailure("us", "it is full", 2, "")]
    assert _pin_text(pin).splitlines() == [*lines, "retried  us, attempt 2: it is full"]
    pin.failures = []
    pin.name, pin.size, pin.tags, pin.zones = "film", 0, ["x", "y"], ["eu", "us"]
    known = ["name     film", "size     0 B", "tags     x, y", "zones    eu, us"]
    assert _pin_text(pin).splitlines() == [*lines, *known]
