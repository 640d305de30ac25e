"""Dead letters of the event queue, on a queue in memory."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError
from click.testing import CliRunner

from minitoolstream.aws import letters
from minitoolstream.aws.letters import GAVE_UP, read_letters, redrive
from minitoolstream.cli import aws_commands
from minitoolstream.cli.main import cli
from minitoolstream.domain.errors import MtsError


@dataclass
class Queues:
    """The calls of SQS that are used; a received message is hidden until it is shown again or deleted."""

    queues: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    back_at_once: bool = False
    refuse: str = ""

    def put(self, url: str, body: str, reason: str | None = None, sent_at: float = 1000.0) -> None:
        number = f"m{sum(map(len, self.queues.values()))}-{time.monotonic_ns()}"
        attributes = {"reason": {"StringValue": reason, "DataType": "String"}} if reason else {}
        self.queues.setdefault(url, []).append(
            {
                "MessageId": number,
                "ReceiptHandle": number,
                "Body": body,
                "MessageAttributes": attributes,
                "Attributes": {"SentTimestamp": str(int(sent_at * 1000)), "ApproximateReceiveCount": "3"},
            }
        )

    def receive_message(self, *, QueueUrl: str, MaxNumberOfMessages: int, **_: Any) -> dict[str, Any]:  # noqa: N803
        if self.refuse:
            raise ClientError({"Error": {"Code": self.refuse, "Message": "no"}}, "ReceiveMessage")
        free = [one for one in self.queues.get(QueueUrl, []) if one["ReceiptHandle"] not in self.hidden]
        self.hidden |= {one["ReceiptHandle"] for one in free[:MaxNumberOfMessages]}
        return {"Messages": free[:MaxNumberOfMessages]}

    def change_message_visibility(self, *, ReceiptHandle: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        self.hidden.discard(ReceiptHandle)
        return {}

    def send_message(self, *, QueueUrl: str, MessageBody: str) -> dict[str, Any]:  # noqa: N803
        self.put(QueueUrl, MessageBody)
        if self.back_at_once:
            self.put("dead", MessageBody, "malformed_event", sent_at=time.time() + 1)
        return {}

    def delete_message(self, *, QueueUrl: str, ReceiptHandle: str) -> dict[str, Any]:  # noqa: N803
        self.queues[QueueUrl] = [one for one in self.queues[QueueUrl] if one["ReceiptHandle"] != ReceiptHandle]
        return {}

    def bodies(self, url: str) -> list[str]:
        return [one["Body"] for one in self.queues.get(url, [])]


def test_letters_are_shown_with_their_reason_and_stay() -> None:
    queues = Queues()
    queues.put("dead", "{", "malformed_event")
    queues.put("dead", "good")
    for _ in range(2):
        found = [(one.body, one.reason, one.tries) for one in read_letters(queues, "dead", 10)]
        assert found == [("{", "malformed_event", 3), ("good", GAVE_UP, 3)]


def test_all_letters_go_back_and_none_stays() -> None:
    queues = Queues()
    for number in range(25):
        queues.put("dead", str(number))
    assert redrive(queues, "dead", "events", 1000) == 25
    assert queues.bodies("dead") == []
    assert queues.bodies("events") == [str(number) for number in range(25)]


def test_no_more_go_back_than_were_asked_for() -> None:
    queues = Queues()
    for number in range(5):
        queues.put("dead", str(number))
    assert redrive(queues, "dead", "events", 2) == 2
    assert len(queues.bodies("dead")) == 3


def test_a_letter_that_comes_back_at_once_does_not_go_round_for_ever() -> None:
    queues = Queues(back_at_once=True)
    queues.put("dead", "{")
    assert redrive(queues, "dead", "events", 1000) == 1
    assert [one.body for one in read_letters(queues, "dead", 10)] == ["{"]


@pytest.mark.parametrize("slow", [0, 3600])
def test_what_lies_behind_a_letter_that_came_back_goes_too(monkeypatch: pytest.MonkeyPatch, slow: int) -> None:
    """Whatever the clock of who asks says."""
    now = time.time() - slow
    monkeypatch.setattr(time, "time", lambda: now)
    queues = Queues(back_at_once=True)
    for number in range(25):
        queues.put("dead", str(number), sent_at=now + slow - 60)
    assert redrive(queues, "dead", "events", 1000) == 25
    assert queues.bodies("events") == [str(number) for number in range(25)]
    assert len(read_letters(queues, "dead", 1000)) == 25


def test_letters_that_somebody_else_took_meanwhile_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads many takes longer than they are kept from others."""
    queues = Queues()
    queues.put("dead", "{", "malformed_event")

    def gone(**_: Any) -> None:
        raise ClientError({"Error": {"Code": "MessageNotInflight", "Message": "no"}}, "ChangeMessageVisibility")

    monkeypatch.setattr(queues, "change_message_visibility", gone)
    assert [one.body for one in read_letters(queues, "dead", 10)] == ["{"]


def test_a_refusal_is_told() -> None:
    with pytest.raises(MtsError, match="AccessDenied"):
        read_letters(Queues(refuse="AccessDenied"), "dead", 10)


def test_a_queue_that_is_not_there_is_named() -> None:
    with pytest.raises(MtsError, match="there is no queue dead") as caught:
        read_letters(Queues(refuse="AWS.SimpleQueueService.NonExistentQueue"), "dead", 10)
    assert caught.value.code == "not_found"


def mts(monkeypatch: pytest.MonkeyPatch, queues: Queues, *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(aws_commands, "open_queues", lambda *_: queues)
    environ = {"MTS_HOME": "/nonexistent", "MTS_AWS_DEAD_LETTERS": "dead", "MTS_OBJECT_STORE_QUEUE_URL": "events"}
    done = CliRunner().invoke(cli, ["aws", *arguments], env=environ)
    return done.exit_code, done.stdout


def test_the_commands_show_and_redrive(monkeypatch: pytest.MonkeyPatch) -> None:
    queues = Queues()
    queues.put("dead", "{" * 100, "malformed_event")
    code, text = mts(monkeypatch, queues, "letters")
    assert code == 0
    assert "malformed_event" in text
    assert "…" in text
    code, text = mts(monkeypatch, queues, "letters", "--json")
    assert json.loads(text)["letters"][0]["body"] == "{" * 100
    code, text = mts(monkeypatch, queues, "redrive", "--json")
    assert (code, json.loads(text)) == (0, {"redriven": 1})
    assert queues.bodies("events") == ["{" * 100]
    assert mts(monkeypatch, queues, "letters")[0] == 3


def test_a_queue_that_nobody_named_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(cli, ["aws", "letters"], env={"MTS_HOME": "/nonexistent"})
    assert done.exit_code != 0
    assert "MTS_AWS_DEAD_LETTERS" in done.output


def test_the_queues_are_opened_where_aws_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    opened = letters.open_queues("http://127.0.0.1:4566", "eu-central-1")
    assert (opened.meta.endpoint_url, opened.meta.region_name) == ("http://127.0.0.1:4566", "eu-central-1")
