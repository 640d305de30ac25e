"""What the functions' roles may do, and not: tried with keys of each role, on an emulator that enforces them."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.e2e.conftest import Target
from tests.e2e.deploy import Deployed
from tests.e2e.emulator import REGION

PUBLISHED, OWN, FOREIGN = "m/roles/1/x", "_mts/packs/x", "reports/x"


class Role:
    """Calls of one function's role; each answers with S3's or another service's code, "" where it may."""

    def __init__(self, deployed: Deployed, function: str) -> None:
        self._deployed = deployed
        name = deployed.stack["functions"][function]
        arn = deployed.emulator.client("iam").get_role(RoleName=name)["Role"]["Arn"]
        given = deployed.emulator.client("sts").assume_role(RoleArn=arn, RoleSessionName="test")["Credentials"]
        self._session = boto3.Session(
            given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"], region_name=REGION
        )
        self.bucket = deployed.stack["bucket"]

    def tries(self, service: str, call: str, **arguments: Any) -> str:
        client = self._session.client(service, endpoint_url=self._deployed.emulator.endpoint)
        try:
            getattr(client, call)(**arguments)
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return ""

    def s3(self, call: str, **arguments: Any) -> str:
        return self.tries("s3", call, Bucket=self.bucket, **arguments)


@pytest.fixture
def objects(deployed: Deployed) -> Any:
    """One of each kind, put there by root."""
    s3, bucket = deployed.emulator.client("s3"), deployed.stack["bucket"]
    for name in (OWN, FOREIGN):
        s3.put_object(Bucket=bucket, Key=name, Body=b"x")
    yield
    for name in (OWN, FOREIGN):
        s3.delete_object(Bucket=bucket, Key=name)


DENIED = "AccessDenied"


@pytest.mark.usefixtures("objects")
def test_fetch_reads_payloads_and_writes_nothing(deployed: Deployed, aws_target: Target, subject: str) -> None:
    aws_target.publish(subject, b"read me")
    (message,) = aws_target.messages(subject)
    fetch = Role(deployed, "fetch")
    name = message["object_name"]
    assert fetch.s3("get_object", Key=name) == fetch.s3("get_object", Key=OWN) == ""
    assert fetch.s3("get_object", Key=FOREIGN) == DENIED
    assert fetch.s3("put_object", Key=PUBLISHED, Body=b"x") == DENIED
    assert fetch.s3("delete_object", Key=name) == DENIED
    assert fetch.s3("put_object", Key="_mts/ceiling/1", Body=b"") == DENIED
    assert aws_target.payload(message) == b"read me"


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize("function", ["publish", "ttl_sweeper"])
def test_who_writes_packs_leaves_objects_of_others_alone(deployed: Deployed, function: str) -> None:
    role = Role(deployed, function)
    assert role.s3("put_object", Key=OWN, Body=b"y") == ""
    assert role.s3("put_object", Key=FOREIGN, Body=b"x") == DENIED
    assert role.s3("delete_object", Key=FOREIGN) == DENIED


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize("function", ["pipeline", "authorizer", "preflight"])
def test_who_needs_nothing_of_the_bucket_may_nothing_there(deployed: Deployed, function: str) -> None:
    role = Role(deployed, function)
    assert role.s3("list_objects_v2") == role.s3("get_object", Key=OWN) == DENIED
    assert role.s3("put_object", Key=PUBLISHED, Body=b"x") == DENIED


@pytest.mark.parametrize(
    ("function", "may"), [("fetch", True), ("authorizer", True), ("preflight", False)], ids=lambda value: str(value)
)
def test_the_secret_is_read_by_who_needs_it(deployed: Deployed, function: str, may: bool) -> None:
    said = Role(deployed, function).tries("secretsmanager", "get_secret_value", SecretId=deployed.stack["secret"])
    assert said == ("" if may else "AccessDeniedException")


def test_events_are_taken_by_one_function_alone(deployed: Deployed) -> None:
    url = deployed.stack["queue_url"]
    assert Role(deployed, "on_object_created").tries("sqs", "get_queue_attributes", QueueUrl=url) == ""
    for function in ("publish", "fetch", "sweep"):
        assert "AccessDenied" in Role(deployed, function).tries("sqs", "purge_queue", QueueUrl=url)
