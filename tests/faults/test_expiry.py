"""How tickets end (rules 7, 8, 10): by looking in the store, never by the clock alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from minitoolstream.bootstrap import open_core
from minitoolstream.ports import ObjectInfo
from minitoolstream.services.reconcile_uploads import reconcile
from tests.faults.audit import multiparts_in_bucket, objects_in_bucket
from tests.faults.slow_put import SlowPut
from tests.live import Live, eventually, send


def has_expired(live: Live, ticket: Any) -> bool:
    """Its URL and its grace are over, by the clock of the server."""
    return bool(live.api("GET", "/v1/status").json["time"] > ticket["expires_at"] + 1)


def state_of(live: Live, ticket: Any) -> str:
    answer = live.api("GET", f"/v1/uploads/{ticket['upload_id']}")
    return "gone" if answer.status == 404 else str(answer.json["state"])


def expires_at(live: Live, ticket: Any) -> int:
    """When the ticket ends, as Tarantool knows it now."""

    async def ask() -> int:
        core = await open_core(live.settings)
        try:
            found = await core.metadata.get_upload(ticket["upload_id"])
            return found[0].expires_at if found else 0
        finally:
            await core.close()

    return asyncio.run(ask())


def reconciled_to(live: Live, ticket: Any, *states: str) -> bool:
    live.reconcile()
    return state_of(live, ticket) in states


def test_a_payload_that_came_is_committed_whatever_the_time(deaf: Live, subject: str) -> None:
    ticket = deaf.ticket(subject, 4)
    deaf.put(ticket, b"here")
    eventually(lambda: has_expired(deaf, ticket))

    eventually(lambda: deaf.reconcile() and deaf.messages(subject))

    (message,) = deaf.messages(subject)
    assert deaf.payload(message) == b"here"


def test_a_ticket_that_nobody_used_expires_and_its_row_goes(deaf: Live, subject: str) -> None:
    ticket = deaf.ticket(subject, 4)

    eventually(lambda: reconciled_to(deaf, ticket, "expired"))
    late = deaf.put(ticket, b"late")
    eventually(lambda: reconciled_to(deaf, ticket, "gone"))

    assert late.status == 403, "the URL ends with the ticket"
    assert deaf.messages(subject) == []
    assert deaf.api("POST", f"/v1/uploads/{ticket['upload_id']}/complete").code == "not_found"


def test_a_put_that_still_runs_is_not_expired_under_its_feet(deaf: Live, subject: str) -> None:
    payload = bytes(range(256)) * 4096
    ticket = deaf.ticket(subject, len(payload))
    slow = SlowPut(deaf, ticket, payload)
    eventually(lambda: has_expired(deaf, ticket))

    for _ in range(2):
        deaf.reconcile()
        assert state_of(deaf, ticket) == "open"
    assert slow.finish() == 200

    eventually(lambda: deaf.reconcile() and deaf.messages(subject))
    assert deaf.payload(deaf.messages(subject)[0]) == payload


async def test_a_put_that_ended_between_two_looks_is_committed_not_expired(
    deaf: Live, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = deaf.ticket(subject, 4)
    deaf.put(ticket, b"here")
    eventually(lambda: has_expired(deaf, ticket))
    core = await open_core(deaf.settings)
    find, looked = core.payloads.find, []

    async def find_late(name: str) -> ObjectInfo | None:
        looked.append(name)
        return None if name == ticket["object_name"] and looked.count(name) == 1 else await find(name)

    monkeypatch.setattr(core.payloads, "find", find_late)
    try:
        await reconcile(core)
    finally:
        await core.close()

    assert looked.count(ticket["object_name"]) == 2
    assert [deaf.payload(message) for message in deaf.messages(subject)] == [b"here"]


def test_a_put_that_ends_after_its_upload_was_aborted_leaves_nothing(deaf: Live, subject: str) -> None:
    payload = bytes(2**20)
    ticket = deaf.ticket(subject, len(payload))
    slow = SlowPut(deaf, ticket, payload)
    assert deaf.api("DELETE", f"/v1/uploads/{ticket['upload_id']}").json["state"] == "aborted"
    eventually(lambda: has_expired(deaf, ticket))

    deaf.reconcile()
    assert state_of(deaf, ticket) == "aborted", "the row must stay while the PUT runs: nobody else knows of it"
    assert slow.finish() == 200

    eventually(lambda: reconciled_to(deaf, ticket, "gone"))
    eventually(lambda: deaf.reconcile() and ticket["object_name"] not in objects_in_bucket(deaf))
    assert deaf.messages(subject) == []


def test_parts_that_keep_coming_keep_a_ticket_alive(deaf: Live, subject: str) -> None:
    ticket = deaf.ticket(subject, 11 * 2**20)
    first = ticket["parts"]["urls"][0]
    assert send("PUT", first["url"], bytes(first["size"])).status == 200

    eventually(lambda: deaf.reconcile() and expires_at(deaf, ticket) > ticket["expires_at"])
    eventually(lambda: reconciled_to(deaf, ticket, "expired"))

    assert multiparts_in_bucket(deaf, ticket["object_name"]) == []


def test_a_url_used_after_an_abort_leaves_nothing_even_when_its_event_is_lost(deaf: Live, subject: str) -> None:
    ticket = deaf.ticket(subject, 3)
    deaf.api("DELETE", f"/v1/uploads/{ticket['upload_id']}")
    assert deaf.put(ticket, b"one").status == 200

    eventually(lambda: reconciled_to(deaf, ticket, "gone"))
    assert ticket["object_name"] not in objects_in_bucket(deaf)
    assert deaf.messages(subject) == []
