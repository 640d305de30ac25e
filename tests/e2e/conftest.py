"""One suite, three targets: the host on MinIO and on LocalStack, the same functions as Lambdas on an emulated AWS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.e2e.deploy import Deployed, deploy, terraform_command
from tests.e2e.emulator import start_emulator
from tests.live import Calls, Live, start_live
from tests.localstack import LocalStack
from tests.servers import start_tarantool

NO_TERRAFORM = "TERRAFORM names no terraform that has the AWS provider"
EARLY = "expires-by-schedule"
ORIGIN = "https://app.example"
"""Of a web page that may call the API."""
HASTY = {
    "visibility_seconds": "1",
    "tries": "3",
    "cors_origins": json.dumps([ORIGIN, "https://other.example"]),
}


@dataclass
class Target(Calls):
    """Where the suite runs."""

    name: str
    base: str
    token: str = field(repr=False)

    @property
    def url(self) -> str:
        return self.base


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Everything that envs/local has, on an emulator of its own."""
    if terraform_command() is None:
        pytest.skip(NO_TERRAFORM)
    folder = tmp_path_factory.mktemp("aws")
    emulator, tarantool = start_emulator(folder / "emulator"), start_tarantool(folder / "tarantool")
    try:
        yield deploy(emulator, tarantool, folder, HASTY)
    finally:
        emulator.stop()
        tarantool.stop()


@pytest.fixture(scope="session")
def aws_target(deployed: Deployed) -> Target:
    """With a message that lives for a second, for the schedule to find."""
    target = Target("aws", deployed.url, deployed.token)
    assert target.api("PUT", f"/v1/subjects/{EARLY}", {"ttl": 1}).status in {200, 201}
    assert target.publish(EARLY, b"soon gone").status == 201
    return target


@pytest.fixture(scope="session")
def localstack(localstack_server: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A host whose payloads are in LocalStack's S3, and whose events come by its SQS."""
    queue = {"MTS_OBJECT_STORE_QUEUE_URL": localstack_server.queue_url}
    live = start_live(tmp_path_factory.mktemp("on-localstack"), store=localstack_server, extra_env=queue)
    yield live
    live.stop()


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Any:
    if request.param == "aws":
        return request.getfixturevalue("aws_target")
    live: Live = request.getfixturevalue("live" if request.param == "host" else request.param)
    return Target(request.param, live.url, live.token)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        dear = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in ("localstack", "aws")]
        metafunc.parametrize("target", ["host", *dear], indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs the deployment shares one."""
    for item in items:
        if "deployed" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("aws"))


def event_of(bucket: str, ticket: dict[str, Any], size: int) -> str:
    """What S3 says of a PUT."""
    item = {"key": ticket["object_name"], "size": size, "eTag": "x", "sequencer": "0"}
    record = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "awsRegion": "us-east-1"}
    return json.dumps({"Records": [{**record, "s3": {"bucket": {"name": bucket}, "object": item}}]})
