"""What the page about AWS says of its limits is what the code and Terraform have."""

from __future__ import annotations

import re

from minitoolstream.domain.limits import GIB, MAX_ANSWER_BYTES, MAX_PARTS, MAX_SINGLE_PUT_BYTES, MAX_WAIT_SECONDS, MIB
from minitoolstream.options import OPTIONS
from scripts.gen_functions import FUNCTIONS
from tests.docs.test_docs import ROOT

INFRA = ROOT / "infra" / "terraform"
PAGE = (ROOT / "docs" / "aws.md").read_text("utf-8")


def limit(what: str) -> str:
    (row,) = re.findall(rf"^\| {what} \| (.+) \|$", PAGE, re.MULTILINE)
    return str(row)


def test_the_limits_of_bodies_and_payloads() -> None:
    (inline,) = [option.default for option in OPTIONS if option.key == "server.inline_limit"]
    bodies = limit("body of a request and of an answer")
    assert bodies.startswith("6 MB")
    assert f"Inline bodies {inline // MIB} MiB" in bodies
    assert inline * 4 / 3 < MAX_ANSWER_BYTES < 6 * MIB  # bodies travel as base64
    assert limit("a single PUT").startswith(f"{MAX_SINGLE_PUT_BYTES // GIB} GiB")
    assert limit("parts") == f"{MAX_PARTS:,}"


def test_the_limits_of_time_and_of_calls() -> None:
    request = limit("a request")
    seconds = int(request.partition(" s")[0])
    api = (INFRA / "modules" / "api" / "main.tf").read_text("utf-8")
    assert re.findall(r"timeout_milliseconds += (\d+)", api) == [f"{seconds}000"]
    assert all(FUNCTIONS[name].timeout <= seconds for name in ("fetch", "pipeline", "publish"))
    assert f"wait {MAX_WAIT_SECONDS:.0f} s at most" in request
    most = [
        f"{env} {re.findall(r'concurrency += (.+)', (INFRA / 'envs' / env / 'main.tf').read_text('utf-8'))[0]}"
        for env in ("dev", "prod")
    ]
    assert f"({', '.join(most)})" in limit("calls at once")
