"""Subject names and the object keys built from them."""

from __future__ import annotations

import re
import secrets

from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.keys import PACK_PREFIX, PAYLOAD_PREFIX
from minitoolstream.domain.limits import MAX_SUBJECT_LENGTH

DEAD_LETTERS = ".dlq"
"""How the name of a dead-letter subject ends: every subject has one."""
SUBJECT_PATTERN = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_SUBJECT_LENGTH - 1}}}(\{DEAD_LETTERS})?"
UPLOAD_ID_PATTERN = "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_NAME = re.compile(rf"{SUBJECT_PATTERN}\Z")
UPLOAD_ID = re.compile(rf"{UPLOAD_ID_PATTERN}\Z")
_FIXED_BITS = 0xF << 76 | 0b11 << 62
_VERSION_AND_VARIANT = 7 << 76 | 0b10 << 62


def check_subject(name: str) -> str:
    """The name itself, or an error that says what a subject may look like."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise bad_request(
            f"subject {str(name)[:80]!r} is not valid: use 1 to {MAX_SUBJECT_LENGTH} of A-Z a-z 0-9 . _ -, "
            "starting with a letter or digit",
            field="subject",
        )
    return name


def check_upload_id(upload_id: str) -> str:
    if not UPLOAD_ID.match(upload_id):
        raise bad_request(f"{upload_id[:80]!r} is not an upload id (a lower-case UUID of version 7)", field="id")
    return upload_id


def upload_id_of(object_name: str) -> str | None:
    """The upload a payload key belongs to; None for a key that is not ours (rule 6)."""
    parts = object_name.split("/")
    if len(parts) != 4 or f"{parts[0]}/" != PAYLOAD_PREFIX or not parts[2].isdigit():
        return None
    if not _NAME.match(parts[1]) or not UPLOAD_ID.match(parts[3]):
        return None
    return parts[3]


def new_id(unix_ms: int) -> str:
    """A UUIDv7: ids made later sort later, which the reconciler's walk relies on."""
    noise = int.from_bytes(secrets.token_bytes(10)) & ~_FIXED_BITS
    value = (unix_ms & (1 << 48) - 1) << 80 | noise | _VERSION_AND_VARIANT
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def pack_name(pack_id: str) -> str:
    return PACK_PREFIX + pack_id


def pack_id_of(object_name: str) -> str | None:
    """The id of a pack; None for a key that is not one."""
    pack_id = object_name.removeprefix(PACK_PREFIX)
    return pack_id if pack_id != object_name and UPLOAD_ID.match(pack_id) else None
