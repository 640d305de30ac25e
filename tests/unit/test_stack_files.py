from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import msgspec
import pytest

from minitoolstream.bundle import bundled
from minitoolstream.config import load_settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.stack.credentials import load_or_generate
from minitoolstream.stack.lock import locked
from minitoolstream.stack.private_files import private_folder, write_private
from minitoolstream.stack.processes import Launch, ProcessId
from minitoolstream.stack.state import Running, State, code_stamp, fingerprint, load_state, save_state


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_credentials_are_generated_once_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    first = load_or_generate(tmp_path)
    assert load_or_generate(tmp_path) == first
    assert mode(tmp_path / "secrets.json") == 0o600


def test_two_stacks_share_no_credential(tmp_path: Path) -> None:
    one, two = (load_or_generate(private_folder(tmp_path / name)) for name in "ab")
    values = [*one.settings.values(), *one.store_root.values(), *two.settings.values(), *two.store_root.values()]
    assert len(set(values)) == len(values)
    assert min(map(len, values)) >= 16


def test_no_credential_looks_like_an_option_of_a_command(tmp_path: Path) -> None:
    secrets = load_or_generate(tmp_path)
    assert all(value.isalnum() for value in (*secrets.settings.values(), *secrets.store_root.values()))


def test_a_credential_that_a_newer_version_needs_is_added(tmp_path: Path) -> None:
    secrets = load_or_generate(tmp_path)
    del secrets.settings["server.webhook_token"]
    (tmp_path / "secrets.json").write_bytes(msgspec.json.encode(secrets))
    added = load_or_generate(tmp_path)
    assert added.settings["server.webhook_token"]
    assert added.settings["server.token"] == secrets.settings["server.token"]


def test_damaged_credentials_are_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "secrets.json").write_text("{")
    with pytest.raises(MtsError, match="damaged"):
        load_or_generate(tmp_path)
    assert (tmp_path / "secrets.json").read_text() == "{"


def test_settings_read_what_the_stack_wrote(tmp_path: Path) -> None:
    secrets = load_or_generate(tmp_path)
    save_state(tmp_path, State(settings={"server.port": 4321, "server.urls": ["http://127.0.0.1:4321"]}))
    settings = load_settings({"MTS_HOME": str(tmp_path)}, cwd=tmp_path)
    assert settings["server.port"] == 4321
    assert settings["server.urls"] == ("http://127.0.0.1:4321",)
    assert settings.secret("minio.secret_key") == secrets.settings["minio.secret_key"]


def test_a_private_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, b"new")
    assert path.read_text() == "new"
    assert mode(path) == 0o600
    assert os.listdir(tmp_path) == ["token"]  # noqa: PTH208


def test_a_folder_others_could_enter_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / ".mts"
    folder.mkdir(mode=0o755)
    assert mode(private_folder(folder)) == 0o700


def test_state_survives_a_round_trip(tmp_path: Path) -> None:
    state = State({"server.port": 1}, {"host": Running(ProcessId(7, 8, "boot"), "mark")})
    save_state(tmp_path, state)
    assert load_state(tmp_path) == state
    assert mode(tmp_path / "state.json") == 0o600


def test_no_state_is_an_empty_state(tmp_path: Path) -> None:
    assert load_state(tmp_path) == State()


def test_the_path_of_the_calling_shell_is_no_part_of_a_fingerprint(tmp_path: Path) -> None:
    one, two = (Launch("x", ["x"], tmp_path, {"PATH": path, "A": "1"}) for path in ("/bin", "/venv/bin:/bin"))
    assert fingerprint(one) == fingerprint(two)


def test_a_fingerprint_changes_with_command_environment_and_stamp(tmp_path: Path) -> None:
    base = Launch("x", ["x"], tmp_path)
    marks = {
        fingerprint(base),
        fingerprint(Launch("x", ["x", "-v"], tmp_path)),
        fingerprint(Launch("x", ["x"], tmp_path, {"A": "1"})),
        fingerprint(base, "stamp"),
    }
    assert len(marks) == 4
    assert fingerprint(base) == fingerprint(Launch("x", ["x"], tmp_path))


def test_changed_code_changes_its_stamp(tmp_path: Path) -> None:
    (tmp_path / "a.lua").write_text("return 1")
    before = code_stamp(tmp_path)
    (tmp_path / "a.lua").write_text("return 22")
    assert code_stamp(tmp_path) != before


@pytest.mark.parametrize("name", ["tarantool", "functions", "web"])
def test_bundled_folders_are_found(name: str) -> None:
    assert bundled(name).is_dir()


def test_an_unknown_bundled_folder_is_a_clear_error() -> None:
    with pytest.raises(MtsError, match="is missing"):
        bundled("nothing")


def _hold(home: Path, held: multiprocessing.synchronize.Event, release: multiprocessing.synchronize.Event) -> None:
    with locked(home / "lock", waiting=lambda: None):
        held.set()
        release.wait(30)


def test_a_second_command_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    held, release = multiprocessing.Event(), multiprocessing.Event()
    first = multiprocessing.Process(target=_hold, args=(tmp_path, held, release))
    first.start()
    assert held.wait(30)
    # The first one goes on as soon as the second has said that it waits.
    with locked(tmp_path / "lock", waiting=release.set):
        assert release.is_set()
    first.join(30)


def test_waiting_for_the_lock_ends(tmp_path: Path) -> None:
    held, release = multiprocessing.Event(), multiprocessing.Event()
    first = multiprocessing.Process(target=_hold, args=(tmp_path, held, release))
    first.start()
    assert held.wait(30)
    with pytest.raises(MtsError, match="another mts"), locked(tmp_path / "lock", waiting=lambda: None, timeout=0):
        pass
    release.set()
    first.join(30)
