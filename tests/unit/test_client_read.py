"""Reading pages and payloads, downloading to disk."""

from __future__ import annotations

import fcntl
import io
from pathlib import Path

import pytest

from minitoolstream.client import AsyncClient, Item, Message, MtsError
from minitoolstream.client import _read as reading
from tests.unit.fake_host import FakeHost, answer, break_before

EXPIRED = answer(403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
FILM = bytes(range(256)) * 10


async def filled(count: int = 5) -> tuple[FakeHost, AsyncClient]:
    host = FakeHost()
    client = host.client()
    await client.publish_batch("orders", [f"message {n}".encode() for n in range(1, count + 1)])
    return host, client


async def published(tmp_path: Path, data: bytes = FILM) -> tuple[FakeHost, AsyncClient]:
    host = FakeHost(part_size=1 << 20)
    client = host.client()
    (tmp_path / "source").write_bytes(data)
    await client.publish_file("videos", tmp_path / "source", resume=False)
    host.log.clear()
    return host, client


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def parts(folder: Path) -> list[Path]:
    return list(folder.glob("*.part"))


async def test_a_page_says_where_to_go_on() -> None:
    _, client = await filled()
    page = await client.fetch("orders", limit=2)
    assert [message.sequence for message in page.messages] == [1, 2]
    assert (page.next_sequence, page.latest_sequence) == (3, 5)


@pytest.mark.parametrize(("start", "expected"), [("first", [1, 2, 3]), ("last", [3]), ("new", []), (2, [2, 3])])
async def test_start_may_be_a_word(start: int, expected: list[int]) -> None:
    _, client = await filled(3)
    page = await client.fetch("orders", start=start)
    assert [message.sequence for message in page.messages] == expected


async def test_inline_brings_the_payload_along() -> None:
    _, client = await filled(1)
    message = (await client.fetch("orders", inline=True)).messages[0]
    assert message.data == b"message 1"
    assert await client.payload(message) == b"message 1"


async def test_messages_walks_all_pages_and_ends_at_what_was_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_FETCH_LIMIT", 2)
    host, client = await filled(5)
    seen = []
    async for message in client.messages("orders"):
        seen.append(message.sequence)
        if message.sequence == 1:
            await client.publish("orders", b"a late one")
    assert seen == [1, 2, 3, 4, 5]
    assert len(host.asked("GET host-a")) == 3


async def test_messages_of_an_empty_subject_are_none() -> None:
    assert [message async for message in FakeHost().client().messages("nothing")] == []


async def test_read_fetches_a_pack_once_and_gives_every_payload() -> None:
    host, client = await filled(5)
    await client.publish("orders", b"alone")
    messages = [message async for message in client.read("orders")]
    assert [message.sequence for message in messages] == [1, 2, 3, 4, 5, 6]
    assert [message.data for message in messages][3:] == [b"message 4", b"message 5", b"alone"]
    assert len(host.asked("GET store")) == 2


@pytest.mark.parametrize(("start", "limit", "expected"), [(3, None, [3, 4, 5]), ("last", None, [5]), (2, 2, [2, 3])])
async def test_read_cuts_a_pack_at_start_and_limit(start: int, limit: int | None, expected: list[int]) -> None:
    _, client = await filled(5)
    messages = [message.sequence async for message in client.read("orders", start=start, limit=limit)]
    assert messages == expected


async def test_read_refuses_a_damaged_pack() -> None:
    host, client = await filled(3)
    await client.fetch("orders")
    original = host._get_object

    def damaged(name: str, headers: dict[str, str]) -> object:
        response = original(name, headers)
        response.body = response.body[:-1] + b"?"
        return response

    host._get_object = damaged  # type: ignore[method-assign,assignment]
    with pytest.raises(MtsError, match="damaged") as caught:
        [message async for message in client.read("orders")]
    assert caught.value.code == "checksum_mismatch"


async def test_read_leaves_large_payloads_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LARGEST_READ", 3)
    host = FakeHost()
    client = host.client()
    await client.publish("orders", b"large")
    (message,) = [message async for message in client.read("orders")]
    assert message.data is None
    assert await client.payload(message) == b"large"


async def test_read_signs_an_expired_url_again() -> None:
    host, client = await filled(3)
    host.once("GET store/pack-3", EXPIRED)
    assert len([message async for message in client.read("orders")]) == 3


async def test_leaving_a_read_early_cancels_what_was_fetched_ahead() -> None:
    host = FakeHost()
    client = host.client()
    for n in range(20):
        await client.publish("orders", str(n))
    async for message in client.read("orders"):
        assert message.data == b"0"
        break
    assert len(host.asked("GET store")) <= 5


async def test_read_gives_each_message_of_a_pack_its_own_headers() -> None:
    host = FakeHost()
    client = host.client()
    await client.publish_batch("orders", [b"a", Item(b"b", headers={"n": "2"})])
    assert [message.headers async for message in client.read("orders")] == [{}, {"n": "2"}]


async def test_a_payload_is_repeated_checked_and_its_url_renewed(tmp_path: Path) -> None:
    host, client = await published(tmp_path)
    message = await client.get(1)
    host.once("GET store", break_before, answer(503), EXPIRED)
    assert await client.payload(message) == FILM
    host.messages[0].meta["sha256"] = "0" * 64
    with pytest.raises(MtsError, match="SHA-256"):
        await client.payload(1)


async def test_a_message_that_is_not_there_is_not_found() -> None:
    with pytest.raises(MtsError) as caught:
        await FakeHost().client().get(7)
    assert caught.value.code == "not_found"


async def test_an_unverified_message_comes_without_data_which_is_not_the_same_as_empty(tmp_path: Path) -> None:
    host = FakeHost()
    client = host.client()
    await client.publish("orders", b"written by another hand")
    host.unverified.add(1)
    (message,) = [message async for message in client.read("orders")]
    assert (message.unverified, message.size, message.data) == (True, 0, None)
    assert host.asked("GET store") == []
    assert await client.payload(message) == b"written by another hand"
    await client.download(message, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"written by another hand"


async def test_an_unverified_message_whose_payload_never_came_is_not_an_empty_one(tmp_path: Path) -> None:
    host = FakeHost()
    client = host.client()
    await client.publish("orders", b"")
    host.unverified.add(1)
    missing = answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
    host.once("GET store", missing, missing)
    with pytest.raises(MtsError) as caught:
        await client.payload(1)
    assert caught.value.code == "payload_missing"
    with pytest.raises(MtsError, match="no longer has it"):
        await client.download(1, tmp_path / "copy")
    assert names(tmp_path) == []


# -- downloads


async def test_a_download_appears_whole_under_its_name(tmp_path: Path) -> None:
    _, client = await published(tmp_path)
    seen: list[tuple[int, int]] = []
    message = await client.download(1, tmp_path / "film", progress=lambda *done: seen.append(done))
    assert (tmp_path / "film").read_bytes() == FILM
    assert message.sequence == 1
    assert seen[-1] == (len(FILM), len(FILM))
    assert parts(tmp_path) == []


async def test_a_download_into_an_open_file(tmp_path: Path) -> None:
    host, client = await published(tmp_path)
    host.once("GET store", answer(200, FILM, cut="100"))
    target = io.BytesIO()
    await client.download(1, target)
    assert target.getvalue() == FILM


async def test_a_broken_download_goes_on_by_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host, client = await published(tmp_path)
    host.once("GET store", answer(200, FILM, cut="100"))
    await client.download(1, tmp_path / "film")
    assert (tmp_path / "film").read_bytes() == FILM
    assert len(host.asked("GET store")) == 2


async def test_a_later_call_goes_on_with_the_part_file(tmp_path: Path) -> None:
    host, client = await published(tmp_path)
    impatient = host.client(seconds=0)
    host.once("GET store", answer(200, FILM, cut="1000"))
    with pytest.raises(MtsError, match="cannot reach the object store"):
        await impatient.download(1, tmp_path / "film")
    (part,) = parts(tmp_path)
    assert part.read_bytes() == FILM[:1000]
    assert not (tmp_path / "film").exists()
    seen: list[int] = []
    await client.download(1, tmp_path / "film", progress=lambda done, _: seen.append(done))
    assert (tmp_path / "film").read_bytes() == FILM
    assert seen[0] == 1000
    assert parts(tmp_path) == []


async def test_a_store_that_ignores_the_range_does_not_double_bytes(tmp_path: Path) -> None:
    host, client = await published(tmp_path)
    host.once("GET store", answer(200, FILM, cut="1000"), answer(200, FILM))
    await client.download(1, tmp_path / "film")
    assert (tmp_path / "film").read_bytes() == FILM


async def test_a_damaged_part_file_is_fetched_again_from_the_start(tmp_path: Path) -> None:
    host, client = await published(tmp_path)
    host.once("GET store", answer(200, FILM, cut="1000"))
    with pytest.raises(MtsError):
        await host.client(seconds=0).download(1, tmp_path / "film")
    parts(tmp_path)[0].write_bytes(b"?" * 1000)
    await client.download(1, tmp_path / "film")
    assert (tmp_path / "film").read_bytes() == FILM


async def test_what_is_left_of_another_message_is_not_taken_for_this_one(tmp_path: Path) -> None:
    host, client = await published(tmp_path)
    await client.publish("videos", b"another film, without a checksum")
    host.once("GET store/object-1", answer(200, FILM, cut="10"))
    with pytest.raises(MtsError):
        await host.client(seconds=0).download(1, tmp_path / "film")
    await client.download(2, tmp_path / "film")
    assert (tmp_path / "film").read_bytes() == b"another film, without a checksum"


async def test_a_wrong_checksum_leaves_no_file(tmp_path: Path) -> None:
    host, client = await published(tmp_path)
    host.messages[0].meta["sha256"] = "0" * 64
    with pytest.raises(MtsError) as caught:
        await client.download(1, tmp_path / "film")
    assert caught.value.code == "checksum_mismatch"
    assert not (tmp_path / "film").exists()
    assert parts(tmp_path) == []


async def test_a_payload_of_another_size_leaves_no_file(tmp_path: Path) -> None:
    host, client = await published(tmp_path)
    host.once("GET store", answer(200, FILM + b"more"))
    with pytest.raises(MtsError) as caught:
        await client.download(1, tmp_path / "film")
    assert caught.value.code == "size_mismatch"
    assert names(tmp_path) == ["source"]


async def test_a_payload_that_is_gone_leaves_no_file(tmp_path: Path) -> None:
    host, client = await published(tmp_path)
    host.once("GET store", answer(404, b"<Error><Code>NoSuchKey</Code></Error>"))
    with pytest.raises(MtsError) as caught:
        await client.download(1, tmp_path / "film")
    assert caught.value.code == "payload_missing"
    assert names(tmp_path) == ["source"]


async def test_an_expired_download_url_is_renewed(tmp_path: Path) -> None:
    host, client = await published(tmp_path)
    host.once("GET store", EXPIRED)
    await client.download(1, tmp_path / "film")
    assert (tmp_path / "film").read_bytes() == FILM


async def test_an_empty_payload_is_an_empty_file(tmp_path: Path) -> None:
    host, client = await published(tmp_path, b"")
    await client.download(1, tmp_path / "film")
    assert (tmp_path / "film").read_bytes() == b""
    assert host.asked("GET store") == []


async def test_a_packed_message_is_asked_for_with_its_signed_range(tmp_path: Path) -> None:
    host, client = await filled(1)
    host.objects["pack"] = b"headmessage 1tail"
    message = Message(1, "orders", 0, 0, 0, {}, 9, "text/plain", "pack", url="http://store/pack", range="bytes=4-12")
    await client.download(message, tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == b"message 1"


@pytest.mark.parametrize("target", ["", "missing/film"])
async def test_a_target_that_cannot_be_written_is_an_error(tmp_path: Path, target: str) -> None:
    _, client = await published(tmp_path)
    with pytest.raises(MtsError, match=r"is a directory|No such file"):
        await client.download(1, tmp_path / target)


async def test_two_downloads_into_one_file_do_not_mix(tmp_path: Path) -> None:
    host, client = await published(tmp_path)
    host.once("GET store", answer(200, FILM, cut="10"))
    with pytest.raises(MtsError):
        await host.client(seconds=0).download(1, tmp_path / "film")
    with parts(tmp_path)[0].open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(MtsError, match="another download"):
            await client.download(1, tmp_path / "film")
