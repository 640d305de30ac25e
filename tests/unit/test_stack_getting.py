"""Getting programs from Debian and PyPI, without either."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from minitoolstream.domain.errors import MtsError
from minitoolstream.stack import apt, venvs
from minitoolstream.stack.console import Console
from minitoolstream.stack.program import Program
from scripts import tools
from scripts.test import Counts, tap_counts


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that would have run; each succeeds, and nothing is installed."""
    ran: list[list[str]] = []

    def run(command: Sequence[str], **_options: object) -> None:
        ran.append(list(command))
        if command[1:3] == ["-m", "venv"]:
            Path(command[-1]).mkdir()

    monkeypatch.setattr(apt, "run", run)
    monkeypatch.setattr(venvs, "run", run)
    for module in (apt, venvs):
        monkeypatch.setattr(module, "cache_folder", lambda: tmp_path)
    return ran


@pytest.fixture
def not_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt, "on_path", lambda _name: None)


def unpack_into(tmp_path: Path, package: str, *files: str) -> None:
    for name in files:
        path = tmp_path / "debian" / package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_a_program_on_path_is_taken_and_nothing_is_installed(commands: list[list[str]]) -> None:
    assert apt.get_program("sh", "dash").origin == "on PATH"
    assert commands == []


def test_with_root_the_package_is_installed(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    here = [None, None, Program(Path("/usr/bin/thing"), "on PATH")]
    monkeypatch.setattr(apt, "on_path", lambda _name: here.pop(0))
    monkeypatch.setattr(apt, "root_prefix", lambda: ["sudo", "-n"])
    assert apt.get_program("thing", "thing-package").path == Path("/usr/bin/thing")
    assert commands[0][:2] == ["sudo", "-n"]
    assert commands[0][-4:] == ["install", "-y", "--no-install-recommends", "thing-package"]


@pytest.mark.usefixtures("not_on_path")
def test_without_root_the_package_and_what_it_needs_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: list[list[str]]
) -> None:
    def run(command: Sequence[str], **options: object) -> None:
        commands.append(list(command))
        folder = options.get("folder")
        if isinstance(folder, Path):
            (folder / "thing_1.0_amd64.deb").touch()
            (folder / "libthing_1.0_amd64.deb").touch()
        if command[0] == "dpkg-deb":
            program = Path(command[-1]) / "usr" / "bin" / "thing"
            program.parent.mkdir(parents=True, exist_ok=True)
            program.touch()

    monkeypatch.setattr(apt, "run", run)
    monkeypatch.setattr(apt, "root_prefix", lambda: None)
    monkeypatch.setattr(apt, "_options", list)
    monkeypatch.setattr(apt, "_LISTS", with_lists(tmp_path))
    monkeypatch.setattr(apt, "output", lambda *_a, **_o: "Inst libthing (1.0 Debian)\nInst thing (1.0)\nConf thing\n")
    program = apt.get_program("thing", "thing")
    assert program.path == tmp_path / "debian" / "thing" / "usr" / "bin" / "thing"
    assert commands[0] == ["apt-get", "-q", "download", "libthing", "thing"]
    assert [command[0] for command in commands[1:]] == ["dpkg-deb", "dpkg-deb"]


def with_lists(folder: Path) -> Path:
    (folder / "lists").mkdir()
    (folder / "lists" / "debian_main_binary-amd64_Packages").touch()
    return folder / "lists"


@pytest.mark.usefixtures("not_on_path")
@pytest.mark.parametrize("stale", ["they name a file that is gone", "they do not know the package", "there are none"])
def test_without_root_old_package_lists_are_replaced_by_fresh_ones_of_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stale: str
) -> None:
    commands: list[list[str]] = []

    def is_fresh(command: Sequence[str]) -> bool:
        return f"Dir::State={tmp_path / 'apt' / 'state'}" in command

    def run(command: Sequence[str], **_options: object) -> None:
        commands.append(list(command))
        if "download" in command and not is_fresh(command):
            raise MtsError("start_failed", "404 Not Found")
        if "download" in command:
            unpack_into(tmp_path, "thing", "usr/bin/thing")

    def output(command: Sequence[str], **_options: object) -> str | None:
        return "Inst thing (1.0)\n" if is_fresh(command) or stale.endswith("gone") else None

    monkeypatch.setattr(apt, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(apt, "lead_inside", lambda target: (target / "usr" / "bin").mkdir(parents=True))
    monkeypatch.setattr(apt, "root_prefix", lambda: None)
    monkeypatch.setattr(apt, "run", run)
    monkeypatch.setattr(apt, "output", output)
    monkeypatch.setattr(apt, "_LISTS", tmp_path / "none" if stale == "there are none" else with_lists(tmp_path))
    monkeypatch.setattr(apt, "unpacked", lambda *_a, **_o: Program(tmp_path, "unpacked") if commands else None)

    assert apt.get_program("thing", "thing").origin == "unpacked"

    assert [command[-1] for command in commands if is_fresh(command)] == ["update", "thing"]
    assert len(commands) == (3 if stale.endswith("gone") else 2)


@pytest.mark.usefixtures("not_on_path", "commands")
def test_a_package_without_the_program_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt, "root_prefix", list)
    with pytest.raises(MtsError, match="did not bring"):
        apt.get_program("thing", "thing")


@pytest.mark.usefixtures("commands")
def test_an_unpacked_program_finds_its_libraries_and_lua_modules(tmp_path: Path) -> None:
    unpack_into(
        tmp_path,
        "lua-check",
        "usr/bin/luacheck",
        "usr/share/lua/5.1/luacheck/main.lua",
        "usr/lib/x86_64-linux-gnu/lua/5.1/lfs.so",
        "usr/lib/x86_64-linux-gnu/pulseaudio/libpulsecommon.so",
    )
    program = apt.unpacked("luacheck", "lua-check")
    assert program
    root = tmp_path / "debian" / "lua-check"
    assert program.environ["LUA_PATH"].startswith(f"{root}/usr/share/lua/5.1/?.lua")
    assert f"{root}/usr/lib/x86_64-linux-gnu/lua/5.1/?.so" in program.environ["LUA_CPATH"]
    assert f"{root}/usr/lib/x86_64-linux-gnu/pulseaudio" in program.environ["LD_LIBRARY_PATH"]


def test_links_of_packages_to_absolute_places_lead_to_what_was_unpacked(tmp_path: Path) -> None:
    """As Maven's to its settings under /etc."""
    for name in ("etc/maven/m2.conf", "usr/share/maven/bin/mvn"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "usr/share/maven/conf").symlink_to("/etc/maven")
    (tmp_path / "usr/share/maven/bin/m2.conf").symlink_to("/etc/maven/m2.conf")
    (tmp_path / "usr/share/maven/elsewhere").symlink_to("/etc/hostname")
    apt.lead_inside(tmp_path)
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert (moved / "usr/share/maven/bin/m2.conf").read_text() == "etc/maven/m2.conf"
    assert (moved / "usr/share/maven/conf/m2.conf").read_text() == "etc/maven/m2.conf"
    assert (moved / "usr/share/maven/elsewhere").readlink() == Path("/etc/hostname")


@pytest.mark.usefixtures("not_on_path", "commands")
def test_a_program_that_its_package_keeps_elsewhere_is_found_there(tmp_path: Path) -> None:
    unpack_into(tmp_path, "maven", "usr/share/maven/bin/mvn")
    program = apt.get_program("mvn", "maven", folder="share/maven/bin")
    assert program.path == tmp_path / "debian/maven/usr/share/maven/bin/mvn"


def test_a_virtualenv_is_built_once_from_hashed_pins(commands: list[list[str]]) -> None:
    first = venvs.private_venv("ministack")
    assert "--require-hashes" in commands[-1]
    count = len(commands)
    assert venvs.private_venv("ministack") == first
    assert len(commands) == count


def test_an_interrupted_virtualenv_is_built_again(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_command: Sequence[str], **_options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(venvs, "run", fail)
        with pytest.raises(KeyboardInterrupt):
            venvs.private_venv("ministack")
    venvs.private_venv("ministack")
    assert commands


def test_every_pin_of_a_private_virtualenv_has_a_hash() -> None:
    locks = list(venvs._LOCKS.glob("*.txt"))
    assert {lock.stem for lock in locks} == {"checkov", "go", "java", "localstack", "ministack", "spark3", "spark4"}
    for lock in locks:
        for requirement in lock.read_text().replace("\\\n", " ").splitlines():
            assert "==" in requirement, lock
            assert "--hash=sha256:" in requirement, lock


def test_getting_a_tool_is_a_step_that_ends_with_where_it_came_from() -> None:
    shown = io.StringIO()
    program = Program(Path("/usr/bin/thing"), "on PATH")

    def getter(*, update: Callable[[str], None]) -> Program:
        update("looking")
        return program

    assert tools.get(Console(shown), "Thing", getter) is program
    assert shown.getvalue() == "✓ Thing          on PATH\n"


class TestCountsOfLuaTests:
    def test_passes_failures_and_skips_are_counted(self) -> None:
        output = "TAP version 13\n1..3\nok - one\nnot ok - two\nok - three # skip no disk\n"
        assert tap_counts(output, 1) == Counts(passed=1, failed=1, skipped=1)

    def test_a_test_that_dies_before_its_plan_is_done_failed(self) -> None:
        assert tap_counts("TAP version 13\n1..3\nok - one\n", 0).failed == 1
        assert tap_counts("", 134).failed == 1

    def test_nested_results_are_not_counted_twice(self) -> None:
        output = "TAP version 13\n1..1\n    # inner\n    1..1\n    ok - inner\n    # inner: end\nok - outer\n"
        assert tap_counts(output, 0) == Counts(passed=1)
