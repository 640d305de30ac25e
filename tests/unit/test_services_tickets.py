"""Tickets and parts, on fakes."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import GIB, MAX_PARTS, MAX_PAYLOAD_BYTES, MIB, MIN_PART_BYTES, PARTS_PER_PAGE
from minitoolstream.domain.subject import new_id
from minitoolstream.domain.upload import Receipt, State, Upload, UploadSpec
from minitoolstream.services.commit_uploads import commit_created
from minitoolstream.services.fetch_messages import get_message
from minitoolstream.services.issue_tickets import ensure_multipart, issue_tickets, part_size_for
from minitoolstream.services.upload_parts import list_parts, sign_missing_parts, sign_parts
from tests.core_kit import CoreKit, core_kit


async def test_a_small_payload_gets_one_signed_put() -> None:
    kit = core_kit()
    ticket = await kit.ticket(5, sha256="a" * 64)
    assert ticket.parts is None
    assert ticket.request is not None
    assert ticket.request.url == f"put:{ticket.upload.object_name}?size=5&expires=3600"
    assert ticket.request.headers == {
        "content-type": "text/plain",
        "if-none-match": "*",
        "x-amz-checksum-sha256": "a" * 64,
    }


async def test_a_ticket_ends_with_the_keys_that_sign_it() -> None:
    """Rule 7. The row lives on: what arrives in time is committed."""
    end = int(time.time()) + 100
    kit = core_kit(minio__session_end=float(end), uploads__part_size=10)
    single, parts = await kit.ticket(5), await kit.ticket(25)
    assert single.request is not None
    assert parts.parts is not None
    again = await sign_parts(kit.core, parts.upload.id, [(1, None)])
    missing = await sign_missing_parts(kit.core, parts.upload.id, 1)
    assert [shown.expires_at for shown in (single.upload, parts.upload, again.upload, missing.upload)] == [end] * 4
    urls = [single.request.url, *(part.request.url for part in (*parts.parts, *again.signed, *missing.signed))]
    assert all(0 < int(re.split("expires=", url)[1].split("&")[0]) <= 100 for url in urls), urls


async def test_a_download_ends_with_the_keys_that_sign_it() -> None:
    kit = core_kit(minio__session_end=time.time() + 100)
    receipt = await commit_created(kit.core, kit.put((await kit.ticket(1)).upload, b"1"))
    assert receipt is not None
    assert receipt.sequence is not None
    message = await get_message(kit.core, receipt.sequence)
    assert 0 < int(str(message.url).rpartition("expires=")[2]) <= 100


async def test_what_ended_keys_would_sign_is_not_handed_out() -> None:
    kit = core_kit(minio__session_end=time.time() - 1)
    with pytest.raises(MtsError, match="have ended") as caught:
        await kit.ticket(5)
    assert caught.value.retryable


async def test_keys_that_end_later_than_the_ticket_change_nothing() -> None:
    kit = core_kit(minio__session_end=time.time() + 7200)
    ticket = await kit.ticket(5)
    assert ticket.request is not None
    assert ticket.request.url.endswith("expires=3600")


async def test_a_named_producers_payload_carries_what_recovery_needs() -> None:
    kit = core_kit()
    ticket = await kit.ticket(5, producer_id="café/1", seqno=7)
    assert ticket.request is not None
    assert ticket.request.headers["x-amz-meta-mts-producer"] == "caf%C3%A9%2F1"
    assert ticket.request.headers["x-amz-meta-mts-seqno"] == "7"


async def test_a_producer_id_too_long_for_the_stores_metadata_is_left_out() -> None:
    kit = core_kit()
    ticket = await kit.ticket(5, producer_id="é" * 400, seqno=7)
    assert ticket.request is not None
    assert "x-amz-meta-mts-producer" not in ticket.request.headers
    assert ticket.request.headers["x-amz-meta-mts-seqno"] == "7"


async def test_many_tickets_come_in_order_and_a_stored_seqno_gets_its_receipt() -> None:
    kit = core_kit()
    stored = await kit.ticket(1, producer_id="p", seqno=1)
    await commit_created(kit.core, kit.put(stored.upload, b"1"))
    specs = [UploadSpec(size, "text/plain", producer_id="p", seqno=size) for size in (1, 2, 3)]
    issued = await issue_tickets(kit.core, "orders", specs)
    assert isinstance(issued[0], Receipt)
    assert (issued[0].state, issued[0].duplicate) == (State.COMMITTED, True)
    assert [ticket.upload.size for ticket in issued[1:] if not isinstance(ticket, Receipt)] == [2, 3]


async def test_a_payload_above_the_part_size_is_uploaded_in_parts() -> None:
    kit = core_kit(uploads__part_size=10)
    ticket = await kit.ticket(25)
    assert ticket.request is None
    assert ticket.parts is not None
    assert [(part.number, part.size) for part in ticket.parts] == [(1, 10), (2, 10), (3, 5)]
    assert f"id={ticket.upload.multipart_id}&number=3&size=5" in ticket.parts[2].request.url


async def test_part_urls_come_in_pages_of_a_thousand() -> None:
    kit = core_kit(uploads__part_size=1)
    ticket = await kit.ticket(2500)
    assert ticket.parts is not None
    assert [ticket.parts[0].number, ticket.parts[-1].number] == [1, 1000]
    page = await sign_missing_parts(kit.core, ticket.upload.id, 1001)
    assert ([part.number for part in page.signed][::999], page.next) == ([1001, 2000], 2001)
    assert (await sign_missing_parts(kit.core, ticket.upload.id, 2001)).next is None


async def test_all_tickets_of_a_request_share_one_page_of_part_urls() -> None:
    kit = core_kit(uploads__part_size=1)
    issued = await issue_tickets(kit.core, "orders", [UploadSpec(2500, "text/plain")] * 10)
    tickets = [ticket for ticket in issued if not isinstance(ticket, Receipt)]
    assert [len(ticket.parts or []) for ticket in tickets] == [PARTS_PER_PAGE // 10] * 10
    page = await sign_missing_parts(kit.core, tickets[0].upload.id, PARTS_PER_PAGE // 10 + 1)
    assert len(page.signed) == PARTS_PER_PAGE


@given(st.integers(0, MAX_PAYLOAD_BYTES), st.integers(MIN_PART_BYTES, 5 * GIB))
def test_no_payload_needs_more_parts_than_a_store_takes(size: int, configured: int) -> None:
    part_size = part_size_for(size, configured)
    if part_size is None:
        assert size <= configured
    else:
        assert part_size >= configured
        assert 1 < -(-size // part_size) <= MAX_PARTS


def test_the_largest_payload_has_parts_of_whole_mebibytes() -> None:
    part_size = part_size_for(MAX_PAYLOAD_BYTES, 16 * MIB)
    assert part_size == 525 * MIB
    assert part_size_for(16 * MIB, 16 * MIB) is None
    assert part_size_for(16 * MIB + 1, 16 * MIB) == 16 * MIB


async def test_when_two_begin_a_multipart_at_once_the_first_counts_and_the_other_is_aborted() -> None:
    kit = core_kit(uploads__part_size=10)
    (new,) = await kit.metadata.create_uploads("orders", [UploadSpec(25, "text/plain", part_size=10)])
    assert new.upload is not None
    first = await ensure_multipart(kit.core, new.upload)
    second = await ensure_multipart(kit.core, new.upload)
    assert first.multipart_id == second.multipart_id
    assert list(kit.payloads.multiparts) == [first.multipart_id]


async def test_a_ticket_past_its_time_is_not_signed_again() -> None:
    kit = core_kit()
    await kit.ticket(5, producer_id="p", seqno=1)
    kit.advance(-10 * 24 * 3600)
    with pytest.raises(MtsError, match="expired") as caught:
        await kit.ticket(5, producer_id="q", seqno=1)
    assert caught.value.code == "upload_final"


async def test_only_the_parts_that_did_not_arrive_are_signed_again() -> None:
    kit = core_kit(uploads__part_size=10)
    upload = (await kit.ticket(35)).upload
    assert upload.multipart_id is not None
    kit.payloads.client_put_part(upload.object_name, upload.multipart_id, 2, b"2" * 10)
    assert [part.number for part in (await list_parts(kit.core, upload.id)).arrived] == [2]
    page = await sign_missing_parts(kit.core, upload.id, 1)
    assert [part.number for part in page.signed] == [1, 3, 4]
    assert (page.count, [part.number for part in page.arrived]) == (4, [2])


async def test_signing_parts_extends_the_ticket() -> None:
    kit = core_kit(uploads__part_size=10)
    upload = (await kit.ticket(35)).upload
    kit.advance(100)
    page = await sign_missing_parts(kit.core, upload.id, 1)
    assert page.upload.expires_at == upload.expires_at + 100


async def test_given_parts_are_signed_with_their_checksums() -> None:
    kit = core_kit(uploads__part_size=10)
    upload = (await kit.ticket(35)).upload
    page = await sign_parts(kit.core, upload.id, [(4, "0" * 32), (1, None)])
    assert [(part.number, part.size, part.request.headers) for part in page.signed] == [
        (4, 5, {"content-md5": "0" * 32}),
        (1, 10, {}),
    ]


async def test_a_multipart_that_was_never_begun_is_begun_when_parts_are_signed() -> None:
    kit = core_kit(uploads__part_size=10)
    kit.payloads.down = True
    with pytest.raises(MtsError):
        await kit.ticket(35)
    kit.payloads.down = False
    kit.advance(60)
    (upload,) = (await kit.metadata.uploads_due(10)).uploads
    assert upload.multipart_id is None
    assert (await list_parts(kit.core, upload.id)).arrived == []
    assert len((await sign_missing_parts(kit.core, upload.id, 1)).signed) == 4


async def test_a_multipart_that_the_store_lost_is_begun_anew_when_parts_are_signed() -> None:
    kit = core_kit(uploads__part_size=10)
    upload = (await kit.ticket(15, producer_id="till", seqno=1)).upload
    kit.payloads.multiparts.clear()
    signed = (await sign_missing_parts(kit.core, upload.id, 1)).upload
    assert signed.multipart_id not in {None, upload.multipart_id}
    assert len(kit.payloads.multiparts) == 1
    again = (await kit.ticket(15, producer_id="till", seqno=1)).upload
    assert (again.id, again.multipart_id) == (upload.id, signed.multipart_id), "one that is there is kept"


async def joined(kit: CoreKit, **more: Any) -> Upload:
    """All parts were made one object, and the host was killed before it committed that."""
    upload = (await kit.ticket(15, **more)).upload
    kit.payloads.multiparts.clear()
    kit.payloads.client_put(upload.object_name, b"x" * 15)
    return upload


@pytest.mark.parametrize("ask", [list_parts, lambda core, upload_id: sign_missing_parts(core, upload_id, 1)])
async def test_who_asks_for_parts_that_were_joined_already_finds_them_committed(ask: Any) -> None:
    kit = core_kit(uploads__part_size=10)
    upload = await joined(kit)
    with pytest.raises(MtsError) as caught:
        await ask(kit.core, upload.id)
    assert (caught.value.code, caught.value.details["state"]) == ("upload_final", State.COMMITTED)
    assert (await kit.receipt(upload)).sequence == 1
    assert kit.payloads.multiparts == {}


async def test_a_seqno_whose_parts_were_joined_already_is_committed_by_its_second_announcement() -> None:
    kit = core_kit(uploads__part_size=10)
    await joined(kit, producer_id="till", seqno=1)
    spec = UploadSpec(15, "text/plain", producer_id="till", seqno=1)
    (receipt,) = await issue_tickets(kit.core, "orders", [spec])
    assert isinstance(receipt, Receipt)
    assert (receipt.state, receipt.sequence) == (State.COMMITTED, 1)


async def test_parts_that_the_store_lost_are_asked_for_again() -> None:
    kit = core_kit(uploads__part_size=10)
    upload = (await kit.ticket(15)).upload
    kit.payloads.multiparts.clear()
    assert (await list_parts(kit.core, upload.id)).arrived == []
    renewed = (await sign_parts(kit.core, upload.id, [(1, None)])).upload
    assert renewed.multipart_id in kit.payloads.multiparts


@pytest.mark.parametrize("number", [0, 5, -1])
async def test_a_part_that_does_not_exist_is_refused(number: int) -> None:
    kit = core_kit(uploads__part_size=10)
    upload = (await kit.ticket(35)).upload
    for call in (sign_parts(kit.core, upload.id, [(number, None)]), sign_missing_parts(kit.core, upload.id, number)):
        with pytest.raises(MtsError, match="1 to 4") as caught:
            await call
        assert caught.value.code == "bad_request"


async def test_a_single_put_has_no_parts() -> None:
    kit = core_kit()
    with pytest.raises(MtsError, match="single PUT"):
        await list_parts(kit.core, (await kit.ticket(5)).upload.id)


async def test_an_ended_or_unknown_upload_has_no_parts() -> None:
    kit = core_kit(uploads__part_size=10)
    upload = (await kit.ticket(35)).upload
    await kit.metadata.abort_upload(upload.id)
    for upload_id, code in ((upload.id, "upload_final"), (new_id(1), "not_found")):
        with pytest.raises(MtsError) as caught:
            await list_parts(kit.core, upload_id)
        assert caught.value.code == code
