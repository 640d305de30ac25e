"""The shape of infra/terraform: routes as the functions have them, modules as users expect them, what checkers say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts import checkov, gen_terraform, tools
from tests.e2e.conftest import NO_TERRAFORM
from tests.e2e.deploy import Terraform, terraform_command

INFRA = tools.ROOT / "infra" / "terraform"
MODULES = sorted(path.name for path in (INFRA / "modules").iterdir())
ENVS = sorted(path.name for path in (INFRA / "envs").iterdir())
needs_terraform = pytest.mark.skipif(terraform_command() is None, reason=NO_TERRAFORM)


def test_the_api_has_the_routes_of_the_functions() -> None:
    """`python -m scripts.gen_terraform` writes them."""
    assert (tools.ROOT / gen_terraform.FILE).read_text("utf-8") == gen_terraform.routes()


def test_no_two_paths_share_a_name() -> None:
    content = json.loads(gen_terraform.routes())
    routes, resources = content["locals"]["routes"], content["resource"]["aws_api_gateway_resource"]
    prefixes = {
        "/".join(parts[:length])
        for parts in (route.partition(" /")[2].split("/") for route in routes)
        for length in range(1, len(parts) + 1)
    }
    assert len(resources) == len(prefixes)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_its_four_files_and_describes_what_it_takes_and_gives(module: str) -> None:
    folder = INFRA / "modules" / module
    assert {path.name for path in folder.glob("*.tf")} == {"main.tf", "variables.tf", "outputs.tf", "versions.tf"}
    for file, kind in (("variables.tf", "variable"), ("outputs.tf", "output")):
        text = (folder / file).read_text("utf-8")
        found = re.findall(rf'^{kind} "(\w+)" \{{\n  description = "(.+)"', text, re.MULTILINE)
        assert len(found) == len(re.findall(rf'^{kind} "', text, re.MULTILINE))


@needs_terraform
def test_every_file_is_formatted() -> None:
    command = terraform_command()
    assert command
    done = subprocess.run(
        [command, "fmt", "-check", "-recursive", "-no-color", str(INFRA)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@needs_terraform
@pytest.mark.parametrize("env", ENVS)
def test_an_environment_is_valid(env: str, tmp_path: Path) -> None:
    terraform = Terraform.prepared(tmp_path, env)
    terraform.run("init", "-no-color", "-backend=false")
    terraform.run("validate", "-no-color")


def test_checkov_has_nothing_to_say(tmp_path: Path) -> None:
    """But for what infra/terraform/.checkov.yaml leaves out, with the reason of each."""
    shutil.copytree(INFRA, tmp_path / "terraform", ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*"))
    done = checkov.run(tmp_path / "terraform")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
