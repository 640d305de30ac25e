"""What needs no server: preparers, builders, handlers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from minitoolstream.connector import (
    ByteMessagePreparer,
    FileMessagePreparer,
    ImageMessagePreparer,
    JSONMessagePreparer,
    MtsError,
    StringMessagePreparer,
    Subscriber,
)

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@dataclass
class Order:
    id: str
    amount: float


def test_each_preparer_knows_the_type_and_size_of_what_it_prepares(tmp_path: Path) -> None:
    picture, page = tmp_path / "picture.dat", tmp_path / "page.html"
    picture.write_bytes(PNG)
    page.write_text("<html>")
    prepared = [
        ByteMessagePreparer("s", b"abc").prepare(),
        StringMessagePreparer("s", "ü").prepare(),
        JSONMessagePreparer("s", Order("7", 1.5)).prepare(),
        FileMessagePreparer("s", page).prepare(),
        ImageMessagePreparer("s", picture).prepare(),
    ]
    assert [(one.content_type, one.headers["data-size"]) for one in prepared] == [
        ("application/octet-stream", "3"),
        ("text/plain; charset=utf-8", "2"),
        ("application/json", "23"),
        ("text/html", "6"),
        ("image/png", "28"),
    ]
    assert prepared[2].data == b'{"id":"7","amount":1.5}'
    assert prepared[4].headers["file-name"] == "picture.dat"


def test_a_type_that_the_caller_gives_counts() -> None:
    prepared = ByteMessagePreparer("s", b"{}", {"Content-Type": "application/json", "a": "b"}).prepare()
    assert prepared.content_type == "application/json"
    assert prepared.headers == {"a": "b", "data-size": "2"}


def test_what_cannot_be_prepared_is_refused_by_name(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no picture")
    for preparer in (
        FileMessagePreparer("s", tmp_path / "missing"),
        FileMessagePreparer("s", tmp_path),
        ImageMessagePreparer("s", text),
        JSONMessagePreparer("s", object()),
    ):
        with pytest.raises(MtsError):
            preparer.prepare()


def test_a_subscriber_is_started_once_and_with_handlers() -> None:
    subscriber = Subscriber("http://127.0.0.1:1", "d")
    with pytest.raises(MtsError, match="register a handler first"):
        subscriber.start()
    with pytest.raises(MtsError, match="neither"):
        subscriber.register_handler("s", "no handler")  # type: ignore[arg-type]
    subscriber.stop()
    with pytest.raises(MtsError, match="starts once"):
        subscriber.start()
