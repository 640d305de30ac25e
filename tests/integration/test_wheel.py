"""The wheel by itself: what an installation has that stands far from any checkout."""

from __future__ import annotations

import email
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minitoolstream.host.functions import NAMES

ROOT = Path(__file__).parents[2]
_ONLY_BY_EXTRAS = {"pyspark", "pandas", "pyarrow", "grpcio", "protobuf", "cassandra-driver"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make dist` does."""
    folder = tmp_path_factory.mktemp("dist")
    built = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run([sys.executable, "-m", "pip", *built], check=True, timeout=120)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a virtualenv with the wheel, and with what the wheel needs from ours: not with our checkout."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    python = folder / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", "--no-compile", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *install], check=True, timeout=120)
    # Of a folder named like this, the `.pth` files that lead to the checkout are not read.
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Commands of that virtualenv in an empty folder; a stack that was started there is stopped in the end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MTS_", "PYTHON", "COVERAGE_"))}
    environ = {**kept, "MTS_SERVER_WORKERS": "1", "MTS_GRPC_INGRESS_PORT": "0", "MTS_GRPC_EGRESS_PORT": "0"}

    def command(name: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(installed / name), *arguments],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    yield command
    if (tmp_path / ".mts").exists():
        command("mts", "down")


def files(folder: Path) -> set[str]:
    found = {path.relative_to(ROOT) for path in folder.rglob("*") if path.is_file()}
    return {str(path) for path in found if "__pycache__" not in path.parts}


def test_the_wheel_holds_every_file_that_the_code_loads(wheel: Path) -> None:
    code = "".join(path.read_text("utf-8") for path in (ROOT / "minitoolstream").rglob("*.py"))
    names = set(re.findall(r'\bbundled\("(\w+)"\)', code))
    assert {"functions", "tarantool", "web"} <= names
    expected = {f"functions/{name}/app.py" for name in NAMES}
    for name in names - {"functions"}:
        expected |= files(ROOT / name)

    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    prefix = "minitoolstream/_bundled/"
    assert {name.removeprefix(prefix) for name in held if name.startswith(prefix)} == expected
    assert files(ROOT / "minitoolstream") <= held


def test_what_only_an_extra_needs_is_not_asked_for(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        needed = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    plain = {re.split(r"[<>=!;\[ ]", line)[0] for line in needed if "extra ==" not in line}
    assert "boto3" in plain
    assert not plain & _ONLY_BY_EXTRAS


def test_an_installed_wheel_brings_up_a_stack_and_takes_a_message(run: Callable[..., str], tmp_path: Path) -> None:
    find = "import minitoolstream, minitoolstream.bundle as b; print(minitoolstream.__file__, b.bundled('tarantool'))"
    assert str(ROOT) not in run("python", "-c", find)
    payload = tmp_path / "payload"
    payload.write_bytes(b"from far away")

    run("mts", "up", "--quick")
    sequence = json.loads(run("mts", "publish", "orders", str(payload), "--json"))["sequence"]
    page = json.loads(run("mts", "fetch", "orders", "--json"))
    run("mts", "get", str(sequence), "-o", "copy")

    assert [message["sequence"] for message in page["messages"]] == [sequence]
    assert (tmp_path / "copy").read_bytes() == b"from far away"
