"""Backups: a snapshot of the metadata store in pieces, and a manifest that is written last and makes it one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

import msgspec

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.subject import UPLOAD_ID_PATTERN

MANIFEST = "manifest.json"
VERSION = 1
_ID = re.compile(rf"{UPLOAD_ID_PATTERN}\Z")
_SNAPSHOT = re.compile(r"\d{20}\.snap\Z")


class Piece(msgspec.Struct, frozen=True):
    name: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """`journal` is the last segment when the backup ended: what came later is in the segments behind it. `upto` is the
    last sequence that the backup and its journal hold."""

    version: int
    id: str
    at: int
    snapshot: str
    size: int
    journal: int
    upto: int
    pieces: list[Piece]


def piece_of(snapshot: str, number: int, content: bytes) -> Piece:
    return Piece(f"{snapshot}.{number:05}", len(content), hashlib.sha256(content).hexdigest())


def check_piece(backup: str, piece: Piece, content: bytes) -> bytes:
    """The content, or MtsError `checksum_mismatch`."""
    if len(content) != piece.size or hashlib.sha256(content).hexdigest() != piece.sha256:
        raise MtsError(
            "checksum_mismatch",
            f"the backup {backup} is damaged: {piece.name} is not what was written",
            {"hint": "`mts backup ls` shows the others; `mts rebuild` needs none"},
        )
    return content


def read_manifest(backup: str, content: bytes) -> Manifest:
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        raise MtsError("checksum_mismatch", f"the manifest of backup {backup} is damaged: {error}") from None
    if manifest.version != VERSION or not _SNAPSHOT.match(manifest.snapshot):
        raise MtsError("bad_request", f"backup {backup} was made by another version of MiniToolStream")
    return manifest


def made_at_ms(backup: str) -> int:
    """When a backup was begun, by its id."""
    return int(backup[:8] + backup[9:13], 16)


def ids_of(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Backups that are whole, oldest first, and those that were begun and never finished."""
    files = [name.partition("/") for name in names]
    begun = {backup for backup, _, _ in files if _ID.match(backup)}
    whole = {backup for backup, _, file in files if backup in begun and file == MANIFEST}
    return sorted(whole), sorted(begun - whole)
