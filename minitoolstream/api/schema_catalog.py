"""The shapes of the content catalog's calls, and those of the IPFS Pinning Service API."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from minitoolstream.domain.pin import MAX_BATCH, MAX_NAME, PIN_TYPES, SHOWN
from minitoolstream.domain.placement import MAX_RF

CidText = Annotated[str, msgspec.Meta(min_length=1, max_length=128, examples=["bafkrei..."])]
Rf = Annotated[int, msgspec.Meta(ge=1, le=MAX_RF, description="how many copies")]
Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME)]
Priority = Annotated[int, msgspec.Meta(ge=-128, le=127)]
Version = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Status = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(SHOWN)})]
OperationId = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern="^[!-~]+$")]


class PinChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What is left out stays as it is. `expires_at`: unix seconds or ISO 8601; `keep`: it does not expire any more.
    `version`: change it only when this is the current one."""

    rf: Rf | None = None
    name: Name | None = None
    tags: list[str] | None = None
    metadata: dict[str, str] | None = None
    zones: list[str] | None = None
    priority: Priority | None = None
    expires_at: float | str | None = None
    keep: bool = False
    version: Version | None = None
    operation_id: OperationId | None = None


class PinRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Of `cid` and `sequence` one: a content, or with the host's token the payload of a message."""

    cid: CidText | None = None
    sequence: int | str | None = None
    rf: Rf | None = None
    name: Name | None = None
    tags: list[str] | None = None
    metadata: dict[str, str] | None = None
    zones: list[str] | None = None
    priority: Priority | None = None
    expires_at: float | str | None = None
    operation_id: OperationId | None = None


class Placed(msgspec.Struct):
    """Peers: where copies shall be (`desired`), are (`actual`) or could not be made (`failed`), and where one is still
    to be made or to go (`in_progress`)."""

    desired: list[str]
    actual: list[str]
    failed: list[str]
    in_progress: list[str]
    drift: bool
    attempts: int


class CopyFailure(msgspec.Struct):
    """Why a peer has no copy, and how often that was tried in a row."""

    peer_id: str
    reason: str
    attempts: int
    at: str


class PinShape(msgspec.Struct, omit_defaults=True, kw_only=True):
    """`failures` and `again_at`, when they are due again, are told of a single pin, not in lists."""

    cid: str
    owner: str
    status: Status
    rf: int
    version: int
    created_at: str
    updated_at: str
    placement: Placed
    name: str | None = None
    tags: list[str] = []
    metadata: dict[str, str] = {}
    zones: list[str] = []
    priority: int = 0
    size: int | None = None
    expires_at: str | None = None
    pin_type: Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(PIN_TYPES)})] = "direct"
    failures: list[CopyFailure] = []
    again_at: str | None = None


class Pins(msgspec.Struct, omit_defaults=True):
    """The newest first; with `next`, there are more: send it as `cursor`."""

    pins: list[PinShape]
    next: str | None = None


class Unpinned(msgspec.Struct):
    unpinned: bool = True


class PinEvent(msgspec.Struct, omit_defaults=True):
    at: str
    event: str
    actor: str
    details: dict[str, Any] = {}


class PinEvents(msgspec.Struct):
    events: list[PinEvent]


class BatchRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`pin` or `unpin` many; what holds for all of them is said once."""

    kind: Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["pin", "unpin"]})]
    cids: Annotated[list[CidText], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]
    rf: Rf | None = None
    tags: list[str] | None = None
    zones: list[str] | None = None
    operation_id: OperationId | None = None


class ContentsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`digests`: sha256 in hex by sequence, of what is stored."""

    subject: str
    digests: Annotated[dict[str, str], msgspec.Meta(min_length=1, max_length=1000)]


class Held(msgspec.Struct):
    held: int


class BatchShape(msgspec.Struct):
    """`state`: running, then done. `failed` of the `done` ones have an error."""

    batch_id: str
    kind: str
    state: str
    total: int
    done: int
    failed: int
    created_at: str
    updated_at: str


class BatchItem(msgspec.Struct, omit_defaults=True):
    position: int
    cid: str
    result: str | None = None
    error: str | None = None


class BatchItems(msgspec.Struct, omit_defaults=True):
    items: list[BatchItem]
    next: int | None = None


class PeerShape(msgspec.Struct, omit_defaults=True):
    """`state`: live, down, lost, or unknown before the first look; `since` when. `reason`: why it is not live, or
    takes nothing new until `full_until`."""

    peer_id: str
    zone: str
    weight: float
    state: str
    bytes: int
    full: bool = False
    since: str | None = None
    reason: str | None = None
    full_until: str | None = None


class Peers(msgspec.Struct):
    peers: list[PeerShape]


class CatalogStats(msgspec.Struct):
    """`prefixes`: how many pins are in each 256th of all prefixes, in their order."""

    pins: int
    copied: int
    removed: int
    copied_bytes: int
    prefixes: list[int]
    smallest_prefix: int
    largest_prefix: int
    peers: dict[str, int]


class CopiesSettled(msgspec.Struct):
    """`held` and `let_go` are messages of subjects that ask for copies."""

    looked_at: int
    copied: int
    removed: int
    failed: int
    ended: int
    bytes: int
    expired: int
    batched: int
    held: int
    let_go: int


class CheckRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`deep`: look for every copy at its peer, and there for those that no row names. `mend`: bring all of it back into
    step."""

    deep: bool = False
    mend: bool = False


class CheckFinding(msgspec.Struct, omit_defaults=True):
    kind: str
    cid: str
    about: str = ""


class Checked(msgspec.Struct):
    pins: int
    placements: int
    copies: int
    findings: int
    mended: int
    found: list[CheckFinding]


class IpfsPin(msgspec.Struct, omit_defaults=True):
    """Of the Pinning Service API. `origins` are not asked: contents come from peers and messages."""

    cid: CidText
    name: Name | None = None
    origins: list[str] | None = None
    meta: dict[str, str] | None = None


class IpfsPinStatus(msgspec.Struct):
    requestid: str
    status: Status
    created: str
    pin: IpfsPin
    delegates: list[str]
    info: dict[str, str] = {}


class IpfsPins(msgspec.Struct):
    """`count` is more than there are results when there is another page."""

    count: int
    results: list[IpfsPinStatus]
