"""How MariaDB is got and started: unpacked, never installed; with passwords that no process list shows."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from minitoolstream.domain.errors import MtsError
from minitoolstream.stack import apt, get_mariadb, mariadb
from minitoolstream.stack.program import Program


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What `which` finds; packages go into a cache of the test's own."""
    found: dict[str, str] = {"apt-get": "/usr/bin/apt-get"}
    monkeypatch.setattr(shutil, "which", lambda name, **_: found.get(name))
    monkeypatch.setattr(apt, "cache_folder", lambda: tmp_path)
    return found


def unpacked_at(folder: Path) -> Path:
    program = folder / "debian" / "mariadb-server" / "usr" / "sbin" / "mariadbd"
    program.parent.mkdir(parents=True)
    program.touch()
    return program


def test_an_installed_one_is_taken(machine: dict[str, str]) -> None:
    machine |= {"mariadbd": "/usr/sbin/mariadbd", "mariadb-install-db": "/usr/bin/mariadb-install-db"}
    assert get_mariadb.get_mariadb().path == Path("/usr/sbin/mariadbd")


def test_a_missing_one_is_unpacked_and_found_the_next_time(
    machine: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def unpack(package: str, **_: object) -> None:
        calls.append(package)
        unpacked_at(tmp_path)

    monkeypatch.setattr(apt, "unpack", unpack)
    first = get_mariadb.get_mariadb()
    assert first.path == tmp_path / "debian/mariadb-server/usr/sbin/mariadbd"
    assert get_mariadb.get_mariadb() == first
    assert calls == ["mariadb-server"]


def test_what_cannot_be_got_is_a_clear_error(machine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt, "unpack", lambda *_, **__: None)
    with pytest.raises(MtsError, match="did not bring"):
        get_mariadb.get_mariadb()
    machine.clear()
    with pytest.raises(MtsError, match="no apt-get"):
        get_mariadb.get_mariadb()


def test_passwords_go_by_a_file_of_its_user_alone(tmp_path: Path) -> None:
    program = Program(unpacked_at(tmp_path), "unpacked")
    words = mariadb.first_words("root-secret", "mts", "user-secret", [r"pipeline\_%"])
    launch = mariadb.launch(program, port=3307, data=tmp_path / "data", log=tmp_path / "log", words=words)
    told = " ".join(launch.command) + str(dict(launch.environ))
    assert "secret" not in told
    assert "--bind-address=127.0.0.1" in launch.command
    (file,) = [word.partition("=")[2] for word in launch.command if word.startswith("--init-file")]
    assert Path(file).stat().st_mode & 0o077 == 0
    assert "user-secret" in Path(file).read_text()


def test_its_tables_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Sequence[str]] = []
    monkeypatch.setattr(mariadb, "run", lambda command, **_: ran.append(command))
    program, data = Program(unpacked_at(tmp_path), "unpacked"), tmp_path / "d" / "data"
    mariadb.create(program, data, tmp_path / "log")
    assert ran[0][0].endswith("/usr/bin/mariadb-install-db")
    (data / "mysql").mkdir(parents=True)
    mariadb.create(program, data, tmp_path / "log")
    assert len(ran) == 1
