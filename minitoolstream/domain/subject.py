"""Subject names and the object keys built from them."""

from __future__ import annotations

import re
import secrets

from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.limits import MAX_SUBJECT_LENGTH

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_SUBJECT_LENGTH - 1}}}\Z")
_UPLOAD_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
PAYLOAD_PREFIX = "m/"
PACK_PREFIX = "_mts/packs/"


def check_subject(name: str) -> str:
    """The name itself, or an error that says what a subject may look like."""
    if not _NAME.match(name):
        raise bad_request(
            f"subject {name[:80]!r} is not valid: use 1 to {MAX_SUBJECT_LENGTH} of A-Z a-z 0-9 . _ -, "
            "starting with a letter or digit",
            field="subject",
        )
    return name


def check_upload_id(upload_id: str) -> str:
    if not _UPLOAD_ID.match(upload_id):
        raise bad_request(f"{upload_id[:80]!r} is not an upload id (a lower-case UUID of version 7)", field="id")
    return upload_id


def upload_id_of(object_name: str) -> str | None:
    """The upload a payload key belongs to; None for a key that is not ours (rule 6)."""
    parts = object_name.split("/")
    if len(parts) != 4 or parts[0] != "m" or not parts[2].isdigit():
        return None
    if not _NAME.match(parts[1]) or not _UPLOAD_ID.match(parts[3]):
        return None
    return parts[3]


def new_id(unix_ms: int) -> str:
    """A UUIDv7: ids made later sort later, which the reconciler's walk relies on."""
    value = (unix_ms & (1 << 48) - 1) << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62)
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def pack_name(pack_id: str) -> str:
    return PACK_PREFIX + pack_id
