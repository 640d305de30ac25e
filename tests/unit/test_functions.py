"""The shape of the functions: what Chalice reads, what a package holds, what is imported."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts import gen_functions, package_functions, tools

FUNCTIONS = sorted(gen_functions.FUNCTIONS)


def test_every_function_is_in_the_table() -> None:
    assert {path.parent.name for path in package_functions.FOLDER.glob("*/app.py")} == {*FUNCTIONS, "catalog"}


def test_what_chalice_reads_is_made_from_the_table() -> None:
    """`python -m scripts.gen_functions` writes it."""
    assert {path: path.read_text("utf-8") for path, _ in gen_functions.files()} == dict(gen_functions.files())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_policy_names_every_action_and_the_stages_own_resources(name: str) -> None:
    for stage in gen_functions.STAGES:
        for statement in gen_functions.policy(name, stage)["Statement"]:
            resources = statement["Resource"]
            for resource in [resources] if isinstance(resources, str) else resources:
                own = (
                    f"mts-{name.replace('_', '-')}-{stage}" if statement["Sid"] == "Logs" else f"minitoolstream-{stage}"
                )
                assert own in resource or statement["Sid"].startswith("Vpc"), (name, statement["Sid"])
            assert not [action for action in statement["Action"] if "*" in action]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_network_interfaces_are_for_lambda_itself_and_not_for_our_code(name: str) -> None:
    """Lambda wants that right on all of them; calls from inside of a function name the function."""
    statements = {one["Sid"]: one for one in gen_functions.policy(name, "prod")["Statement"]}
    denied = statements["VpcByLambdaAlone"]
    assert (denied["Effect"], denied["Resource"]) == ("Deny", "*")
    assert denied["Action"] == statements["Vpc"]["Action"]
    own = f"arn:aws:lambda:*:*:function:mts-{name.replace('_', '-')}-prod*"
    assert denied["Condition"] == {"ArnLike": {"lambda:SourceFunctionArn": own}}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_who_signs_puts_of_payloads_may_not_copy(name: str) -> None:
    """A header that is not signed would make a ticket's PUT a copy of any object that the role may read."""
    statements = {one["Sid"]: one for one in gen_functions.policy(name, "prod")["Statement"]}
    writes = [
        sid
        for sid, one in statements.items()
        if one["Effect"] == "Allow" and "s3:PutObject" in one["Action"] and any("/m/" in to for to in one["Resource"])
    ]
    assert bool(writes) is (name in {"publish", "ttl_sweeper"})
    if writes:
        denied = statements["NoCopies"]
        assert (denied["Effect"], denied["Action"]) == ("Deny", ["s3:PutObject"])
        assert denied["Resource"] == "arn:aws:s3:::minitoolstream-prod/*"
        assert denied["Condition"] == {"Null": {"s3:x-amz-copy-source": "false"}}


def test_all_functions_pin_what_the_host_pins() -> None:
    known = set(re.findall(r"^[a-z0-9-]+==\S+", (tools.ROOT / "requirements/runtime.txt").read_text(), re.MULTILINE))
    (lock,) = {(tools.ROOT / "functions" / name / "requirements.txt").resolve() for name in FUNCTIONS}
    assert set(re.findall(r"^[a-z0-9-]+==\S+", lock.read_text(), re.MULTILINE)) <= known


@pytest.mark.parametrize("name", FUNCTIONS)
def test_shared_code_comes_by_a_link_that_stays_in_the_repository(name: str) -> None:
    link = tools.ROOT / "functions" / name / "vendor" / "minitoolstream"
    assert link.is_symlink()
    assert link.resolve() == tools.ROOT / "minitoolstream"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return package_functions.build(tmp_path_factory.mktemp("packages"))


ONE_WORKER = pytest.mark.xdist_group("packages")

IMPORT = """
import json, sys
sys.path[:] = [sys.argv[1], *(path for path in sys.path if "site-packages" not in path)]
import socket
socket.socket.connect = None
import app
print(json.dumps([[m, getattr(sys.modules[m], "__file__", None)] for m in sorted(sys.modules)]))
"""
HANDLERS = {"authorizer": "authorize", "on_object_created": "on_object_created", "ttl_sweeper": "sweep"}


@ONE_WORKER
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_package_is_small_and_runs_where_there_is_nothing_else(
    packages: dict[str, Path], name: str, tmp_path: Path
) -> None:
    assert packages[name].stat().st_size < package_functions.LIMIT
    with zipfile.ZipFile(packages[name]) as opened:
        opened.extractall(tmp_path)
    # -I and -S: neither the user's packages nor the virtualenv's. What is not in the package is not there.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", IMPORT + f"assert callable(app.{HANDLERS.get(name, 'app')})", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={},
    )
    assert done.returncode == 0, done.stderr
    loaded = dict(json.loads(done.stdout))
    ours = {module: file for module, file in loaded.items() if module.split(".")[0] == "minitoolstream"}
    assert all(str(file).startswith(str(tmp_path)) for file in ours.values())
    roots = {module.split(".")[0] for module in loaded}
    assert not roots & {"pyspark", "grpc", "google", "pandas", "numpy", "boto3", "botocore", "click", "uvloop"}


@ONE_WORKER
def test_the_pipelines_package_holds_its_tables(packages: dict[str, Path]) -> None:
    with zipfile.ZipFile(packages["pipeline"]) as opened:
        assert "db/pipeline_ddl.sql" in opened.namelist()


@ONE_WORKER
def test_the_same_sources_give_the_same_package(packages: dict[str, Path], tmp_path: Path) -> None:
    """The two kinds that there are: with tables beside the code, and without."""
    again = _hashes(package_functions.build(tmp_path, ("pipeline", "publish")))
    assert again.items() <= _hashes(packages).items()


def _hashes(packages: dict[str, Path]) -> dict[str, str]:
    return {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in packages.items()}


@ONE_WORKER
def test_a_package_holds_no_path_of_the_machine_that_built_it(packages: dict[str, Path]) -> None:
    with zipfile.ZipFile(packages["fetch"]) as opened:
        for name in opened.namelist():
            if name.startswith(("app", "__pycache__/app", "minitoolstream")):
                assert str(tools.ROOT).encode() not in opened.read(name), name
