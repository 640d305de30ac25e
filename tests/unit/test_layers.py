"""Who may import whom, and who may read the environment."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "minitoolstream"

MAY_IMPORT: dict[str, set[str]] = {
    "domain": set(),
    "config": {"domain", "options"},
    "options": {"domain", "setting_values"},
    "setting_values": set(),
    "bundle": {"domain"},
    "request_id": set(),
    "net": set(),
    "ports": {"domain"},
    "services": {"domain", "ports", "config", "request_id"},
    "adapters": {"domain", "ports", "config", "net", "request_id"},
    "bootstrap": {"adapters", "bundle", "config", "ports", "services"},
    "container": {"bootstrap", "config", "domain", "options", "services"},
    "api": {"container", "domain", "ports", "services", "request_id"},
    "functions": {"api", "container", "domain", "services"},
    "host": {"api", "bootstrap", "bundle", "config", "domain", "net", "ports", "request_id", "services"},
    "client": {"api", "config", "domain", "net"},
    "pb": set(),
    "grpc": {"api", "bootstrap", "config", "domain", "host", "net", "pb", "ports", "request_id", "services"},
    "connector": {"client", "config", "domain", "net", "pb"},
    "pipeline": {"bootstrap", "client", "config", "domain", "ports"},
    "stack": {"bundle", "client", "config", "domain", "net", "options"},
    "aws": {"domain"},
    "cli": {
        *("aws", "bootstrap", "client", "config", "domain", "grpc", "host", "pipeline"),
        *("options", "services", "setting_values", "stack"),
    },
}
"""Everyone may import its own layer; `api` opens the core where a Lambda's first call needs it, `cli` where a command
of an operator works without a host (backup, restore)."""

LIBRARIES: dict[str, set[str]] = {
    "asynctnt": {"adapters/tarantool/connection.py", "adapters/tarantool/legacy.py", "stack/tarantool.py"},
    "boto3": {"aws/letters.py", "host/sqs.py", "stack/bucket.py"},
    "botocore": {"aws/letters.py", "host/sqs.py", "stack/bucket.py", "stack/ministack.py"},
    "chalice": {"api/app.py"},
    "pymysql": {"adapters/sql/mysql.py"},
    "yaml": {"config.py"},
    "zstandard": {"client/_codec.py"},
}
"""A library that comes and goes with one part is used by that part alone."""

ENVIRONMENT: dict[str, str] = {
    "config.py": "it is what reads it for all others",
    "stack/processes.py": "children get the caller's environment and what is added to it",
    "stack/commands.py": "so do the commands that fetch and build servers",
    "stack/ministack_server.py": "runs in a virtualenv of its own, without this package",
}


def sources() -> Iterator[tuple[str, Path]]:
    """Every module with its layer."""
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT / PACKAGE).parts
        if parts[0] not in {"_bundled", "__init__.py"}:
            yield parts[0].removesuffix(".py"), path
    for path in sorted((ROOT / "functions").glob("*/app.py")):
        yield "functions", path


@cache
def imported(path: Path) -> frozenset[str]:
    """Full names of everything a file imports, at the top or inside a function."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


@cache
def parsed(path: Path) -> ast.AST:
    return ast.parse(path.read_text("utf-8"))


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix().removeprefix(f"{PACKAGE}/")


def layers_of(path: Path) -> set[str]:
    ours = {name.split(".")[1] for name in imported(path) if name.startswith(f"{PACKAGE}.")}
    return {layer for layer in ours if not layer.startswith("__")}


def test_every_module_belongs_to_a_layer() -> None:
    assert {layer for layer, _ in sources()} == set(MAY_IMPORT)


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_a_layer_imports_only_what_it_may(layer: str) -> None:
    allowed = MAY_IMPORT[layer] | {layer}
    wrong = {short(path): extra for name, path in sources() if name == layer and (extra := layers_of(path) - allowed)}
    assert wrong == {}


def test_only_bootstrap_knows_the_adapters() -> None:
    knowing = {short(path) for layer, path in sources() if layer != "adapters" and "adapters" in layers_of(path)}
    assert knowing == {"bootstrap.py"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_is_used_where_it_belongs(library: str) -> None:
    using = {short(path) for _, path in sources() if any(name.split(".")[0] == library for name in imported(path))}
    assert using <= LIBRARIES[library]


def test_the_domain_needs_the_standard_library_and_msgspec_alone() -> None:
    for layer in ("domain", "services", "ports"):
        for path in (path for name, path in sources() if name == layer):
            roots = {name.split(".")[0] for name in imported(path)}
            assert roots - set(sys.stdlib_module_names) <= {PACKAGE, "msgspec"}, path


def test_only_config_reads_the_environment() -> None:
    readers = set()
    for _, path in sources():
        names = imported(path)
        used = {
            node.attr
            for node in ast.walk(parsed(path))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
        }
        if used & {"environ", "getenv", "environb", "putenv"} or {"os.environ", "os.getenv"} & names:
            readers.add(short(path))
    assert readers == set(ENVIRONMENT)


def loaded_by(module: str) -> set[str]:
    code = f"import sys; before = set(sys.modules); import {module}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def test_the_client_comes_without_the_server() -> None:
    loaded = loaded_by("minitoolstream.client")
    ours = {name.split(".")[1] for name in loaded if name.startswith(f"{PACKAGE}.")}
    assert ours <= MAY_IMPORT["client"] | MAY_IMPORT["config"] | MAY_IMPORT["options"] | {"client"}
    roots = {name.split(".")[0] for name in loaded}
    assert not roots & {"asynctnt", "boto3", "botocore", "chalice", "uvicorn", "uvloop", "minio", "prometheus_client"}


@pytest.mark.parametrize(
    "module",
    [
        "minitoolstream.cli.main",
        "minitoolstream.client",
        "minitoolstream.host.serve",
        "minitoolstream.host.functions as f; f.load_functions(); import minitoolstream.bootstrap",
    ],
)
def test_grpc_is_an_extra_that_nothing_else_needs(module: str) -> None:
    roots = {name.split(".")[0] for name in loaded_by(module)}
    assert not roots & {"grpc", "google", "grpc_health", "grpc_reflection"}


def test_a_function_opens_no_connection_when_it_is_imported() -> None:
    load = "from minitoolstream.host.functions import load_functions; load_functions()"
    code = f"import socket; socket.socket.connect = None; {load}"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
