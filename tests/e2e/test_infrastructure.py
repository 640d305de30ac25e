"""What Terraform makes besides the functions: the bucket's settings and the alarms of what was applied, and what can be
said before of the environments that need machines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minitoolstream.config import load_settings
from tests.e2e.conftest import ORIGIN, Target
from tests.e2e.deploy import Deployed, Terraform
from tests.live import send


@pytest.fixture(scope="module", params=["dev", "prod"])
def planned(request: pytest.FixtureRequest, deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Without its machines: every reference, count and document is computed, nothing is made."""
    terraform = Terraform.prepared(tmp_path_factory.mktemp(request.param), request.param)
    terraform.environ = {
        "TF_VAR_packages": deployed.terraform.environ["TF_VAR_packages"],
        "TF_VAR_code_bucket": "code",
        "TF_VAR_tarantool_ami": "ami-0123456789abcdef0",
        "TF_VAR_secrets": json.dumps({"server.token": "t", "tarantool.password": "p", "pipeline.password": "q" * 16}),
    }
    (terraform.folder / "override.tf").write_text(ON_THE_EMULATOR % deployed.emulator.endpoint)
    terraform.run("init", "-no-color")
    return terraform.planned()


ON_THE_EMULATOR = """
terraform {
  backend "local" {}
}

provider "aws" {
  access_key                  = "test"
  secret_key                  = "test"
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_requesting_account_id  = true

  endpoints {
    sts = "%s"
  }
}
"""


LATER = "known after apply"
"""What hangs on what is not made yet, such as the key, has no value in a plan."""


def of(planned: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one["values"] for one in planned if one["type"] == kind]


def test_what_has_machines_can_be_planned(planned: list[dict[str, Any]]) -> None:
    assert len(planned) > 100
    assert len(of(planned, "aws_instance")) == len(of(planned, "aws_db_instance")) == 1


def test_the_bucket_is_private_and_encrypted_and_ends_what_nobody_finished(planned: list[dict[str, Any]]) -> None:
    (block,) = of(planned, "aws_s3_bucket_public_access_block")
    names = ("block_public_acls", "block_public_policy", "ignore_public_acls", "restrict_public_buckets")
    assert all(block[name] for name in names)
    (encryption,) = of(planned, "aws_s3_bucket_server_side_encryption_configuration")
    default = encryption["rule"][0]["apply_server_side_encryption_by_default"][0]
    assert (
        default.get("sse_algorithm", LATER) == default.get("kms_master_key_id", LATER) == LATER
    )  # without a key: AES256
    (lifecycle,) = of(planned, "aws_s3_bucket_lifecycle_configuration")
    (rule,) = lifecycle["rule"]
    assert rule["abort_incomplete_multipart_upload"][0]["days_after_initiation"] == 8
    assert not rule["expiration"]  # payloads are deleted by the sweeper alone
    assert len(of(planned, "aws_s3_bucket_policy")) == 1  # TLS only


def test_an_account_has_the_calls_that_are_reserved(planned: list[dict[str, Any]]) -> None:
    """1,000 unless AWS was asked for more, and 100 of them stay for others."""
    reserved = [one["reserved_concurrent_executions"] for one in of(planned, "aws_lambda_function")]
    assert 0 < sum(count for count in reserved if count > 0) <= 900


def test_no_more_events_are_taken_than_may_be_handled(planned: list[dict[str, Any]]) -> None:
    """One that was throttled comes again, and used up a try; one that is still under way must not come again."""
    (mapping,) = of(planned, "aws_lambda_event_source_mapping")
    (handler,) = [one for one in of(planned, "aws_lambda_function") if one["function_name"].endswith("-created")]
    most = handler["reserved_concurrent_executions"]
    assert [one["maximum_concurrency"] for one in mapping["scaling_config"]] == [most]
    (events,) = [one for one in of(planned, "aws_sqs_queue") if one["name"].endswith("-events")]
    assert events["visibility_timeout_seconds"] >= 6 * handler["timeout"]


def test_requests_are_logged(planned: list[dict[str, Any]]) -> None:
    (stage,) = of(planned, "aws_api_gateway_stage")
    assert stage.get("access_log_settings", LATER) == LATER  # with a group that is made first; without one: []
    assert [one["name"] for one in of(planned, "aws_cloudwatch_log_group") if one["name"].endswith("/access")]
    assert len(of(planned, "aws_api_gateway_account")) == 1  # without a role for it, AWS refuses the stage


def test_logs_may_be_encrypted_with_the_key_for_logs_of_the_account_alone(planned: list[dict[str, Any]]) -> None:
    (key,) = of(planned, "aws_kms_key")
    statements = json.loads(key["policy"])["Statement"]
    (logs,) = [one for one in statements if "logs." in json.dumps(one["Principal"])]
    assert logs["Principal"] == {"Service": "logs.eu-central-1.amazonaws.com"}
    (granted,) = logs["Condition"]["ArnLike"].items()
    assert granted == ("kms:EncryptionContext:aws:logs:arn", "arn:aws:logs:eu-central-1:000000000000:*")
    assert all("Condition" in one for one in statements if "Service" in one["Principal"])


def test_no_function_waits_for_tarantool_until_its_own_end(deployed: Deployed) -> None:
    functions = deployed.emulator.client("lambda")
    for name in deployed.stack["functions"].values():
        made = functions.get_function_configuration(FunctionName=name)
        timeout = load_settings(made["Environment"]["Variables"])["tarantool.timeout"]
        assert 2 * timeout <= made["Timeout"], name


def test_events_are_taken_from_our_bucket_alone(deployed: Deployed) -> None:
    queues, url = deployed.emulator.client("sqs"), deployed.stack["queue_url"]
    policy = queues.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
    (only,) = json.loads(policy)["Statement"]
    assert (only["Effect"], only["Action"]) == ("Allow", "sqs:SendMessage")
    assert only["Principal"] == {"Service": "s3.amazonaws.com"}
    assert only["Condition"] == {
        "ArnEquals": {"aws:SourceArn": deployed.stack["bucket_arn"]},
        "StringEquals": {"aws:SourceAccount": url.split("/")[-2]},
    }


def test_a_page_of_a_listed_origin_may_use_presigned_urls(deployed: Deployed, aws_target: Target, subject: str) -> None:
    """With what a ticket's headers are, and reading what it needs of the answer."""
    ticket = aws_target.ticket(subject, 2)
    asked = {
        "origin": ORIGIN,
        "access-control-request-method": "PUT",
        "access-control-request-headers": ",".join(sorted(name.lower() for name in ticket["headers"])),
    }
    preflight = send("OPTIONS", ticket["url"], headers=asked)
    assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (200, ORIGIN)
    done = send("PUT", ticket["url"], b"ok", {**ticket["headers"], "origin": ORIGIN})
    assert (done.status, done.headers["access-control-allow-origin"]) == (200, ORIGIN)
    assert "etag" in done.headers["access-control-expose-headers"].lower()
    assert send("OPTIONS", ticket["url"], headers={**asked, "origin": "https://evil.example"}).status == 403


def test_alarms_watch_what_there_is_and_tell_the_topic(deployed: Deployed) -> None:
    stack = deployed.stack
    alarms = deployed.emulator.client("cloudwatch").describe_alarms()["MetricAlarms"]
    watched = {(one["MetricName"], *(place["Value"] for place in one["Dimensions"])) for one in alarms}
    letters, events = (stack[name].rpartition("/")[2] for name in ("dead_letters_url", "queue_url"))
    assert {("ApproximateNumberOfMessagesVisible", letters), ("ApproximateAgeOfOldestMessage", events)} <= watched
    for name in stack["functions"].values():
        assert {("Errors", name), ("Throttles", name)} <= watched
    assert all(one["AlarmActions"] == [stack["alarms_topic"]] for one in alarms)
