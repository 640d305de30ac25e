"""A walk over extents, as Tarantool answers it."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec
import pytest

from minitoolstream.adapters.tarantool.store import TarantoolMetadata
from minitoolstream.config import load_settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.ports import NoMetrics

PLAIN = ["m/orders/1/2", "orders", 1000, 0, 0, 1, 4, None, None, None, "text/plain"]


class Answers:
    """In the place of a connection: a page for each call, and what was asked for while pages were looked at."""

    def __init__(self, *pages: list[Any]) -> None:
        self._pages = list(pages)
        self.asked: list[int] = []

    async def call(self, _name: str, _subject: str, start: int, *_: object) -> dict[str, Any]:
        self.asked.append(start)
        rows = self._pages.pop(0)
        last = rows[-1][0]
        following = last + 1 if self._pages else 100
        return {"rows": b64encode(msgspec.msgpack.encode(rows)).decode(), "next_sequence": following, "watermark": 99}


def store(answers: Answers) -> TarantoolMetadata:
    found = TarantoolMetadata(load_settings({"MTS_TARANTOOL_PASSWORD": "none"}), NoMetrics())
    found._tarantool = answers  # type: ignore[assignment]
    return found


async def test_the_next_page_is_asked_for_before_this_one_is_handed_over() -> None:
    answers = Answers([[1, {}, *PLAIN]], [[2, {}, *PLAIN]])
    asked = [list(answers.asked) async for _ in store(answers).walk_extents("orders", 1, 50)]
    assert asked == [[1, 2], [1, 2]]


async def test_text_that_is_not_utf8_is_a_clear_error() -> None:
    """As in rows from before it was refused."""

    class Damaged(Answers):
        async def call(self, _name: str, *_: object, **__: object) -> dict[str, Any]:
            rows = msgspec.msgpack.encode([[1, {"a": "??"}, *PLAIN]]).replace(b"??", b"\xff\xfe")
            return {"rows": b64encode(rows).decode(), "next_sequence": 100, "watermark": 99}

    with pytest.raises(MtsError, match="not UTF-8"):
        _ = [page async for page in store(Damaged()).walk_extents("orders", 1, 50)]


async def test_headers_that_are_no_texts_become_texts() -> None:
    answers = Answers([[1, {"n": 5, "flag": True, "text": "é"}, *PLAIN], [2, {}, *PLAIN]])
    (page,) = [page async for page in store(answers).walk_extents("orders", 1, 50)]
    assert page[0].headers == {"n": "5", "flag": "true", "text": "é"}
    assert [extent.sequence for extent in page] == [1, 2]
