"""What only AWS has: the queue with its dead letters, the schedule, secrets that rotate, Terraform's plan."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minitoolstream.aws.letters import GAVE_UP, read_letters, redrive
from tests.e2e.conftest import EARLY, Target, event_of
from tests.e2e.deploy import Deployed
from tests.live import eventually


def test_the_second_plan_has_nothing_to_do(deployed: Deployed) -> None:
    code, said = deployed.plan()
    assert code == 0, said


def test_duplicates_and_disorder_of_events_change_nothing(deployed: Deployed, aws_target: Target, subject: str) -> None:
    """S3 may tell of a PUT twice, late, and in any order."""
    tickets = [aws_target.ticket(subject, 1, producer_id="p", seqno=n + 1) for n in range(5)]
    for n, ticket in enumerate(tickets):
        aws_target.put(ticket, b"%d" % n)
    sqs, events = deployed.emulator.client("sqs"), [event_of(deployed.stack["bucket"], one, 1) for one in tickets] * 3
    random.Random(7).shuffle(events)
    for event in events:
        sqs.send_message(QueueUrl=deployed.stack["queue_url"], MessageBody=event)
    sequences = [aws_target.receipt(ticket["upload_id"])["sequence"] for ticket in tickets]
    eventually(lambda: _waiting(deployed, "queue_url") == 0)
    messages = aws_target.messages(subject)
    assert [message["sequence"] for message in messages] == sequences == sorted(sequences)
    assert [aws_target.payload(message) for message in messages] == [b"%d" % n for n in range(5)]


def _waiting(deployed: Deployed, queue: str) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    answer = deployed.emulator.client("sqs").get_queue_attributes(QueueUrl=deployed.stack[queue], AttributeNames=names)
    return sum(int(count) for count in answer["Attributes"].values())


def test_a_poisoned_message_ends_as_a_dead_letter_with_its_reason(deployed: Deployed, aws_target: Target) -> None:
    sqs = deployed.emulator.client("sqs")
    body = f"no JSON {random.random()}"
    sqs.send_message(QueueUrl=deployed.stack["queue_url"], MessageBody=body)
    letter = eventually(lambda: _letter(deployed, body))
    assert letter.reason == "malformed_event"


def _letter(deployed: Deployed, body: str) -> Any:
    found = read_letters(deployed.emulator.client("sqs"), deployed.stack["dead_letters_url"], 100)
    return next((letter for letter in found if letter.body == body), None)


def test_what_failed_while_tarantool_was_away_is_a_dead_letter_and_comes_back(
    deployed: Deployed, aws_target: Target, subject: str
) -> None:
    sqs, stack = deployed.emulator.client("sqs"), deployed.stack
    ticket = aws_target.ticket(subject, 4)
    deployed.tarantool.stop()
    try:
        aws_target.put(ticket, b"late")
        letter = eventually(lambda: _about(deployed, ticket["object_name"]), within=60)
        assert letter.reason == GAVE_UP
    finally:
        deployed.tarantool.start()
    assert redrive(sqs, stack["dead_letters_url"], stack["queue_url"], 100) >= 1
    receipt = eventually(lambda: _committed(aws_target, ticket["upload_id"]))
    assert receipt["state"] == "committed"
    assert _about(deployed, ticket["object_name"]) is None


def _about(deployed: Deployed, object_name: str) -> Any:
    found = read_letters(deployed.emulator.client("sqs"), deployed.stack["dead_letters_url"], 100)
    return next((letter for letter in found if object_name in letter.body), None)


def _committed(target: Target, upload_id: str) -> Any:
    answer = target.api("GET", f"/v1/uploads/{upload_id}")
    return answer.json if answer.status == 200 and answer.json["state"] == "committed" else None


EVENTS = ["s3:ObjectCreated:*"]
PAYLOADS = {"Key": {"FilterRules": [{"Name": "prefix", "Value": "m/"}]}}


def by_a_topic(deployed: Deployed) -> dict[str, Any]:
    """S3 -> SNS -> SQS."""
    sns = deployed.emulator.client("sns")
    topic = sns.create_topic(Name="created")["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=_arn(deployed))
    return {"TopicConfigurations": [{"TopicArn": topic, "Events": EVENTS, "Filter": PAYLOADS}]}


def by_eventbridge(deployed: Deployed) -> dict[str, Any]:
    """S3 -> EventBridge -> SQS."""
    events = deployed.emulator.client("events")
    created = {"bucket": {"name": [deployed.stack["bucket"]]}, "object": {"key": [{"prefix": "m/"}]}}
    pattern = {"source": ["aws.s3"], "detail-type": ["Object Created"], "detail": created}
    events.put_rule(Name="created", EventPattern=json.dumps(pattern))
    events.put_targets(Rule="created", Targets=[{"Id": "queue", "Arn": _arn(deployed)}])
    return {"EventBridgeConfiguration": {}}


def straight(deployed: Deployed) -> dict[str, Any]:
    """S3 -> Lambda."""
    functions, name = deployed.emulator.client("lambda"), deployed.stack["functions"]["on_object_created"]
    arn = functions.get_function(FunctionName=name)["Configuration"]["FunctionArn"]
    functions.add_permission(
        FunctionName=name, StatementId="s3", Action="lambda:InvokeFunction", Principal="s3.amazonaws.com"
    )
    return {"LambdaFunctionConfigurations": [{"LambdaFunctionArn": arn, "Events": EVENTS, "Filter": PAYLOADS}]}


def _arn(deployed: Deployed) -> str:
    """Of the queue of events, which now takes them from everybody."""
    sqs, url = deployed.emulator.client("sqs"), deployed.stack["queue_url"]
    arn: str = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    everybody = {"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": arn}
    policy = {"Version": "2012-10-17", "Statement": [everybody]}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(policy)})
    return arn


@pytest.fixture
def without_schedule(deployed: Deployed) -> Iterator[None]:
    """The sweeper would find the payload by itself, and nobody would know by whose hand it was committed."""
    events, rule = deployed.emulator.client("events"), deployed.stack["bucket"] + "-sweep"
    events.disable_rule(Name=rule)
    yield
    events.enable_rule(Name=rule)


@pytest.mark.usefixtures("without_schedule")
@pytest.mark.parametrize("way", [by_a_topic, by_eventbridge, straight])
def test_the_event_may_come_every_way_that_s3_has(
    deployed: Deployed, aws_target: Target, subject: str, way: Callable[[Deployed], dict[str, Any]]
) -> None:
    s3, sqs, bucket = deployed.emulator.client("s3"), deployed.emulator.client("sqs"), deployed.stack["bucket"]
    url = deployed.stack["queue_url"]
    usual = s3.get_bucket_notification_configuration(Bucket=bucket)
    policy = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]
    try:
        s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=way(deployed))
        ticket = aws_target.ticket(subject, 2)
        aws_target.put(ticket, b"ok")
        assert aws_target.receipt(ticket["upload_id"])["state"] == "committed"
    finally:
        usual.pop("ResponseMetadata")
        s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=usual)
        sqs.set_queue_attributes(QueueUrl=url, Attributes=policy)
    (message,) = aws_target.messages(subject)
    assert aws_target.payload(message) == b"ok"


@pytest.mark.usefixtures("without_schedule")
def test_without_an_event_nothing_is_committed(deployed: Deployed, aws_target: Target, subject: str) -> None:
    """Else the test above would show nothing."""
    s3, bucket = deployed.emulator.client("s3"), deployed.stack["bucket"]
    usual = s3.get_bucket_notification_configuration(Bucket=bucket)
    s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={})
    try:
        ticket = aws_target.ticket(subject, 2)
        aws_target.put(ticket, b"ok")
        assert aws_target.receipt(ticket["upload_id"], wait=2)["state"] == "open"
    finally:
        usual.pop("ResponseMetadata")
        s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=usual)


def test_a_rotated_token_is_picked_up_without_a_deployment(deployed: Deployed, aws_target: Target) -> None:
    secrets, name = deployed.emulator.client("secretsmanager"), deployed.stack["secret"]
    old = json.loads(secrets.get_secret_value(SecretId=name)["SecretString"])
    new = {**old, "server.token": old["server.token"] + "-rotated"}
    try:
        secrets.put_secret_value(SecretId=name, SecretString=json.dumps(new))
        aws_target.token = new["server.token"]
        eventually(lambda: _lets_in(aws_target))
    finally:
        secrets.put_secret_value(SecretId=name, SecretString=json.dumps(old))
        aws_target.token = old["server.token"]
        eventually(lambda: _lets_in(aws_target))


def _lets_in(target: Target) -> bool:
    """Each function has a container of its own, which must have heard of it."""
    return all(
        target.api("GET", path).status == 200 for path in ("/v1/status", "/v1/subjects", f"/v1/subjects/{EARLY}/latest")
    )
