"""The routes of every function as the host serves them, on fakes."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from minitoolstream.domain.subject import new_id
from minitoolstream.host.app import Host, Wiring
from minitoolstream.host.board import Board
from minitoolstream.host.functions import load_functions
from minitoolstream.host.metrics import Metrics
from minitoolstream.services.jobs import JOBS
from tests.core_kit import CoreKit, core_kit
from tests.unit.host_client import TOKEN, WEBHOOK_TOKEN, Answer, call

JSON = {"content-type": "application/json"}


@dataclass
class Api:
    host: Host
    kit: CoreKit

    async def __call__(
        self, method: str, target: str, body: Any = b"", headers: Mapping[str, str | bytes] | None = None
    ) -> Answer:
        raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return await call(self.host, method, target, raw, headers=headers or JSON)

    async def ticket(self, size: int, **more: Any) -> Any:
        answer = await self("POST", "/v1/subjects/orders/uploads", {"size": size, **more})
        assert answer.status == 201, answer.body
        return answer.json

    def put(self, ticket: Any, body: bytes) -> None:
        self.kit.payloads.client_put(ticket["object_name"], body)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    kit = core_kit(uploads__part_size=10, server__token=TOKEN, server__webhook_token=WEBHOOK_TOKEN)

    async def open_core(*_: Any) -> Any:
        return kit.core

    wiring = Wiring(open_core, JOBS)
    host = Host(kit.core.settings, load_functions(), Metrics(Board(1), 0), wiring)
    await host.start()
    yield Api(host, kit)
    await host.stop()


async def test_a_ticket_says_how_to_upload(api: Api) -> None:
    ticket = await api.ticket(5, content_type="text/plain")
    assert ticket["method"] == "PUT"
    assert ticket["url"].startswith(f"put:{ticket['object_name']}")
    assert ticket["headers"] == {"content-type": "text/plain", "if-none-match": "*"}
    assert "parts" not in ticket


async def test_a_ticket_for_parts_says_which(api: Api) -> None:
    ticket = await api.ticket(25)
    assert "url" not in ticket
    parts = ticket["parts"]
    assert (parts["part_size"], parts["count"]) == (10, 3)
    assert [(part["number"], part["size"]) for part in parts["urls"]] == [(1, 10), (2, 10), (3, 5)]
    assert "next" not in parts
    assert (await api.ticket(10 * 1001))["parts"]["next"] == 1001


async def test_many_tickets_and_receipts_come_in_one_answer(api: Api) -> None:
    ticket = await api.ticket(2, producer_id="p", seqno=1)
    api.put(ticket, b"ok")
    await api("POST", f"/v1/uploads/{ticket['upload_id']}/complete")
    asked = {"uploads": [{"size": 2, "producer_id": "p", "seqno": 1}, {"size": 3}]}
    many = await api("POST", "/v1/subjects/orders/uploads", asked)
    assert many.status == 201
    first, second = many.json["uploads"]
    assert (first["state"], first["sequence"], first["duplicate"]) == ("committed", 1, True)
    assert second["method"] == "PUT"
    single = await api("POST", "/v1/subjects/orders/uploads", asked["uploads"][0])
    assert (single.status, single.json) == (200, first)


async def test_an_upload_is_completed_and_followed_by_its_receipt(api: Api) -> None:
    ticket = await api.ticket(2)
    upload = f"/v1/uploads/{ticket['upload_id']}"
    assert (await api("GET", upload)).json == {"state": "open", "upload_id": ticket["upload_id"]}
    incomplete = await api("POST", f"{upload}/complete")
    assert (incomplete.status, incomplete.code) == (409, "upload_incomplete")
    api.put(ticket, b"ok")
    done = await api("POST", f"{upload}/complete")
    assert done.json["sequence"] == 1
    assert (await api("GET", f"{upload}?wait=5")).json == done.json
    refused = await api("DELETE", upload)
    assert (refused.status, refused.code) == (409, "upload_final")


async def test_an_abort_answers_the_same_again(api: Api) -> None:
    upload = f"/v1/uploads/{(await api.ticket(2))['upload_id']}"
    answers = [await api("DELETE", upload) for _ in range(2)]
    assert [answer.json["state"] for answer in answers] == ["aborted", "aborted"]
    gone = await api("GET", f"/v1/uploads/{new_id(1)}")
    assert (gone.status, gone.code) == (404, "not_found")


async def test_parts_are_listed_and_signed(api: Api) -> None:
    ticket = await api.ticket(25)
    parts = f"/v1/uploads/{ticket['upload_id']}/parts"
    multipart_id = next(iter(api.kit.payloads.multiparts))
    api.kit.payloads.client_put_part(ticket["object_name"], multipart_id, 2, bytes(10))
    (arrived,) = (await api("GET", parts)).json["arrived"]
    assert (arrived["number"], arrived["size"]) == (2, 10)
    missing = (await api("POST", parts)).json
    assert [part["number"] for part in missing["urls"]] == [1, 3]
    signed = (await api("POST", parts, {"parts": [{"number": 2, "md5": "0" * 32}]})).json
    assert signed["urls"][0]["headers"] == {"content-md5": "0" * 32}
    assert signed["expires_at"] > 0


async def test_an_inline_publish_answers_by_what_became_of_it(api: Api) -> None:
    path = "/v1/subjects/orders/messages"
    keyed = {"content-type": "text/plain", "idempotency-key": "k"}
    assert (await api("POST", path, b"x", keyed)).status == 201
    again = await api("POST", path, b"x", keyed)
    assert (again.status, again.json["duplicate"]) == (200, True)
    conflict = await api("POST", path, b"y", keyed)
    assert (conflict.status, conflict.code) == (422, "idempotency_conflict")
    await api.ticket(2, producer_id="p", seqno=1)
    waits = await api("POST", path, b"x", {"x-mts-producer-id": "p", "x-mts-seqno": "2"})
    assert (waits.status, waits.json["state"]) == (202, "stored")


async def test_a_batch_answers_item_by_item(api: Api) -> None:
    lines = b'{"data":"a","producer_id":"p","seqno":2}\n{"data":"b","producer_id":"p","seqno":1}\n{"data":"c"}'
    answer = await api("POST", "/v1/subjects/orders/messages/batch", lines, {"content-type": "application/x-ndjson"})
    assert (answer.status, answer.json["committed"], answer.json["failed"]) == (200, 2, 1)
    states = [result["state"] for result in answer.json["results"]]
    assert states == ["committed", "refused", "committed"]
    assert answer.json["results"][1]["error"]["code"] == "seqno_skipped"


async def test_messages_are_read_as_messages_and_as_extents(api: Api) -> None:
    lines = b'{"data":"a","headers":{"n":"1"}}\n{"data":"b"}\n{"data":"c"}'
    await api("POST", "/v1/subjects/orders/messages/batch", lines, {"content-type": "application/x-ndjson"})
    path = "/v1/subjects/orders/messages"
    page = (await api("GET", f"{path}?start=2&limit=1&inline=true&partition=0")).json
    (message,) = page["messages"]
    assert (message["sequence"], base64.b64decode(message["data"]), message["headers"]) == (2, b"b", {})
    assert (page["next_sequence"], page["latest_sequence"]) == (3, 3)
    extents = (await api("GET", f"{path}?view=extents&start=first")).json
    (extent,) = extents["extents"]
    assert (extent["count"], extent["sizes"], extent["framed"], extent["headers"]) == (3, [1, 1, 1], True, {"n": "1"})
    assert extent["own"] == [{"index": 1, "headers": {}}, {"index": 2, "headers": {}}]
    assert (await api("GET", "/v1/messages/3?inline=true")).json["data"] == "Yw=="
    latest = (await api("GET", "/v1/subjects/orders/latest")).json
    assert latest == {"subject": "orders", "latest_sequence": 3, "now": message["create_at"]}


async def test_large_numbers_are_strings_in_every_answer(api: Api) -> None:
    api.kit.metadata._order.watermark = 2**53
    first = await api("POST", "/v1/subjects/orders/messages", b"x", {"content-type": "text/plain"})
    assert first.json["sequence"] == str(2**53 + 1)
    page = (await api("GET", "/v1/subjects/orders/messages?start=9007199254740993")).json
    assert page["messages"][0]["sequence"] == str(2**53 + 1)
    assert (page["next_sequence"], page["latest_sequence"]) == (str(2**53 + 2), str(2**53 + 1))
    assert (await api("GET", f"/v1/messages/{2**53 + 1}")).status == 200
    ticket = await api.ticket(1)
    api.put(ticket, b"x")
    done = await api("POST", f"/v1/uploads/{ticket['upload_id']}/complete")
    assert done.json["sequence"] == str(2**53 + 2)


async def test_a_session_of_a_producer(api: Api) -> None:
    path = "/v1/subjects/orders/producers"
    session = (await api("POST", path, {"producer_id": "p"})).json
    assert session == {"producer_id": "p", "epoch": session["epoch"], "last_seqno": None}
    fenced = await api(
        "POST",
        "/v1/subjects/orders/messages",
        b"x",
        {"x-mts-producer-id": "p", "x-mts-seqno": "1", "x-mts-epoch": "0"},
    )
    assert (fenced.status, fenced.code) == (409, "producer_fenced")
    assert (await api("POST", path, {"producer_id": ""})).status == 400


async def test_subjects_status_and_the_reconciler(api: Api) -> None:
    await api("POST", "/v1/subjects/orders/messages", b"x", {"content-type": "text/plain"})
    (subject,) = (await api("GET", "/v1/subjects?after=a&limit=5")).json["subjects"]
    assert (subject["subject"], subject["messages"], subject["bytes"]) == ("orders", 1, 1)
    assert (await api("GET", "/v1/status")).json["rows"] == 1
    assert (await api("POST", "/v1/reconcile")).json["looked"] == 0


async def test_parts_that_are_down_are_a_503_that_says_when_to_come_again(api: Api) -> None:
    api.kit.payloads.down = True
    publish = await api("POST", "/v1/subjects/orders/messages", b"x", {"content-type": "text/plain"})
    assert (publish.status, publish.code, publish.headers["retry-after"]) == (503, "unavailable", "1")
    api.kit.payloads.down = False
    api.kit.metadata.down = True
    ticket = await api("POST", "/v1/subjects/orders/uploads", {"size": 1})
    assert (ticket.status, ticket.code, ticket.headers["retry-after"]) == (503, "unavailable", "1")
    api.kit.metadata.down = False
    assert (await api("POST", "/v1/subjects/orders/uploads", {"size": 1})).status == 201
