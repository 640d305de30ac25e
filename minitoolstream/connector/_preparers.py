"""Messages from what programs have at hand: bytes, text, files, images, objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from minitoolstream.client._files import guess_content_type
from minitoolstream.client._source import FileSource
from minitoolstream.connector._types import Prepared
from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE
from minitoolstream.pb.names import CONTENT_TYPE, DATA_SIZE

_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
    b"II*\x00": "image/tiff",
    b"MM\x00*": "image/tiff",
}


class MessagePreparer(Protocol):
    """Anything that can make a message of itself."""

    def prepare(self) -> Prepared: ...


def _prepared(subject: str, data: bytes | Path, size: int, headers: Mapping[str, str], content_type: str) -> Prepared:
    """Headers that the caller gave count."""
    given = next((value for name, value in headers.items() if name.lower() == CONTENT_TYPE), None)
    kept = {name: value for name, value in headers.items() if name.lower() != CONTENT_TYPE}
    return Prepared(subject, data, {**kept, DATA_SIZE: str(size)}, given or content_type)


@dataclass(frozen=True, slots=True)
class ByteMessagePreparer:
    """Bytes as they are."""

    subject: str
    data: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def prepare(self) -> Prepared:
        return _prepared(self.subject, bytes(self.data), len(self.data), self.headers, DEFAULT_CONTENT_TYPE)


@dataclass(frozen=True, slots=True)
class StringMessagePreparer:
    """A text, as UTF-8."""

    subject: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def prepare(self) -> Prepared:
        data = self.message.encode()
        return _prepared(self.subject, data, len(data), self.headers, "text/plain; charset=utf-8")


@dataclass(frozen=True, slots=True)
class FileMessagePreparer:
    """A file of any size; its type is guessed from its name."""

    subject: str
    file_path: str | os.PathLike[str]
    headers: Mapping[str, str] = field(default_factory=dict)

    def prepare(self) -> Prepared:
        return _prepared_file(self.subject, self.file_path, self.headers, guess_content_type)


@dataclass(frozen=True, slots=True)
class ImageMessagePreparer:
    """A picture; its type is seen in its first bytes."""

    subject: str
    file_path: str | os.PathLike[str]
    headers: Mapping[str, str] = field(default_factory=dict)

    def prepare(self) -> Prepared:
        return _prepared_file(self.subject, self.file_path, self.headers, _image_type)


def _prepared_file(
    subject: str, file: str | os.PathLike[str], headers: Mapping[str, str], type_of: Callable[[Path], str]
) -> Prepared:
    source = FileSource(Path(file))
    return _prepared(
        subject, source.path, source.size, {"file-name": source.path.name, **headers}, type_of(source.path)
    )


def _image_type(path: Path) -> str:
    with path.open("rb") as file:
        beginning = file.read(32)
    if beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP":
        return "image/webp"
    seen = next((kind for mark, kind in _IMAGES.items() if beginning.startswith(mark)), None)
    kind = seen or guess_content_type(path)
    if not kind.startswith("image/"):
        raise bad_request(f"{path} is no picture that we know: use FileMessagePreparer", path=str(path))
    return kind


@dataclass(frozen=True, slots=True)
class JSONMessagePreparer:
    """An object as JSON: what `json` takes, and dataclasses."""

    subject: str
    data: Any
    headers: Mapping[str, str] = field(default_factory=dict)

    def prepare(self) -> Prepared:
        value = asdict(self.data) if is_dataclass(self.data) and not isinstance(self.data, type) else self.data
        try:
            encoded = msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise bad_request(f"this cannot be JSON: {error}", field="data") from None
        return _prepared(self.subject, encoded, len(encoded), self.headers, "application/json")
