"""What may be set of a subject, and what a subject is like: partitions, codecs, quotas, retention. The shapes on the
wire too."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import JSON_SAFE_INTEGER, MAX_PARTITIONS, MAX_TTL_SECONDS, TIB

CODECS = ("raw", "gzip", "zstd")
_MODES = ("disabled", "up", "paused")

_Amount = Annotated[int, Meta(ge=1, le=JSON_SAFE_INTEGER)]
_Rate = Annotated[int, Meta(ge=1, le=1_000_000_000, description="messages a second")]
_Partitions = Annotated[int, Meta(ge=1, le=MAX_PARTITIONS)]
_Speed = Annotated[int, Meta(ge=1, le=TIB, description="bytes a second that a partition is made for")]
_Percent = Annotated[int, Meta(ge=1, le=100, description="per cent of `write_speed` that are too much")]
_Seconds = Annotated[int, Meta(ge=1, le=86_400, description="how long it must have been too much")]
_Ttl = Annotated[int, Meta(ge=1, le=MAX_TTL_SECONDS, description="seconds that messages stay")]
_Mode = Annotated[str, Meta(extra_json_schema={"enum": list(_MODES)})]
_Codec = Annotated[str, Meta(extra_json_schema={"enum": list(CODECS)})]


class QuotaChanges(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What the subject may hold, and take in a second; null lifts a limit."""

    messages: _Amount | UnsetType | None = UNSET
    bytes: _Amount | UnsetType | None = UNSET
    rate: _Rate | UnsetType | None = UNSET


class AutopartitioningChanges(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """When a partition splits in two. Once it was `up` it can be paused, not disabled."""

    mode: _Mode | UnsetType | None = UNSET
    max_partitions: _Partitions | UnsetType | None = UNSET
    write_speed: _Speed | UnsetType | None = UNSET
    utilization: _Percent | UnsetType | None = UNSET
    stabilization: _Seconds | UnsetType | None = UNSET


class Copies(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How many copies of payloads the content catalog keeps, and in which zones; without, in any."""

    rf: Annotated[int, Meta(ge=1, le=16)]
    zones: Annotated[list[str], Meta(max_length=16)] | None = None


class SubjectChanges(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Settings to make or change a subject with. What is left out stays as it is, null is the default again;
    the number of active partitions never falls."""

    partitions: _Partitions | UnsetType = UNSET
    codecs: Annotated[list[_Codec], Meta(min_length=1)] | UnsetType | None = UNSET
    quota: QuotaChanges | UnsetType | None = UNSET
    autopartitioning: AutopartitioningChanges | UnsetType | None = UNSET
    ttl: _Ttl | UnsetType | None = UNSET
    max_messages: _Amount | UnsetType | None = UNSET
    max_bytes: _Amount | UnsetType | None = UNSET
    copies: Copies | UnsetType | None = UNSET


class Quota(msgspec.Struct, omit_defaults=True):
    """The limits that are set."""

    messages: int | None = None
    bytes: int | None = None
    rate: int | None = None


class Autopartitioning(msgspec.Struct):
    mode: _Mode
    max_partitions: int
    write_speed: int
    utilization: int
    stabilization: int


class SubjectSettings(msgspec.Struct, omit_defaults=True):
    """Of `ttl`, `max_messages` and `max_bytes` those that are set: the oldest messages go."""

    codecs: list[_Codec]
    quota: Quota
    autopartitioning: Autopartitioning
    ttl: int | None = None
    max_messages: int | None = None
    max_bytes: int | None = None
    copies: Copies | None = None


class Partition(msgspec.Struct, omit_defaults=True):
    """An ordering lane. One that has split is not active: it is read to its end, then its children are."""

    partition: int
    active: bool
    messages: int
    bytes: int
    next_offset: int | str
    hash_from: int
    hash_to: int
    parent: int | None = None
    children: list[int] | None = None
    split_at: int | str | None = None


class Used(msgspec.Struct):
    """What counts against the quotas: what is stored, and what open tickets have reserved."""

    messages: int
    bytes: int


class Subject(msgspec.Struct, omit_defaults=True):
    """`expires_after`: seconds that its messages stay, by its own setting or the default; absent when they do not
    expire by time."""

    subject: str
    incarnation: int
    created_at: int
    messages: int
    bytes: int
    latest_sequence: int | str
    consumers: int
    settings: SubjectSettings
    used: Used
    partitions: list[Partition]
    expires_after: int | None = None


def check_codec(codec: str | None) -> str | None:
    """None for a payload as it is: `raw` is what a message without a codec has."""
    if codec is None or codec == "raw":
        return None
    if codec not in CODECS:
        raise MtsError(
            "codec_not_allowed",
            f"codec {codec[:40]!r} is not allowed: use one of {', '.join(CODECS)}",
            {"allowed": list(CODECS)},
        )
    return codec
