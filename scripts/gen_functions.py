"""Writes functions/*/.chalice/ from one table: stages, memory, timeouts, and the stage's names in each policy.json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from scripts import tools

FOLDER = tools.ROOT / "functions"
STAGES = ("dev", "prod")


@dataclass(frozen=True, slots=True)
class Function:
    """`timeout`: API Gateway gives up after 29 s; what has a queue or a schedule before it may take longer."""

    memory: int
    timeout: int


# Not the catalog: its driver and its cluster are a host's.
FUNCTIONS = {
    "authorizer": Function(memory=256, timeout=10),
    "fetch": Function(memory=512, timeout=29),
    "on_object_created": Function(memory=512, timeout=30),
    "pipeline": Function(memory=512, timeout=29),
    "publish": Function(memory=512, timeout=29),
    "ttl_sweeper": Function(memory=512, timeout=55),
}


def places(name: str, stage: str) -> dict[str, str]:
    """What policy.json calls by name, where nobody says otherwise. Chalice adds what is called to the app's name."""
    return {
        "function": f"{_app_name(name)}-{stage}*",
        "bucket_arn": f"arn:aws:s3:::minitoolstream-{stage}",
        "queue_arn": f"arn:aws:sqs:*:*:minitoolstream-{stage}-events",
        "dead_letters_arn": f"arn:aws:sqs:*:*:minitoolstream-{stage}-events-dead",
        "secret_arn": f"arn:aws:secretsmanager:*:*:secret:minitoolstream-{stage}-*",
    }


def policy(name: str, stage: str) -> Any:
    return json.loads(Template((FOLDER / name / "policy.json").read_text("utf-8")).substitute(places(name, stage)))


def _app_name(name: str) -> str:
    return f"mts-{name.replace('_', '-')}"


def config(name: str) -> dict[str, Any]:
    about = FUNCTIONS[name]
    stages = {
        stage: {
            "api_gateway_stage": stage,
            "autogen_policy": False,
            "iam_policy_file": f"policy-{stage}.json",
            "lambda_memory_size": about.memory,
            "lambda_timeout": about.timeout,
            "environment_variables": {
                "MTS_HOME": "/tmp/mts",
                "MTS_MINIO_BUCKET": f"minitoolstream-{stage}",
                "MTS_AWS_SECRET": f"minitoolstream-{stage}",
            },
        }
        for stage in STAGES
    }
    return {"version": "2.0", "app_name": _app_name(name), "stages": stages}


def files() -> Iterator[tuple[Path, str]]:
    """Every file and its text."""
    for name in FUNCTIONS:
        made = {"config.json": config(name)} | {f"policy-{stage}.json": policy(name, stage) for stage in STAGES}
        for file, content in made.items():
            yield FOLDER / name / ".chalice" / file, json.dumps(content, indent=2) + "\n"


if __name__ == "__main__":
    for path, text in files():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
