"""Pins: contents that shall be kept, by whom, in how many copies and for how long."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from minitoolstream.domain.checks import check_text
from minitoolstream.domain.cid import Cid, read_binary
from minitoolstream.domain.errors import MtsError, bad_request, not_found
from minitoolstream.domain.limits import JSON_SAFE_INTEGER
from minitoolstream.domain.placement import MAX_ZONES

STATUSES = ("queued", "pinning", "pinned", "failed", "unpinning")
QUEUED, PINNING, PINNED, FAILED, UNPINNING = range(len(STATUSES))
SHOWN = STATUSES[:UNPINNING]
"""What is being unpinned is not seen any more."""
PIN_TYPES = ("direct", "recursive", "indirect")
TRIES_BEFORE_FAILED = 3
NOBODY = "-"
"""The owner of what only messages hold."""
MAX_NAME, MAX_TAGS, MAX_TAG, MAX_METADATA, MAX_METADATA_TEXT = 255, 64, 128, 64, 2048
MAX_BATCH = 100_000
RESERVED = "mts."
"""Names of metadata that are ours begin with it."""
ZONES = "mts.zones"
"""What all who hold it need together."""
OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}\Z")
_OPERATION = re.compile(r"[\x21-\x7e]{1,200}\Z")
_ZONE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_HOUR = timedelta(hours=1)
_SOONEST_END = timedelta(seconds=60)
"""The entry that ends a pin is written before the pin: it must not be met in between."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody asks of a pin; None leaves it as it is, or at its default."""

    rf: int | None = None
    name: str | None = None
    tags: frozenset[str] | None = None
    metadata: Mapping[str, str] | None = None
    zones: frozenset[str] | None = None
    priority: int | None = None
    expires_at: datetime | None = None
    keep: bool = False
    """It does not expire (any more)."""
    source: str | None = None
    """Where its bytes are in the messages' bucket: first byte, size, object."""
    message: int | None = None
    """The message of which it was made."""


@dataclass(frozen=True, slots=True)
class Pin:
    """`rf` is what all who hold it need together; `own_rf` what its owner asked for. `status` is `queued` or
    `unpinning`: what became of it, `status_of` tells."""

    cid: Cid
    owner: str
    rf: int
    status: int
    version: int | None
    created_at: datetime
    updated_at: datetime
    pin_type: int = 0
    tags: frozenset[str] = frozenset()
    expires_at: datetime | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    size: int | None = None
    priority: int = 0

    @property
    def key(self) -> tuple[int, bytes]:
        return self.cid.key

    @property
    def name(self) -> str | None:
        return self.metadata.get("mts.name")

    @property
    def zones(self) -> frozenset[str]:
        return _split(self.metadata.get(ZONES, ""))

    @property
    def source(self) -> tuple[int, int, str] | None:
        """First byte, size and object of its bytes in the messages' bucket, as long as they are there."""
        first, _, rest = self.metadata.get("mts.source", "").partition(" ")
        size, _, name = rest.partition(" ")
        return (int(first), int(size), name) if name else None

    @property
    def message(self) -> int | None:
        """The sequence of the message of which it was made: its bytes may have moved since."""
        return int(self.metadata["mts.message"]) if "mts.message" in self.metadata else None

    @property
    def own_rf(self) -> int:
        return int(self.metadata.get("mts.rf", self.rf))

    @property
    def own_zones(self) -> frozenset[str]:
        return _split(self.metadata.get("mts.own_zones", ""))

    @property
    def own_metadata(self) -> dict[str, str]:
        return {name: value for name, value in self.metadata.items() if not name.startswith(RESERVED)}

    @property
    def ended(self) -> bool:
        return self.status == UNPINNING

    def row(self) -> dict[str, Any]:
        return {
            **self.cid.columns,
            "pin_type": self.pin_type,
            "rf": self.rf,
            "owner": self.owner,
            "tags": self.tags,
            "ttl": self.expires_at,
            "metadata": dict(self.metadata),
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "size": self.size,
            "status": self.status,
            "version": self.version,
            "checksum": self.cid.sha256,
            "priority": self.priority,
        }


def pin_of(row: Mapping[str, Any]) -> Pin:
    """Rows of version 1.0.0 have neither version nor priority."""
    return Pin(
        cid=read_binary(row["cid_bin"]),
        owner=row["owner"] or NOBODY,
        rf=row["rf"] or 1,
        status=row["status"] or QUEUED,
        version=row["version"],
        created_at=row["created_at"],
        updated_at=row["updated_at"] or row["created_at"],
        pin_type=row["pin_type"] or 0,
        tags=row["tags"],
        expires_at=row["ttl"],
        metadata=row["metadata"],
        size=row["size"],
        priority=row["priority"] or 0,
    )


def status_of(pin: Pin, placement: Mapping[str, Any]) -> int:
    """The pin's row says what its holders want, the placement what there is."""
    if pin.ended:
        return UNPINNING
    desired, actual = placement.get("desired", frozenset()), placement.get("actual", frozenset())
    if desired <= actual and len(desired) >= pin.rf:
        return PINNED
    if (placement.get("reconcile_count") or 0) >= TRIES_BEFORE_FAILED:
        return FAILED
    # What is wanted is in progress from the beginning: it is under way when somebody has looked at it since.
    begun = desired & placement.get("in_progress", frozenset()) and placement.get("last_reconcile")
    return PINNING if actual or begun else QUEUED


def next_version(version: int | None) -> int:
    return (version or 0) + 1


def ttl_bucket(moment: datetime) -> datetime:
    """The hour in which a pin expires."""
    return moment.replace(minute=0, second=0, microsecond=0)


def buckets_between(first: datetime, last: datetime) -> list[datetime]:
    """Every hour from that of `first` to that of `last`."""
    at, found = ttl_bucket(first), []
    while at <= last:
        found.append(at)
        at += _HOUR
    return found


def day_of(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d")


def check_wish(wish: Wish, now: datetime) -> Wish:
    if wish.name is not None and len(check_text(wish.name, "name")) > MAX_NAME:
        raise bad_request(f"name has more than {MAX_NAME} characters", field="name")
    if wish.tags is not None:
        _check_tags(wish.tags)
    if wish.metadata is not None:
        _check_metadata(wish.metadata)
    if wish.zones is not None:
        check_zones(wish.zones)
    if wish.priority is not None and not -128 <= wish.priority <= 127:
        raise bad_request("priority must be from -128 to 127", field="priority")
    if wish.expires_at is not None and wish.expires_at - now < _SOONEST_END:
        raise bad_request("expires_at lies in the past, or less than a minute ahead", field="expires_at")
    return wish


def _check_tags(tags: Collection[str]) -> None:
    if len(tags) > MAX_TAGS or any(not 0 < len(check_text(tag, "tags")) <= MAX_TAG for tag in tags):
        raise bad_request(f"tags: at most {MAX_TAGS}, each of 1 to {MAX_TAG} characters", field="tags")


def _check_metadata(metadata: Mapping[str, str]) -> None:
    pairs = [(check_text(name, "metadata"), check_text(value, "metadata")) for name, value in metadata.items()]
    too_long = any(len(name) > MAX_TAG or len(value) > MAX_METADATA_TEXT for name, value in pairs)
    if len(pairs) > MAX_METADATA or too_long:
        limits = f"at most {MAX_METADATA} names of {MAX_TAG} characters with values of {MAX_METADATA_TEXT}"
        raise bad_request(f"metadata: {limits}", field="metadata")
    if any(not name or name.startswith(RESERVED) for name, _ in pairs):
        raise bad_request(f"metadata: names are not empty and do not begin with {RESERVED}", field="metadata")


def check_zones(zones: Collection[str], field: str = "zones") -> frozenset[str]:
    if len(zones) > MAX_ZONES or any(not _ZONE.match(zone) for zone in zones):
        raise bad_request(f"{field}: at most {MAX_ZONES} names of letters, digits, . _ -", field=field)
    return frozenset(zones)


def check_owner_name(owner: str) -> str:
    if not OWNER.match(owner):
        raise bad_request("owner: 1 to 100 letters, digits and . _ @ -", field="owner")
    return owner


def check_operation(operation_id: str | None) -> str | None:
    if operation_id is not None and not _OPERATION.match(operation_id):
        raise bad_request("operation_id must be 1 to 200 visible ASCII characters", field="operation_id")
    return operation_id


def check_version(version: int | None) -> int | None:
    if version is not None and not 1 <= version <= JSON_SAFE_INTEGER:
        raise bad_request("version is a whole number from 1 on", field="version")
    return version


def no_such_pin(cid: Cid) -> MtsError:
    return not_found(f"{cid} is not pinned", cid=cid.text)


def stale(pin: Pin, version: int) -> MtsError:
    """The version that a caller knows is not the current one."""
    return MtsError(
        "version_conflict",
        f"the pin has version {pin.version}, not {version}: read it again, then change it",
        {"version": pin.version},
    )


def _split(text: str) -> frozenset[str]:
    return frozenset(part for part in text.split(",") if part)
