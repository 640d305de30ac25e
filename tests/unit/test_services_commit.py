"""From an event to a sequence: what is ours, what is not, and many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote_plus

import msgspec
import pytest

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.object_event import ObjectCreated, Rejected
from minitoolstream.domain.subject import new_id
from minitoolstream.domain.upload import Receipt, State, StoredObject, Upload
from minitoolstream.host.functions import load_functions
from minitoolstream.ports import NoMetrics
from minitoolstream.request_id import request_id
from minitoolstream.services import commit_uploads
from minitoolstream.services.commit_uploads import Committer, commit_created
from minitoolstream.services.end_upload import complete_upload
from minitoolstream.services.reconcile_uploads import reconcile
from tests.core_kit import CoreKit, core_kit

handle_event = load_functions().handle_event
Way = Callable[[CoreKit, Upload], Awaitable[None]]


class SlowStore:
    """Commits when told to, and remembers what came together."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.request_ids: list[str | None] = []
        self.go_on = asyncio.Event()
        self.fails: list[BaseException] = []

    async def commit_uploads(self, stored: Sequence[StoredObject]) -> list[Receipt | None]:
        self.calls.append([item.upload_id for item in stored])
        self.request_ids.append(request_id.get())
        await self.go_on.wait()
        if self.fails:
            raise self.fails.pop(0)
        return [Receipt(State.COMMITTED, item.upload_id, 1) for item in stored]


def committer(store: Any) -> Committer:
    return Committer(store, NoMetrics())


def stored(name: str) -> StoredObject:
    return StoredObject(name, f"m/s/1/{name}", 1)


async def begun(calls: list[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return calls


async def test_one_call_is_in_flight_and_what_arrives_meanwhile_forms_the_next() -> None:
    store = SlowStore()
    commits = committer(store)
    first = await begun([asyncio.create_task(commits.commit(stored("a")))])
    rest = await begun([asyncio.create_task(commits.commit(stored(name))) for name in "bcd"])
    assert store.calls == [["a"]]
    store.go_on.set()
    receipts = await asyncio.gather(*first, *rest)
    assert store.calls == [["a"], ["b", "c", "d"]]
    assert [receipt.upload_id for receipt in receipts] == list("abcd")


async def test_while_several_are_under_way_at_once_the_first_of_a_call_waits_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commit_uploads, "_HOLD", 3600.0)
    store = SlowStore()
    store.go_on.set()
    commits = committer(store)
    await asyncio.gather(*(commits.commit(stored(name)) for name in "abc"))
    first = await begun([asyncio.create_task(commits.commit(stored(name))) for name in "de"])
    assert store.calls == [["a", "b", "c"]]
    await asyncio.gather(*first, commits.commit(stored("f")))
    assert store.calls == [["a", "b", "c"], ["d", "e", "f"]]


async def test_one_that_waits_in_vain_for_others_is_committed_all_the_same() -> None:
    store = SlowStore()
    store.go_on.set()
    commits = committer(store)
    await asyncio.gather(*(commits.commit(stored(name)) for name in "abc"))
    await asyncio.wait_for(commits.commit(stored("d")), 5)
    assert store.calls == [["a", "b", "c"], ["d"]]


async def test_one_after_the_other_never_waits_even_after_a_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_uploads, "_LATELY", 4)
    store = SlowStore()
    store.go_on.set()
    commits = committer(store)
    await asyncio.gather(*(commits.commit(stored(name)) for name in "abc"))
    for name in "defghijk":
        await commits.commit(stored(name))
    monkeypatch.setattr(commit_uploads, "_HOLD", 3600.0)
    await asyncio.wait_for(commits.commit(stored("z")), 5)


async def test_the_receipts_of_the_last_moments_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_uploads, "_REMEMBERED", 2)
    store = SlowStore()
    store.go_on.set()
    commits = committer(store)
    for name in "abc":
        await commits.commit(stored(name))
    assert [commits.recent(name) is not None for name in "abcd"] == [False, True, True, False]
    monkeypatch.setattr(commit_uploads, "_REMEMBERED_FOR", -1)
    assert commits.recent("c") is None


async def test_a_call_is_made_under_the_id_of_a_request_that_is_in_it() -> None:
    store = SlowStore()
    commits = committer(store)

    async def serve(name: str) -> None:
        request_id.set(f"request-{name}")
        await commits.commit(stored(name))

    first = await begun([asyncio.create_task(serve("a"))])
    rest = await begun([asyncio.create_task(serve(name)) for name in "bc"])
    store.go_on.set()
    await asyncio.gather(*first, *rest)
    assert (store.calls, store.request_ids) == ([["a"], ["b", "c"]], ["request-a", "request-b"])


async def test_a_call_takes_at_most_five_hundred() -> None:
    store = SlowStore()
    store.go_on.set()
    commits = committer(store)
    await asyncio.gather(*(commits.commit(stored(str(number))) for number in range(1200)))
    assert [len(call) for call in store.calls] == [500, 500, 200]


@pytest.mark.parametrize(
    ("failure", "code"), [(MtsError("unavailable", "down"), "unavailable"), (ValueError("a bug"), "internal")]
)
async def test_a_failed_call_fails_its_own_and_the_next_goes_on(failure: Exception, code: str) -> None:
    store = SlowStore()
    store.fails = [failure]
    commits = committer(store)
    first = await begun([asyncio.create_task(commits.commit(stored("a")))])
    second = await begun([asyncio.create_task(commits.commit(stored("b")))])
    store.go_on.set()
    with pytest.raises(MtsError) as caught:
        await first[0]
    assert caught.value.code == code
    assert (await asyncio.wait_for(second[0], 5)).upload_id == "b"


async def test_a_caller_who_went_away_disturbs_nobody() -> None:
    store = SlowStore()
    commits = committer(store)
    gone, stays = await begun([asyncio.create_task(commits.commit(stored(name))) for name in "ab"])
    gone.cancel()
    store.go_on.set()
    assert (await asyncio.wait_for(stays, 5)).upload_id == "b"


async def test_an_event_commits_its_upload_and_is_counted_once() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    event = kit.put(upload, b"ok")
    first = await commit_created(kit.core, event)
    again = await commit_created(kit.core, event)
    assert first is not None
    assert again is not None
    assert (first.sequence, again.sequence, again.duplicate) == (1, 1, True)
    assert kit.metrics.messages_committed == 1


async def told_by_event(kit: CoreKit, upload: Upload) -> None:
    await commit_created(kit.core, ObjectCreated("minitoolstream", upload.object_name, len(b"too long")))


async def completed(kit: CoreKit, upload: Upload) -> None:
    await complete_upload(kit.core, upload.id)


async def found_by_the_reconciler(kit: CoreKit, _upload: Upload) -> None:
    kit.advance(600)
    await reconcile(kit.core)


@pytest.mark.parametrize("way", [told_by_event, completed, found_by_the_reconciler])
async def test_a_payload_that_does_not_fit_is_counted_with_the_reason_whoever_finds_it(way: Way) -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    kit.put(upload, b"too long")
    await way(kit, upload)
    assert (await kit.receipt(upload)).state is State.REJECTED
    assert kit.metrics.reasons == ["size_mismatch"]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (ObjectCreated("another", "m/s/1/" + new_id(1), 1), "foreign_bucket"),
        (ObjectCreated("minitoolstream", "holiday.jpg", 1), "foreign_object"),
        (ObjectCreated("minitoolstream", "m/s/1/holiday.jpg", 1), "foreign_object"),
        (ObjectCreated("minitoolstream", "m/s/1/" + new_id(1), 1), "unknown_upload"),
        (Rejected("x", "malformed_event"), "malformed_event"),
    ],
)
async def test_what_is_not_ours_is_recorded_and_never_raised(record: ObjectCreated | Rejected, reason: str) -> None:
    kit = core_kit()
    assert await commit_created(kit.core, record) is None
    assert kit.metrics.reasons == [reason]
    (event,) = (await kit.metadata.status())["rejected_events"]
    assert (event["object_name"], event["reason"]) == (record.object_name, reason)


async def test_our_own_packs_are_no_news() -> None:
    kit = core_kit()
    assert await commit_created(kit.core, ObjectCreated("minitoolstream", "_mts/packs/" + new_id(1), 1)) is None
    assert kit.metrics.reasons == []


async def test_the_name_of_a_foreign_object_is_recorded_in_bounds() -> None:
    kit = core_kit()
    await commit_created(kit.core, ObjectCreated("minitoolstream", "x" * 5000, 1))
    (event,) = (await kit.metadata.status())["rejected_events"]
    assert len(event["object_name"]) == 1024


# -- the function that takes the events


def s3_record(kit: CoreKit, upload: Upload, size: int) -> dict[str, Any]:
    bucket = kit.core.settings["minio.bucket"]
    item = {"key": quote_plus(upload.object_name), "size": size, "eTag": "e"}
    return {"eventName": "s3:ObjectCreated:Put", "s3": {"bucket": {"name": bucket}, "object": item}}


async def test_all_records_of_an_event_are_handled() -> None:
    kit = core_kit()
    uploads = [(await kit.ticket(1)).upload for _ in range(3)]
    records = [s3_record(kit, upload, 1) for upload in uploads]
    records[1]["s3"]["object"]["key"] = "foreign"
    assert await handle_event(kit.core, {"Records": records}, "r") == {"committed": 2}
    states = [(await kit.receipt(upload)).state for upload in uploads]
    assert states == [State.COMMITTED, State.OPEN, State.COMMITTED]


async def test_a_store_that_is_down_lets_the_event_come_again() -> None:
    kit = core_kit()
    upload = (await kit.ticket(1)).upload
    kit.metadata.down = True
    with pytest.raises(MtsError) as caught:
        await handle_event(kit.core, {"Records": [s3_record(kit, upload, 1)]}, "r")
    assert caught.value.retryable


async def test_from_sqs_only_what_failed_comes_again() -> None:
    kit = core_kit()
    upload = (await kit.ticket(1)).upload
    body = msgspec.json.encode({"Records": [s3_record(kit, upload, 1)]}).decode()
    records = [
        {"eventSource": "aws:sqs", "messageId": "good", "body": body},
        {"eventSource": "aws:sqs", "messageId": "bad", "body": "{"},
        {"eventSource": "aws:sqs", "messageId": "test", "body": '{"Event": "s3:TestEvent"}'},
    ]
    assert await handle_event(kit.core, {"Records": records}, "r") == {"batchItemFailures": []}
    assert (await kit.receipt(upload)).state is State.COMMITTED

    kit.metadata.down = True
    failed = await handle_event(kit.core, {"Records": records}, "r")
    assert failed == {"batchItemFailures": [{"itemIdentifier": "good"}, {"itemIdentifier": "bad"}]}


async def test_a_test_event_does_nothing() -> None:
    kit = core_kit()
    assert await handle_event(kit.core, {"Event": "s3:TestEvent"}, "r") == {"committed": 0}
    assert replace(kit.metrics) == type(kit.metrics)()


@pytest.mark.parametrize("told", [0, 4])
async def test_an_event_that_tells_a_wrong_size_is_checked_in_the_store(told: int) -> None:
    kit = core_kit()
    upload = (await kit.ticket(5)).upload
    kit.payloads.client_put(upload.object_name, b"right")
    event = ObjectCreated("minitoolstream", upload.object_name, told)
    receipt = await commit_created(kit.core, event)
    assert receipt is not None
    assert receipt.state is State.COMMITTED


async def test_an_event_without_an_object_ends_nothing() -> None:
    kit = core_kit()
    upload = (await kit.ticket(5)).upload
    receipt = await commit_created(kit.core, ObjectCreated("minitoolstream", upload.object_name, 4))
    assert receipt is not None
    assert receipt.state is State.OPEN
