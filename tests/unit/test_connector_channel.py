"""What the connector makes of a call that fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from minitoolstream.connector import MtsError
from minitoolstream.connector._channel import Channel
from minitoolstream.connector._wires import Options
from minitoolstream.pb import ingress_v1_pb2 as pb


class Failure(grpc.RpcError):
    def __init__(self, status: grpc.StatusCode, details: str, **trailer: str) -> None:
        self._status = status
        self._details = details
        self._trailer = [(name.replace("_", "-"), value) for name, value in trailer.items()]

    def code(self) -> grpc.StatusCode:
        return self._status

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> Any:
        return self._trailer


def answered_after(*failures: grpc.RpcError) -> Any:
    """A method that fails so often, and then is answered."""
    left = list(failures)

    def with_call(_request: object, **_: object) -> tuple[pb.PublishResponse, SimpleNamespace]:
        if left:
            raise left.pop(0)
        return pb.PublishResponse(sequence=7), SimpleNamespace(trailing_metadata=list)

    return SimpleNamespace(with_call=with_call)


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Channel:
    monkeypatch.setattr("minitoolstream.connector._channel._FIRST_PAUSE", 0.001)
    service = pb.DESCRIPTOR.services_by_name["IngressService"]
    return Channel("localhost:1", Options(token="t", timeout=5), service)


@pytest.mark.parametrize(
    "failure",
    [
        Failure(grpc.StatusCode.UNAVAILABLE, "failed to connect"),
        Failure(grpc.StatusCode.CANCELLED, "the server stops"),
        Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!"),
        Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many reads at once", mts_error_code="overloaded"),
    ],
)
def test_what_may_get_better_is_tried_again_and_said_once(
    channel: Channel, failure: Failure, caplog: pytest.LogCaptureFixture
) -> None:
    assert channel.call(answered_after(failure, failure, failure), None).sequence == 7
    assert [record.message for record in caplog.records] == [f"{failure.details()}; trying again for 5 s"]


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (5 vs. 4)"), "too_large"),
        (Failure(grpc.StatusCode.UNAUTHENTICATED, "the bearer token is wrong"), "unauthorized"),
        (Failure(grpc.StatusCode.INTERNAL, "a defect"), "internal"),
        (Failure(grpc.StatusCode.UNIMPLEMENTED, "Method not found!"), "method_not_allowed"),
    ],
)
def test_what_does_not_get_better_is_said_at_once(channel: Channel, failure: Failure, code: str) -> None:
    with pytest.raises(MtsError) as raised:
        channel.call(answered_after(failure), None)
    assert raised.value.code == code
    assert ("50052" in raised.value.message) is (code == "method_not_allowed")


def test_a_call_is_not_tried_again_on_a_channel_that_was_closed(channel: Channel) -> None:
    channel.close()
    with pytest.raises(MtsError) as raised:
        channel.call(answered_after(Failure(grpc.StatusCode.CANCELLED, "Channel closed!")), None)
    assert raised.value.code == "closed"
