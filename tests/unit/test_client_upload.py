"""Publishing files: single PUTs, parts, and going on after an interruption."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from minitoolstream.client import MtsError, State
from minitoolstream.client._resume import ResumeSlot
from minitoolstream.net.http1 import HttpError, HttpResponse
from tests.unit.fake_host import FakeHost, answer, api_error, break_after, break_before, refuse_connection

EXPIRED = answer(403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")


def make_file(folder: Path, content: bytes = b"0123456789abcdefghijABCDE") -> Path:
    path = folder / "film.mp4"
    path.write_bytes(content)
    return path


def state_files(folder: Path) -> list[Path]:
    return list((folder / "state").glob("*.json"))


async def test_a_small_file_is_one_put(tmp_path: Path) -> None:
    host = FakeHost()
    receipt = await host.client(tmp_path).publish_file("videos", make_file(tmp_path, b"tiny"), headers={"a": "b"})
    assert receipt.state is State.COMMITTED
    assert host.messages[0].data == b"tiny"
    assert host.messages[0].meta["content_type"] == "video/mp4"
    assert host.messages[0].meta["headers"] == {"a": "b"}
    assert len(host.asked("PUT store")) == 1
    assert host.asked("/complete") == []


async def test_an_empty_file_is_a_message_too(tmp_path: Path) -> None:
    host = FakeHost()
    await host.client(tmp_path).publish_file("videos", make_file(tmp_path, b""))
    assert host.messages[0].data == b""


async def test_when_the_event_was_lost_complete_commits(tmp_path: Path) -> None:
    host = FakeHost(events=False)
    receipt = await host.client(tmp_path).publish_file("videos", make_file(tmp_path, b"tiny"))
    assert receipt.sequence == 1
    assert len(host.asked("/complete")) == 1


@pytest.mark.parametrize("events", [True, False])
async def test_a_put_whose_answer_was_lost_is_not_sent_again(tmp_path: Path, events: bool) -> None:
    host = FakeHost(events=events)
    host.once("PUT store", break_after)
    receipt = await host.client(tmp_path).publish_file("videos", make_file(tmp_path, b"tiny"))
    assert receipt.sequence == 1
    assert len(host.messages) == 1
    assert len(host.asked("PUT store")) == 1


async def test_a_put_that_broke_before_it_was_stored_is_sent_again(tmp_path: Path) -> None:
    host = FakeHost()
    host.once("PUT store", break_before, refuse_connection, answer(503))
    receipt = await host.client(tmp_path).publish_file("videos", make_file(tmp_path, b"tiny"))
    assert receipt.sequence == 1
    assert len(host.asked("PUT store")) == 4
    assert len(host.asked("POST host-a/v1/subjects/videos/uploads")) == 1


async def test_an_object_that_is_there_already_is_completed(tmp_path: Path) -> None:
    host = FakeHost(events=False)

    def lost_then_there(act: Callable[[], HttpResponse]) -> HttpResponse:
        act()
        return act()  # the second PUT meets the object of the first

    host.once("PUT store", lost_then_there)
    receipt = await host.client(tmp_path).publish_file("videos", make_file(tmp_path, b"tiny"))
    assert receipt.sequence == 1


async def test_an_expired_url_gets_a_new_ticket(tmp_path: Path) -> None:
    host = FakeHost()
    host.once("PUT store", EXPIRED)
    receipt = await host.client(tmp_path).publish_file("videos", make_file(tmp_path, b"tiny"))
    assert receipt.sequence == 1
    assert [upload.state for upload in host.uploads.values()] == ["aborted", "committed"]


async def test_a_url_that_is_refused_twice_is_an_error(tmp_path: Path) -> None:
    host = FakeHost()
    host.once("PUT store", EXPIRED, EXPIRED)
    with pytest.raises(MtsError, match="Request has expired") as caught:
        await host.client(tmp_path).publish_file("videos", make_file(tmp_path, b"tiny"))
    assert caught.value.code == "forbidden"
    assert state_files(tmp_path) == []


async def test_a_rejected_upload_is_an_error_with_its_reason(tmp_path: Path) -> None:
    host = FakeHost()
    body = b'{"upload_id": "x", "state": "rejected", "reason": "wrong_size"}'
    host.once("GET host-a/v1/uploads", answer(200, body))
    with pytest.raises(MtsError, match="rejected: wrong_size") as caught:
        await host.client(tmp_path).publish_file("videos", make_file(tmp_path, b"tiny"))
    assert caught.value.code == "upload_rejected"


async def test_a_seqno_that_is_stored_already_sends_nothing(tmp_path: Path) -> None:
    host = FakeHost()
    client = host.client(tmp_path)
    first = await client.publish_file("videos", make_file(tmp_path, b"tiny"), producer_id="p", seqno=1)
    again = await client.publish_file("videos", make_file(tmp_path, b"tiny"), producer_id="p", seqno=1)
    assert (again.sequence, again.duplicate) == (first.sequence, True)
    assert len(host.asked("PUT store")) == 1


# -- parts


async def test_a_large_file_goes_in_parts_with_their_md5_and_full_progress(tmp_path: Path) -> None:
    host = FakeHost()
    path = make_file(tmp_path)
    seen: list[tuple[int, int]] = []
    receipt = await host.client(tmp_path / "state").publish_file(
        "videos", path, progress=lambda done, total: seen.append((done, total))
    )
    assert receipt.sequence == 1
    assert host.messages[0].data == path.read_bytes()
    assert len(host.asked("PUT store")) == 3
    assert seen[-1] == (25, 25)
    assert sorted(seen) == seen
    assert state_files(tmp_path) == []


@pytest.mark.parametrize("concurrency", [1, 2, 16])
async def test_parts_arrive_whole_at_any_concurrency(tmp_path: Path, concurrency: int) -> None:
    host = FakeHost(part_size=3)
    path = make_file(tmp_path, os.urandom(100))
    await host.client(tmp_path).publish_file("videos", path, concurrency=concurrency)
    assert host.messages[0].data == path.read_bytes()


async def test_a_part_is_repeated_after_a_broken_connection_and_a_slow_down(tmp_path: Path) -> None:
    host = FakeHost()
    host.once("partNumber=2", break_before, break_after, answer(503, b"<Error><Code>SlowDown</Code></Error>"))
    seen: list[int] = []
    path = make_file(tmp_path)
    await host.client(tmp_path).publish_file("videos", path, progress=lambda done, _: seen.append(done))
    assert host.messages[0].data == path.read_bytes()
    assert seen[-1] == 25
    assert max(seen) == 25


async def test_an_expired_part_url_is_signed_again(tmp_path: Path) -> None:
    host = FakeHost()
    host.once("partNumber=3", EXPIRED)
    await host.client(tmp_path).publish_file("videos", make_file(tmp_path))
    assert len(host.asked("partNumber=3")) == 2
    assert len(host.asked("POST host-a/v1/uploads")) == 3  # signed twice, completed


async def test_a_part_that_the_store_always_refuses_ends_the_upload(tmp_path: Path) -> None:
    host = FakeHost()
    host.once("partNumber=1", *[answer(400, b"<Error><Code>BadDigest</Code></Error>")] * 3)
    with pytest.raises(MtsError) as caught:
        await host.client(tmp_path / "state").publish_file("videos", make_file(tmp_path))
    assert caught.value.code == "checksum_mismatch"
    assert [upload.state for upload in host.uploads.values()] == ["aborted"]
    assert state_files(tmp_path) == []


async def test_parts_that_complete_misses_are_sent_again(tmp_path: Path) -> None:
    host = FakeHost()

    def lose_the_part(act: Callable[[], HttpResponse]) -> HttpResponse:
        response = act()
        next(iter(host.uploads.values())).parts.clear()
        return response

    host.once("partNumber=3", lose_the_part)
    path = make_file(tmp_path)
    await host.client(tmp_path).publish_file("videos", path, concurrency=1)
    assert host.messages[0].data == path.read_bytes()


async def test_a_file_that_changes_meanwhile_is_not_published(tmp_path: Path) -> None:
    host = FakeHost()
    path = make_file(tmp_path)

    def change(act: Callable[[], HttpResponse]) -> HttpResponse:
        path.write_bytes(b"something else")
        return act()

    host.once("partNumber=1", change)
    with pytest.raises(MtsError, match="changed while") as caught:
        await host.client(tmp_path / "state").publish_file("videos", path)
    assert caught.value.code == "file_changed"
    assert host.messages == []
    assert [upload.state for upload in host.uploads.values()] == ["aborted"]


# -- going on


async def interrupt_at(pattern: str, host: FakeHost, folder: Path, path: Path) -> None:
    """As Ctrl-C or a kill when the request is about to be sent."""

    def stop(_: Callable[[], HttpResponse]) -> HttpResponse:
        running.cancel()
        raise HttpError("gone", sent=True)

    host.once(pattern, stop)
    client = host.client(folder / "state")
    running = asyncio.ensure_future(client.publish_file("videos", path, concurrency=1))
    with pytest.raises(asyncio.CancelledError):
        await running


async def interrupt_after_first_part(host: FakeHost, folder: Path, path: Path) -> None:
    await interrupt_at("partNumber=2", host, folder, path)
    assert list(next(iter(host.uploads.values())).parts) == [1]


async def test_the_same_call_sends_only_what_is_missing(tmp_path: Path) -> None:
    host = FakeHost()
    path = make_file(tmp_path)
    await interrupt_after_first_part(host, tmp_path, path)
    assert len(state_files(tmp_path)) == 1
    host.log.clear()
    seen: list[int] = []
    client = host.client(tmp_path / "state")
    receipt = await client.publish_file("videos", path, progress=lambda done, _: seen.append(done))
    assert receipt.sequence == 1
    assert host.messages[0].data == path.read_bytes()
    assert len(host.asked("partNumber=1")) == 0
    assert len(host.asked("PUT store")) == 2
    assert host.asked("POST host-a/v1/subjects") == []
    assert seen[:2] == [0, 10]
    assert seen[-1] == 25
    assert state_files(tmp_path) == []


async def test_an_arrived_part_that_differs_from_the_file_is_sent_again(tmp_path: Path) -> None:
    host = FakeHost()
    path = make_file(tmp_path)
    await interrupt_after_first_part(host, tmp_path, path)
    next(iter(host.uploads.values())).parts[1] = b"damaged..."
    await host.client(tmp_path / "state").publish_file("videos", path)
    assert host.messages[0].data == path.read_bytes()


async def test_a_changed_file_starts_anew_and_the_old_upload_is_aborted(tmp_path: Path) -> None:
    host = FakeHost()
    path = make_file(tmp_path)
    await interrupt_after_first_part(host, tmp_path, path)
    path.write_bytes(b"another film, quite different")
    await host.client(tmp_path / "state").publish_file("videos", path)
    assert host.messages[0].data == b"another film, quite different"
    assert [upload.state for upload in host.uploads.values()] == ["aborted", "committed"]


async def test_other_headers_start_anew(tmp_path: Path) -> None:
    host = FakeHost()
    path = make_file(tmp_path)
    await interrupt_after_first_part(host, tmp_path, path)
    await host.client(tmp_path / "state").publish_file("videos", path, headers={"cut": "directors"})
    assert host.messages[0].meta["headers"] == {"cut": "directors"}


@pytest.mark.parametrize("gone", ["forgotten", "expired", "aborted"])
async def test_a_ticket_that_is_gone_is_replaced(tmp_path: Path, gone: str) -> None:
    host = FakeHost()
    path = make_file(tmp_path)
    await interrupt_after_first_part(host, tmp_path, path)
    if gone == "forgotten":
        host.once("GET host-a/v1/uploads", api_error(404, "not_found"))
    else:
        next(iter(host.uploads.values())).state = gone
    receipt = await host.client(tmp_path / "state").publish_file("videos", path)
    assert receipt.sequence == 1
    assert len(host.uploads) == 2


async def test_an_upload_that_was_committed_before_the_process_died_is_not_published_twice(tmp_path: Path) -> None:
    host = FakeHost()
    path = make_file(tmp_path, b"tiny")
    await interrupt_at("GET host-a/v1/uploads", host, tmp_path, path)
    receipt = await host.client(tmp_path / "state").publish_file("videos", path)
    assert receipt.sequence == 1
    assert len(host.messages) == 1


async def test_a_single_put_that_never_landed_starts_anew(tmp_path: Path) -> None:
    host = FakeHost()
    path = make_file(tmp_path, b"tiny")
    await interrupt_at("PUT store", host, tmp_path, path)
    receipt = await host.client(tmp_path / "state").publish_file("videos", path)
    assert receipt.sequence == 1
    assert [upload.state for upload in host.uploads.values()] == ["aborted", "committed"]


def meanwhile(host: FakeHost, act: Callable[[str], object]) -> Callable[[Callable[[], HttpResponse]], HttpResponse]:
    """What happens to the only upload between the answer to one request and the next."""

    def effect(send: Callable[[], HttpResponse]) -> HttpResponse:
        response = send()
        act(next(iter(host.uploads)))
        return response

    return effect


def late_put(host: FakeHost, data: bytes) -> Callable[[Callable[[], HttpResponse]], HttpResponse]:
    """The payload lands, and its event commits, just before this request is served."""

    def effect(send: Callable[[], HttpResponse]) -> HttpResponse:
        (upload_id,) = host.uploads
        host.uploads[upload_id].payload = data
        host.complete(upload_id)
        return send()

    return effect


async def test_what_an_interrupted_complete_commits_while_the_call_is_repeated_is_not_published_twice(
    tmp_path: Path,
) -> None:
    host = FakeHost()
    path = make_file(tmp_path)
    await interrupt_at("/complete", host, tmp_path, path)
    host.once("GET host-a/v1/uploads", meanwhile(host, host.complete))
    receipt = await host.client(tmp_path / "state").publish_file("videos", path)
    assert receipt.sequence == 1
    assert len(host.messages) == 1
    assert state_files(tmp_path) == []


async def test_what_an_interrupted_complete_made_wait_for_an_earlier_seqno_is_not_given_up(tmp_path: Path) -> None:
    host = FakeHost()
    path = make_file(tmp_path)
    await interrupt_at("/complete", host, tmp_path, path)
    host.once(
        "GET host-a/v1/uploads", meanwhile(host, lambda upload_id: setattr(host.uploads[upload_id], "state", "stored"))
    )
    receipt = await host.client(tmp_path / "state").publish_file("videos", path)
    assert receipt.state is State.STORED
    assert host.asked("DELETE") == []


async def test_a_put_that_lands_while_it_is_given_up_is_not_published_twice(tmp_path: Path) -> None:
    host = FakeHost()
    path = make_file(tmp_path, b"tiny")
    await interrupt_at("PUT store", host, tmp_path, path)
    host.once("DELETE", late_put(host, b"tiny"))
    receipt = await host.client(tmp_path / "state").publish_file("videos", path)
    assert receipt.sequence == 1
    assert len(host.messages) == 1


async def test_a_put_that_landed_before_its_url_expired_is_not_published_twice(tmp_path: Path) -> None:
    host = FakeHost()
    host.once("PUT store", EXPIRED)
    host.once("DELETE", late_put(host, b"tiny"))
    receipt = await host.client(tmp_path).publish_file("videos", make_file(tmp_path, b"tiny"))
    assert receipt.sequence == 1
    assert len(host.messages) == 1


async def test_an_old_upload_of_other_content_that_was_committed_is_not_taken_for_this_one(tmp_path: Path) -> None:
    host = FakeHost()
    path = make_file(tmp_path, b"old")
    await interrupt_at("GET host-a/v1/uploads", host, tmp_path, path)
    path.write_bytes(b"newer")
    receipt = await host.client(tmp_path / "state").publish_file("videos", path)
    assert (receipt.sequence, host.messages[1].data) == (2, b"newer")


async def test_nothing_is_begun_anew_while_nobody_knows_what_became_of_the_upload(tmp_path: Path) -> None:
    host = FakeHost()
    path = make_file(tmp_path, b"tiny")
    host.once("PUT store", EXPIRED)
    host.once("DELETE", api_error(500, "internal"))
    with pytest.raises(MtsError, match="Request has expired"):
        await host.client(tmp_path / "state").publish_file("videos", path)
    host.once("DELETE", late_put(host, b"tiny"))
    receipt = await host.client(tmp_path / "state").publish_file("videos", path)
    assert receipt.sequence == 1
    assert len(host.messages) == 1


async def test_a_store_that_stays_down_keeps_the_upload_for_a_later_call(tmp_path: Path) -> None:
    host = FakeHost()
    path = make_file(tmp_path)
    host.down.add("http://store")
    with pytest.raises(MtsError, match="cannot reach the object store") as caught:
        await host.client(tmp_path / "state", seconds=1).publish_file("videos", path)
    assert caught.value.retryable
    host.down.clear()
    await host.client(tmp_path / "state").publish_file("videos", path)
    assert len(host.uploads) == 1


async def test_without_resume_nothing_is_remembered(tmp_path: Path) -> None:
    host = FakeHost()
    await host.client(tmp_path / "state").publish_file("videos", make_file(tmp_path), resume=False)
    assert not (tmp_path / "state").exists()


async def test_published_twice_on_purpose_is_two_messages(tmp_path: Path) -> None:
    host = FakeHost()
    client = host.client(tmp_path)
    path = make_file(tmp_path)
    sequences = [(await client.publish_file("videos", path)).sequence for _ in range(2)]
    assert sequences == [1, 2]


async def test_two_processes_with_the_same_file_do_not_share_an_upload(tmp_path: Path) -> None:
    host = FakeHost()
    path = make_file(tmp_path)
    await interrupt_after_first_part(host, tmp_path, path)
    with state_files(tmp_path)[0].open("rb") as file:  # as the other process does while it runs
        fcntl.flock(file, fcntl.LOCK_EX)
        await host.client(tmp_path / "state").publish_file("videos", path)
    assert [upload.state for upload in host.uploads.values()] == ["open", "committed"]


async def test_a_damaged_state_file_is_ignored(tmp_path: Path) -> None:
    host = FakeHost()
    path = make_file(tmp_path)
    await interrupt_after_first_part(host, tmp_path, path)
    state_files(tmp_path)[0].write_text("{broken")
    receipt = await host.client(tmp_path / "state").publish_file("videos", path)
    assert receipt.sequence == 1


async def test_a_state_directory_that_cannot_be_made_is_no_obstacle(tmp_path: Path) -> None:
    host = FakeHost()
    (tmp_path / "file").write_text("not a directory")
    receipt = await host.client(tmp_path / "file" / "state").publish_file("videos", make_file(tmp_path))
    assert receipt.sequence == 1


def test_state_is_private_and_old_state_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    old = folder / "old.mts-upload.json"
    old.write_text("{}")
    os.utime(old, (0, 0))
    with ResumeSlot(folder, "a", "b") as slot:
        assert slot.owned
        (mine,) = folder.glob("*.json")
        assert mine.stat().st_mode & 0o777 == 0o600
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("kind", ["missing", "directory", "device"])
async def test_what_is_not_a_file_is_refused_before_anything_is_sent(tmp_path: Path, kind: str) -> None:
    host = FakeHost()
    path = {"missing": tmp_path / "nothing", "directory": tmp_path, "device": Path("/dev/null")}[kind]
    with pytest.raises(MtsError, match=r"No such file|is a directory|not a regular file"):
        await host.client(tmp_path).publish_file("videos", path)
    assert host.log == []


async def test_publishing_without_resume_touches_no_file_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    theirs = old_json(tmp_path)
    await FakeHost().client(tmp_path / "state").publish_file("videos", make_file(tmp_path), resume=False)
    assert files_in(tmp_path) == ["film.mp4", theirs.name]


async def test_a_state_directory_may_hold_files_of_others(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    theirs = old_json(tmp_path / "state")
    await FakeHost().client(tmp_path / "state").publish_file("videos", make_file(tmp_path))
    assert state_files(tmp_path) == [theirs]


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def old_json(folder: Path) -> Path:
    path = folder / "package.json"
    path.write_text("{}")
    os.utime(path, (0, 0))
    return path
