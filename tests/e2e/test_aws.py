"""What only AWS has: the queue with its dead letters, the schedule, roles, secrets that rotate, Terraform's plan."""

from __future__ import annotations

import json
import random
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


FORMS = {
    "sns": lambda event: json.dumps({"Type": "Notification", "TopicArn": "arn:aws:sns:x:y:z", "Message": event}),
    "eventbridge": lambda event: json.dumps(
        {
            "source": "aws.s3",
            "detail-type": "Object Created",
            "detail": {
                "bucket": json.loads(event)["Records"][0]["s3"]["bucket"],
                "object": json.loads(event)["Records"][0]["s3"]["object"],
            },
        }
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_event_is_taken_in_every_form_that_a_queue_can_bring(
    deployed: Deployed, aws_target: Target, subject: str, form: str
) -> None:
    """The function is called before the PUT: else the bucket's own event would be the first to tell."""
    ticket = aws_target.ticket(subject, 2)
    event = FORMS[form](event_of(deployed.stack["bucket"], ticket, 2))
    record = {"eventSource": "aws:sqs", "messageId": "m-1", "body": event}
    answer = _invoke(deployed, "on_object_created", {"Records": [record]})
    assert answer == {"batchItemFailures": []}
    assert aws_target.receipt(ticket["upload_id"], wait=0)["state"] == "committed"
    aws_target.put(ticket, b"ok")
    (message,) = aws_target.messages(subject)
    assert aws_target.payload(message) == b"ok"


def _invoke(deployed: Deployed, function: str, event: Any) -> Any:
    name = deployed.stack["functions"][function]
    answer = deployed.emulator.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event).encode())
    payload = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, payload
    return payload


def test_a_function_may_do_no_more_than_its_policy_says(deployed: Deployed, aws_target: Target, subject: str) -> None:
    """Read with fetch's role, a payload's URL opens; what fetch signs for a PUT would not."""
    iam = deployed.emulator.client("iam")
    role = deployed.stack["functions"]["fetch"]
    policy = iam.get_role_policy(RoleName=role, PolicyName=role)["PolicyDocument"]
    granted = {action for statement in policy["Statement"] for action in statement["Action"]}
    assert granted & {"s3:PutObject", "s3:DeleteObject", "s3:*", "*"} == set()
    aws_target.publish(subject, b"read me")
    (message,) = aws_target.messages(subject)
    assert aws_target.payload(message) == b"read me"


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
