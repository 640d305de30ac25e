"""The shape of infra/terraform: routes as the functions have them, modules as users expect them, what checkers say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

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


KEY, SECRET = "arn:aws:kms:eu-central-1:111111111111:key/k", "arn:aws:secretsmanager:eu-central-1:111111111111:secret:s"
WITH_ROLES = f"""
terraform {{
  required_providers {{
    aws = {{ source = "hashicorp/aws" }}
  }}
}}

provider "aws" {{
  region                      = "eu-central-1"
  access_key                  = "none"
  secret_key                  = "none"
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_requesting_account_id  = true
}}

module "tarantool" {{
  source                    = "../../modules/tarantool"
  name                      = "mts"
  region                    = "eu-central-1"
  vpc_id                    = "vpc-1"
  subnet_id                 = "subnet-1"
  zone                      = "eu-central-1a"
  ami_id                    = "ami-1"
  kms_key_arn               = "{KEY}"
  secret_arn                = "{SECRET}"
  code_url                  = "s3://code/tarantool.tar.gz"
  client_security_group_ids = {{}}
}}

module "emr" {{
  source          = "../../modules/emr"
  name            = "mts"
  vpc_id          = "vpc-1"
  subnet_ids      = ["subnet-1"]
  bucket_arn      = "arn:aws:s3:::payloads"
  code_bucket_arn = "arn:aws:s3:::code"
  kms_key_arn     = "{KEY}"
  secret_arn      = "{SECRET}"
}}
"""


@pytest.fixture(scope="module")
def grants(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, set[str]]]:
    """Of each role that is no function's: every action, and on what. Computed by Terraform; nobody is asked."""
    terraform = Terraform.prepared(tmp_path_factory.mktemp("roles"), "roles")
    terraform.folder.mkdir()
    (terraform.folder / "main.tf").write_text(WITH_ROLES)
    terraform.run("init", "-no-color")
    found: dict[str, dict[str, set[str]]] = {}
    for planned in terraform.planned():
        if planned["type"] == "aws_iam_role_policy":
            granted = found.setdefault(planned["values"]["name"].removeprefix("mts-"), {})
            for statement in json.loads(planned["values"]["policy"])["Statement"]:
                assert statement["Effect"] == "Allow"
                for action in _listed(statement["Action"]):
                    granted.setdefault(action, set()).update(_listed(statement["Resource"]))
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


ROLES = pytest.mark.xdist_group("terraform-roles")


@ROLES
@needs_terraform
@pytest.mark.parametrize("role", ["tarantool", "emr"])
def test_who_may_read_the_secret_may_decrypt_it(grants: dict[str, dict[str, set[str]]], role: str) -> None:
    assert grants[role]["secretsmanager:GetSecretValue"] == {SECRET}
    assert grants[role]["kms:Decrypt"] == {KEY}


@ROLES
@needs_terraform
def test_spark_may_write_encrypted_objects(grants: dict[str, dict[str, set[str]]]) -> None:
    assert grants["emr"]["kms:GenerateDataKey"] == {KEY}


@ROLES
@needs_terraform
def test_nobody_may_replace_what_another_runs(grants: dict[str, dict[str, set[str]]]) -> None:
    """Code of Tarantool and of Spark are in one bucket; jobs log there too."""
    code = "arn:aws:s3:::code/"
    assert grants["tarantool"]["s3:GetObject"] == {code + "tarantool.tar.gz"}
    assert {action for action in grants["tarantool"] if action.startswith("s3:")} == {"s3:GetObject"}
    assert {name for name in grants["emr"]["s3:GetObject"] if name.startswith(code)} == {code + "spark/*"}
    assert {name for name in grants["emr"]["s3:PutObject"] if name.startswith(code)} == {code + "logs/*"}


@ROLES
@needs_terraform
def test_spark_reads_what_is_published_and_what_it_wrote(grants: dict[str, dict[str, set[str]]]) -> None:
    bucket = "arn:aws:s3:::payloads/"
    read = {name.removeprefix(bucket) for name in grants["emr"]["s3:GetObject"] if name.startswith(bucket)}
    written = {name.removeprefix(bucket) for name in grants["emr"]["s3:PutObject"] if name.startswith(bucket)}
    assert read == {"m/*", "_mts/packs/*", "_mts/journal/*", "replays/*", "pipeline/*"}
    assert written == {"replays/*", "pipeline/*", "_mts/packs/*"}


SCRIPT = INFRA / "modules" / "tarantool" / "user_data.sh"
STUBS = """
looks=0
unset SECONDS; SECONDS=0
apt-get() { echo "apt-get $*"; }
blkid() { return 1; }
mkfs.xfs() { echo "mkfs.xfs $1 after $SECONDS s"; }
sleep() { SECONDS=$((SECONDS + $1)); }
[() {
  if test "$1" = -b; then
    looks=$((looks + 1))
    test "$looks" -gt "$MISSED" && test "$2" = /dev/nvme1n1
  else
    test "${@:1:$#-1}"
  fi
}
"""


def set_up(missed: int) -> subprocess.CompletedProcess[str]:
    """The first start of Tarantool's machine up to its disk, which is there after so many looks."""
    before, mounts, _ = SCRIPT.read_text("utf-8").partition("mkdir -p /var/lib/mts\n")
    assert mounts
    environ = {"PATH": "/usr/bin:/bin", "MISSED": str(missed)}
    command = ["bash", "-c", STUBS + before]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=30)


def test_tarantools_machine_waits_for_its_volume() -> None:
    done = set_up(missed=9)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "mkfs.xfs /dev/nvme1n1 after 6 s"
    assert "xfsprogs" in done.stdout  # Debian's images have no mkfs.xfs


def test_tarantools_machine_says_when_it_has_no_volume() -> None:
    done = set_up(missed=10**9)
    assert done.returncode == 1
    assert done.stderr == "no second volume after 600 s\n"
    assert "mkfs.xfs" not in done.stdout


def test_checkov_has_nothing_to_say(tmp_path: Path) -> None:
    """But for what infra/terraform/.checkov.yaml leaves out, with the reason of each."""
    shutil.copytree(INFRA, tmp_path / "terraform", ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*"))
    done = checkov.run(tmp_path / "terraform")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
