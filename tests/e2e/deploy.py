"""`terraform apply` of envs/local on the emulator, from packages as users build them."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minitoolstream.stack.credentials import new_secret
from scripts import package_functions, tools
from tests.e2e.emulator import KEY, REGION, Emulator
from tests.servers import TarantoolServer

_APPLY_WITHIN = 600
_PERMISSION = re.compile(r"adding Lambda Permission \(([\w-]+)/([\w-]+)\)")
_log = logging.getLogger("mts.deploy")


def terraform_command() -> str | None:
    """Given by whoever has one with the AWS provider at hand: not every machine can fetch it."""
    return os.environ.get("TERRAFORM") or None


class TerraformError(Exception):
    """With all that terraform said."""


@dataclass
class Terraform:
    """Works on a copy of infra/: its own files do not belong beside the sources."""

    folder: Path
    environ: dict[str, str]

    @classmethod
    def prepared(cls, folder: Path, env: str) -> Terraform:
        shutil.copytree(
            tools.ROOT / "infra", folder / "infra", ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*")
        )
        (folder / "functions").symlink_to(tools.ROOT / "functions")
        return cls(folder / "infra" / "terraform" / "envs" / env, {})

    def run(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> tuple[int, str]:
        command = terraform_command()
        assert command, "TERRAFORM names no terraform"
        environ = {**os.environ, **self.environ, "TF_IN_AUTOMATION": "1", "TF_INPUT": "0", "CHECKPOINT_DISABLE": "1"}
        done = subprocess.run(
            [command, *arguments],
            cwd=self.folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=_APPLY_WITHIN,
            check=False,
        )
        if done.returncode not in codes:
            said = (done.stdout + done.stderr).strip()
            raise TerraformError(f"terraform {' '.join(arguments)} ended with {done.returncode}:\n{said}")
        return done.returncode, done.stdout

    def planned(self) -> list[dict[str, Any]]:
        """What a plan would make, with the values that are known before."""
        self.run("plan", "-no-color", "-lock=false", "-out=made.tfplan")
        plan = json.loads(self.run("show", "-json", "made.tfplan")[1])
        return list(_resources(plan["planned_values"]["root_module"]))


def _resources(module: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from module.get("resources", [])
    for child in module.get("child_modules", []):
        yield from _resources(child)


@dataclass
class Deployed:
    emulator: Emulator
    tarantool: TarantoolServer
    terraform: Terraform
    stack: dict[str, Any]
    token: str

    @property
    def url(self) -> str:
        return f"{self.emulator.endpoint}/restapis/{self.stack['api_id']}/local/_user_request_"

    def plan(self) -> tuple[int, str]:
        """0: nothing to do; 2: something would change."""
        return self.terraform.run("plan", "-no-color", "-detailed-exitcode", codes=(0, 2))


def unmake(emulator: Emulator, refusal: str) -> None:
    """What the emulator has and terraform does not know of: the permissions that are named, or the API, whose resources
    name themselves by ids alone. Made anew, it costs some seconds, and all else stays."""
    permissions = set(_PERMISSION.findall(refusal))
    for function, statement in permissions:
        emulator.client("lambda").remove_permission(FunctionName=function, StatementId=statement)
    if not permissions:
        gateway = emulator.client("apigateway")
        for api in gateway.get_rest_apis()["items"]:
            gateway.delete_rest_api(restApiId=api["id"])


def deploy(
    emulator: Emulator, tarantool: TarantoolServer, folder: Path, variables: Mapping[str, str] | None = None
) -> Deployed:
    """`variables`: those of envs/local that shall not be as they are there."""
    _log.info("building the packages")
    package_functions.build(folder / "packages")
    terraform = Terraform.prepared(folder, "local")
    token = new_secret()
    secrets = {"server.token": token, "tarantool.password": tarantool.password}
    settings = {
        "MTS_HOME": str(folder / "home"),
        "MTS_TRASH_GRACE": "0s",
        "MTS_UPLOADS_PART_SIZE": "5MiB",
        "MTS_UPLOADS_FIRST_LOOK": "0s",
    }
    terraform.environ = {
        "TF_VAR_endpoint": emulator.endpoint,
        "TF_VAR_access_key": KEY,
        "TF_VAR_secret_key": KEY,
        "TF_VAR_region": REGION,
        "TF_VAR_packages": str(folder / "packages"),
        "TF_VAR_tarantool_address": tarantool.address,
        "TF_VAR_secrets": json.dumps(secrets),
        "TF_VAR_settings": json.dumps(settings),
        **{f"TF_VAR_{name}": value for name, value in (variables or {}).items()},
    }
    terraform.run("init", "-no-color")
    _log.info("terraform apply: a minute or two")
    for left in (2, 1, 0):
        try:
            terraform.run("apply", "-no-color", "-auto-approve")
            break
        except TerraformError as error:
            # Under load the emulator has made a resource whose making the provider then asks for again, and is refused.
            if "ConflictException" not in str(error) or not left:
                raise
            _log.warning("the emulator refused a resource that it had made: it is made anew")
            unmake(emulator, str(error))
    stack = json.loads(terraform.run("output", "-json", "stack")[1])
    return Deployed(emulator, tarantool, terraform, stack, token)
