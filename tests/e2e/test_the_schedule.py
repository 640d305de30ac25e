"""The sweeper's own call, which comes once a minute, and what everything before left in the logs: so it is last."""

from __future__ import annotations

from tests.e2e.conftest import EARLY, Target
from tests.e2e.deploy import Deployed
from tests.live import eventually


def test_the_schedule_sweeps_by_itself(aws_target: Target) -> None:
    """Nobody asks: the message of the beginning goes when EventBridge calls the sweeper."""
    eventually(lambda: aws_target.messages(EARLY) == [], within=90, pause=1)


def test_neither_logs_nor_environments_hold_a_secret_or_a_signed_url(deployed: Deployed, aws_target: Target) -> None:
    aws_target.publish("logged", b"x")
    assert aws_target.messages("logged")
    logs, functions = deployed.emulator.client("logs"), deployed.emulator.client("lambda")
    lines = [
        event["message"]
        for group in logs.describe_log_groups()["logGroups"]
        for page in logs.get_paginator("filter_log_events").paginate(logGroupName=group["logGroupName"])
        for event in page["events"]
    ]
    assert any("GET /v1/subjects/{subject}/messages 200" in line for line in lines)
    environments = [
        str(functions.get_function_configuration(FunctionName=name)["Environment"])
        for name in deployed.stack["functions"].values()
    ]
    for secret in (deployed.token, deployed.tarantool.password, "X-Amz-Signature", "Bearer "):
        assert not [text for text in lines + environments if secret in text]
