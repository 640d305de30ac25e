"""`mts grpc` on real servers: the scenarios of the specification, durables, large payloads, restarts."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from minitoolstream.connector._stubs import Stub
from minitoolstream.domain.limits import KIB, MIB
from minitoolstream.pb import egress_v1_pb2 as egress
from minitoolstream.pb import ingress_v1_pb2 as ingress
from minitoolstream.pb import legacy_pb2 as old
from minitoolstream.stack.ports import free_port
from tests.certificates import certificate
from tests.grpc_kit import OLD_EGRESS, V1_EGRESS, Calls, Clients, GrpcProcess, start_grpc
from tests.live import Live, eventually, send


@pytest.fixture(scope="module")
def server(live: Live) -> Iterator[GrpcProcess]:
    process = start_grpc(live)
    yield process
    process.stop()


@pytest.fixture(scope="module")
def clients(server: GrpcProcess) -> Clients:
    return server.clients()


def publish(clients: Clients, subject: str, data: bytes, **headers: str) -> int:
    answer = clients.ingress.Publish(ingress.PublishRequest(subject=subject, data=data, headers=headers))
    assert answer.status_code == 0, answer.error_message
    return int(answer.sequence)


def fetch(clients: Clients, subject: str, start: int = 0, limit: int = 1000) -> list[Any]:
    answer = clients.egress.Fetch(egress.FetchRequest(subject=subject, start_sequence=start, limit=limit))
    assert answer.status_code == 0, answer.error_message
    return list(answer.messages)


def ack(clients: Clients, subject: str, durable: str, sequence: int) -> Any:
    return clients.egress.UpdateConsumerPosition(
        egress.UpdateConsumerPositionRequest(durable_name=durable, subject=subject, last_sequence=sequence)
    )


def fetch_old(clients: Clients, subject: str, durable: str, size: int = 100, **more: Any) -> list[Any]:
    return list(
        clients.old_egress.Fetch(old.FetchRequest(subject=subject, durable_name=durable, batch_size=size), **more)
    )


def test_scenario_1_publish_and_read(clients: Clients, subject: str) -> None:
    answer = clients.ingress.Publish(ingress.PublishRequest(subject=subject, data=b"order_123"))
    latest = clients.egress.GetLatestSequence(egress.GetLatestSequenceRequest(subject=subject)).latest_sequence
    assert latest == answer.sequence
    assert answer.object_name
    assert [message.data for message in fetch(clients, subject, latest)] == [b"order_123"]


def test_scenario_2_every_durable_reads_everything(clients: Clients, live: Live, subject: str) -> None:
    sequences = [publish(clients, subject, str(n).encode()) for n in range(100)]

    def read(durable: str) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < 100:
            request = egress.SubscribeRequest(subject=subject, durable_name=durable, batch_size=30)
            stream = clients.egress.Subscribe(request)
            messages = next(stream).batch.messages
            stream.cancel()
            found += [message.data for message in messages]
            assert ack(clients, subject, durable, messages[-1].sequence).status_code == 0
        return found

    with ThreadPoolExecutor(10) as threads:
        read_by = list(threads.map(read, [f"d{n}" for n in range(10)]))
    assert read_by == [[str(n).encode() for n in range(100)]] * 10
    consumers = live.api("GET", f"/v1/subjects/{subject}/consumers").json["consumers"]
    assert {one["durable"]: one["last_sequence"] for one in consumers} == {f"d{n}": sequences[-1] for n in range(10)}


def test_http_and_grpc_show_the_same_messages(clients: Clients, live: Live, subject: str) -> None:
    live.publish(subject, b"by http", content_type="text/plain", x_mts_header_kind="a")
    publish(clients, subject, b"by grpc", **{"content-type": "text/html", "Kind": ""})
    first, second = fetch(clients, subject)
    assert (first.data, dict(first.headers)) == (
        b"by http",
        {"kind": "a", "content-type": "text/plain", "data-size": "7"},
    )
    assert dict(second.headers) == {"Kind": "", "content-type": "text/html", "data-size": "7"}
    shown = live.messages(subject)
    assert [message["content_type"] for message in shown] == ["text/plain", "text/html"]
    assert live.payload(shown[1]) == b"by grpc"


def test_only_an_update_moves_a_durable(clients: Clients, subject: str) -> None:
    sequences = [publish(clients, subject, b"x") for _ in range(3)]
    assert ack(clients, subject, "d", sequences[0]).status_code == 0
    for _ in range(2):
        stream = clients.egress.Subscribe(egress.SubscribeRequest(subject=subject, durable_name="d"))
        assert [message.sequence for message in next(stream).batch.messages] == sequences[1:]
        stream.cancel()
    assert ack(clients, subject, "d", sequences[0]).status_code == 0  # never back
    beyond = ack(clients, subject, "d", sequences[-1] + 1_000_000)
    assert beyond.status_code == 409
    asked = egress.GetConsumerPositionRequest(durable_name="d", subject=subject)
    told = clients.egress.GetConsumerPosition(asked)
    assert (told.last_sequence, told.latest_sequence, told.messages_lag) == (sequences[0], sequences[2], 2)


def test_a_durable_that_nobody_made_stands_before_the_first_message(clients: Clients, live: Live, subject: str) -> None:
    sequence = publish(clients, subject, b"x")
    stream = clients.egress.Subscribe(egress.SubscribeRequest(subject=subject, durable_name="new"))
    assert [message.sequence for message in next(stream).batch.messages] == [sequence]
    stream.cancel()
    assert live.api("GET", f"/v1/subjects/{subject}/consumers").json["consumers"] == []
    asked = egress.GetConsumerPositionRequest(durable_name="new", subject=subject)
    assert clients.egress.GetConsumerPosition(asked).status_code == 404


def test_a_shared_durable_has_no_position(clients: Clients, live: Live, subject: str) -> None:
    live.api("PUT", f"/v1/subjects/{subject}/consumers/queue", {"mode": "shared"})
    assert ack(clients, subject, "queue", 0).status_code == 409
    stream = clients.egress.Subscribe(egress.SubscribeRequest(subject=subject, durable_name="queue"))
    assert next(stream).error.code == 409


def test_a_waiting_subscriber_is_woken_by_a_publish_over_http(clients: Clients, live: Live, subject: str) -> None:
    stream = clients.egress.Subscribe(egress.SubscribeRequest(subject=subject))
    assert not next(stream).batch.messages
    sequence = live.publish(subject, b"x").json["sequence"]
    assert next(stream).notification.latest_sequence == sequence
    stream.cancel()


@pytest.mark.parametrize("size", [3, 4 * MIB + 1, 11 * MIB + 7])
def test_a_large_payload_goes_up_and_down_in_streams(clients: Clients, live: Live, subject: str, size: int) -> None:
    payload = hashlib.sha256(str(size).encode()).digest() * (size // 32 + 1)
    payload = payload[:size]

    def requests() -> Iterator[ingress.PublishStreamRequest]:
        yield ingress.PublishStreamRequest(upload=ingress.Upload(subject=subject, size=size))
        for first in range(0, size, MIB):
            yield ingress.PublishStreamRequest(data=payload[first : first + MIB])

    answer = clients.ingress.PublishStream(requests())
    assert (answer.status_code, answer.error_message) == (0, "")
    assert live.payload(live.messages(subject)[0]) == payload
    came = clients.egress.Download(egress.DownloadRequest(sequence=answer.sequence))
    assert b"".join(piece.data for piece in came) == payload
    middle = egress.DownloadRequest(sequence=answer.sequence, offset=size // 2, length=1)
    assert b"".join(piece.data for piece in clients.egress.Download(middle)) == payload[size // 2 : size // 2 + 1]


def test_a_ticket_s_requests_are_taken_by_the_store(clients: Clients, subject: str) -> None:
    payload = b"p" * (6 * MIB)
    ticket = clients.ingress.IssueTicket(
        ingress.IssueTicketRequest(upload=ingress.Upload(subject=subject, size=len(payload)))
    )
    position = 0
    for request in ticket.requests:
        body = payload[position : position + request.size]
        assert send(request.method, request.url, body, dict(request.headers)).status == 200
        position += request.size
    told = clients.ingress.GetReceipt(ingress.GetReceiptRequest(upload_id=ticket.upload_id, complete=True)).receipt
    assert told.state == "committed"
    again = clients.ingress.GetReceipt(ingress.GetReceiptRequest(upload_id=ticket.upload_id, wait_seconds=5)).receipt
    assert again.sequence == told.sequence


def test_a_payload_that_was_lost_does_not_hide_the_others(clients: Clients, live: Live, subject: str) -> None:
    ticket = live.ticket(subject, 4)
    live.put(ticket, b"lost")
    live.receipt(ticket["upload_id"])
    publish(clients, subject, b"here")
    live.minio.s3().delete_object(Bucket=live.minio.bucket, Key=ticket["object_name"])
    first, second = fetch(clients, subject)
    assert (first.data, first.headers["mts-payload-missing"]) == (b"", "true")
    assert second.data == b"here"
    (error,) = clients.egress.Download(egress.DownloadRequest(sequence=first.sequence))
    assert error.error.code == 410


def test_the_older_interface_reads_on_from_what_its_last_fetch_carried(clients: Clients, subject: str) -> None:
    for n in range(5):
        answer = clients.old_ingress.Publish(
            old.PublishRequest(subject=subject, data=str(n).encode(), headers={"Key": "", "a": "b"})
        )
        assert answer.status_code == 0
    first = fetch_old(clients, subject, "d", 2)
    assert [message.data for message in first] == [b"0", b"1"]
    assert dict(first[0].headers) == {"Key": "", "a": "b", "data-size": "1"}
    assert first[0].timestamp.seconds > 0
    assert [message.data for message in fetch_old(clients, subject, "d")] == [b"2", b"3", b"4"]
    assert fetch_old(clients, subject, "d") == []
    assert [message.data for message in fetch_old(clients, subject, "other", 1)] == [b"0"]
    last = clients.old_egress.GetLastSequence(old.GetLastSequenceRequest(subject=subject)).last_sequence
    assert last == answer.sequence


def test_a_fetch_that_was_cancelled_does_not_count(clients: Clients, subject: str) -> None:
    """What did not end well is brought again. Payloads are larger than what a connection holds, so that the server
    is still sending."""
    for _ in range(3):
        publish(clients, subject, b"x" * MIB)
    stream = clients.old_egress.Fetch(old.FetchRequest(subject=subject, durable_name="d", batch_size=3))
    first = next(stream)
    stream.cancel()
    again = fetch_old(clients, subject, "d")
    assert again[0].sequence == first.sequence
    assert len(again) == 3


def test_a_reader_that_fetches_once_each_time_it_is_told_gets_everything(clients: Clients, subject: str) -> None:
    """Ten messages at once, two a fetch: the server goes on telling as long as some are left."""
    stream = clients.old_egress.Subscribe(old.SubscribeRequest(subject=subject, durable_name="d"))
    got: list[bytes] = []
    done = threading.Event()

    def read() -> None:
        for notification in stream:
            assert notification.subject == subject
            got.extend(message.data for message in fetch_old(clients, subject, "d", 2))
            if len(got) >= 10:
                done.set()
                return

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    wanted = [ingress.PublishRequest(subject=subject, data=str(n).encode()) for n in range(10)]
    assert clients.ingress.PublishBatch(ingress.PublishBatchRequest(messages=wanted)).success_count == 10
    assert done.wait(60)
    stream.cancel()
    thread.join(10)
    assert got == [str(n).encode() for n in range(10)]


def test_clients_of_one_durable_of_the_older_interface_get_each_message_once(live: Live, subject: str) -> None:
    """Also when several workers serve them: sixteen connections are not all with one of the two."""
    process = start_grpc(live, {"MTS_SERVER_WORKERS": "2"})
    try:
        wanted = [ingress.PublishRequest(subject=subject, data=str(n).encode()) for n in range(200)]
        sent = process.clients().ingress.PublishBatch(ingress.PublishBatchRequest(messages=wanted))
        assert sent.success_count == 200
        options = (("grpc.use_local_subchannel_pool", 1),)
        channels = [grpc.insecure_channel(process.egress, options) for _ in range(16)]
        readers: list[Any] = [Calls(Stub(channel, OLD_EGRESS), process.token) for channel in channels]

        def read(calls: Any) -> list[bytes]:
            found: list[bytes] = []
            request = old.FetchRequest(subject=subject, durable_name="d", batch_size=5)
            while messages := list(calls.Fetch(request)):
                found += [message.data for message in messages]
            return found

        with ThreadPoolExecutor(16) as threads:
            got = [data for found in threads.map(read, readers) for data in found]
        for channel in channels:
            channel.close()
    finally:
        process.stop()
    assert sorted(got, key=int) == [str(n).encode() for n in range(200)]


def test_a_new_durable_of_the_older_interface_begins_where_it_says(clients: Clients, subject: str) -> None:
    sequences = [publish(clients, subject, b"x") for _ in range(3)]
    request = old.SubscribeRequest(subject=subject, start_sequence=sequences[1], durable_name="d")
    stream = clients.old_egress.Subscribe(request)
    assert next(stream).sequence == sequences[2]
    stream.cancel()
    assert [message.sequence for message in fetch_old(clients, subject, "d")] == sequences[1:]


def test_what_is_too_large_for_the_older_interface_names_the_http_route(
    clients: Clients, live: Live, subject: str
) -> None:
    small = publish(clients, subject, b"small")
    ticket = live.ticket(subject, 5 * MIB)
    live.put(ticket, b"x" * 5 * MIB)
    large = live.receipt(ticket["upload_id"])["sequence"]
    after = publish(clients, subject, b"after")
    assert [message.sequence for message in fetch_old(clients, subject, "d")] == [small]
    with pytest.raises(grpc.RpcError) as raised:
        fetch_old(clients, subject, "d")
    assert raised.value.code() is grpc.StatusCode.UNKNOWN
    assert f"GET /v1/messages/{large}" in (raised.value.details() or "")
    (told,) = fetch_old(clients, subject, "d", metadata=(("mts-large", "download"),))
    assert (told.data, told.headers["mts-download"], told.headers["data-size"]) == (b"", str(large), str(5 * MIB))
    assert [message.sequence for message in fetch_old(clients, subject, "d")] == [after]


def test_health_and_reflection_need_no_token(server: GrpcProcess, clients: Clients) -> None:
    answer = clients.health.Check(health_pb2.HealthCheckRequest(service="minitoolstream.v1.IngressService"))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with grpc.insecure_channel(server.egress) as channel:
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        (told,) = stub.ServerReflectionInfo(iter([asked]))
    names = {service.name for service in told.list_services_response.service}
    assert {"minitoolstream.v1.EgressService", "minitoolstream.EgressService", "grpc.health.v1.Health"} <= names


def test_a_slow_reader_holds_no_more_than_its_share(clients: Clients, live: Live, subject: str) -> None:
    """A download that nobody reads: the server stops reading ahead, and others are served."""
    ticket = live.ticket(subject, 40 * MIB)
    for part in ticket["parts"]["urls"]:
        assert send("PUT", part["url"], b"x" * part["size"], part.get("headers")).status == 200
    live.api("POST", f"/v1/uploads/{ticket['upload_id']}/complete")
    sequence = live.messages(subject)[0]["sequence"]
    slow = clients.egress.Download(egress.DownloadRequest(sequence=sequence))
    next(slow)
    publish(clients, subject, b"meanwhile")
    assert fetch(clients, subject, sequence + 1)[0].data == b"meanwhile"
    assert sum(len(piece.data) for piece in slow) == 40 * MIB


def test_many_connections_are_told_at_once(server: GrpcProcess, live: Live, subject: str) -> None:
    """Each with a waiting subscription of its own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.insecure_channel(server.egress, options) for _ in range(200)]
    calls: list[Any] = [Calls(Stub(channel, V1_EGRESS), server.token) for channel in channels]
    streams = [call.Subscribe(egress.SubscribeRequest(subject=subject)) for call in calls]
    for stream in streams:
        next(stream)
    sequence = live.publish(subject, b"x").json["sequence"]
    assert {next(stream).notification.latest_sequence for stream in streams} == {sequence}
    for channel in channels:
        channel.close()


def test_settings_and_small_limits_are_kept(live: Live, subject: str) -> None:
    process = start_grpc(live, {"MTS_GRPC_MESSAGE_LIMIT": "64KiB", "MTS_SERVER_INLINE_LIMIT": "128KiB"})
    try:
        clients = process.clients()
        publish(clients, subject, b"x" * 100 * KIB)
        with pytest.raises(grpc.RpcError) as raised:
            fetch(clients, subject)
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.RpcError) as raised:
            publish(clients, subject, b"x" * 200 * KIB)
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    finally:
        process.stop()


def test_a_second_server_does_not_share_the_port(live: Live, server: GrpcProcess) -> None:
    port = server.ingress.rpartition(":")[2]
    with pytest.raises(AssertionError, match="cannot listen on"):
        start_grpc(live, {"MTS_GRPC_INGRESS_PORT": port})


def test_a_server_with_a_certificate_speaks_tls(live: Live, subject: str, tmp_path: Path) -> None:
    made = certificate(tmp_path, "server")
    files = {"MTS_GRPC_CERTIFICATE": str(made.file), "MTS_GRPC_KEY": str(made.key)}
    process = start_grpc(live, files, roots=made.file.read_bytes())
    try:
        assert publish(process.clients(), subject, b"x") > 0
    finally:
        process.stop()
    with pytest.raises(AssertionError, match=r"grpc\.key: cannot read"):
        start_grpc(live, files | {"MTS_GRPC_KEY": str(tmp_path / "none.key")})


def test_a_stop_lets_running_calls_end_and_sends_waiting_ones_away(live: Live, subject: str) -> None:
    process = start_grpc(live)
    clients = process.clients()
    stream = clients.egress.Subscribe(egress.SubscribeRequest(subject=subject))
    next(stream)
    sent = threading.Event()
    before = live.api("GET", "/v1/status").json["uploads"]

    def requests() -> Iterator[ingress.PublishStreamRequest]:
        yield ingress.PublishStreamRequest(upload=ingress.Upload(subject=subject, size=2))
        yield ingress.PublishStreamRequest(data=b"a")
        assert sent.wait(30)
        yield ingress.PublishStreamRequest(data=b"b")

    with ThreadPoolExecutor(2) as threads:
        upload = threads.submit(clients.ingress.PublishStream, requests())
        eventually(lambda: live.api("GET", "/v1/status").json["uploads"] > before)
        stopping = threads.submit(process.stop)
        with pytest.raises(grpc.RpcError) as raised:
            next(stream)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        sent.set()
        assert upload.result(30).status_code == 0
        stopping.result(30)
    assert [message["size"] for message in live.messages(subject)] == [2]


def test_what_was_asked_is_counted(live: Live, subject: str) -> None:
    port = free_port()
    process = start_grpc(live, {"MTS_GRPC_METRICS_PORT": str(port)})
    try:
        clients = process.clients()
        publish(clients, subject, b"x")
        fetch(clients, subject)
        clients.ingress.Publish(ingress.PublishRequest())
        text = send("GET", f"http://127.0.0.1:{port}/metrics").body.decode()
    finally:
        process.stop()
    assert 'minitoolstream_ingress_requests_total{status="200"} 1.0' in text
    assert 'minitoolstream_ingress_requests_total{status="400"} 1.0' in text
    assert 'method="minitoolstream.v1.EgressService.Fetch",status="200"} 1.0' in text
    assert "minitoolstream_commits_total 1.0" in text


def test_the_log_has_no_failure_of_ours(server: GrpcProcess) -> None:
    lines = server.log.read_text("utf-8").splitlines()
    assert all(json.loads(line)["level"] for line in lines if line.startswith("{"))
    assert not [line for line in lines if "Traceback" in line]
