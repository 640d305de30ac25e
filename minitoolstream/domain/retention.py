"""How long messages stay, what a sweep did, and who holds back what. The shapes on the wire too."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from minitoolstream.domain.limits import MAX_TTL_SECONDS

MAX_CLOCK_DRIFT_SECONDS = 300
"""Nothing goes by the clock while Tarantool's and the object store's are further apart (rule 27)."""

_Ttl = Annotated[int, Meta(ge=1, le=MAX_TTL_SECONDS)]
_Pause = Annotated[float, Meta(ge=0.01, le=604_800)]


class TtlChanges(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What holds for all subjects that set nothing themselves; what is left out stays as it is. `channels` maps
    subjects to seconds, and replaces those there were."""

    enabled: bool | UnsetType = UNSET
    default_ttl: _Ttl | UnsetType = UNSET
    check_interval: _Pause | UnsetType = UNSET
    channels: dict[str, _Ttl] | UnsetType = UNSET


class Hold(msgspec.Struct):
    """Messages that had their time and stay, because an important durable has not acked them."""

    subject: str
    durable: str
    messages: int
    bytes: int
    position: int | str
    oldest_at: int
    age: int
    estimated: bool = False


class Retention(msgspec.Struct, omit_defaults=True):
    """What expires and when; `holds`, the largest first; how deep the trash is, when its next object is due, and by how
    many seconds a payload outlives its message. `drift_ms`: Tarantool's clock before the object store's."""

    enabled: bool
    default_ttl: int
    check_interval: float
    channels: dict[str, int]
    fiber_running: bool
    clocks_agree: bool
    holds: list[Hold]
    trash: int
    trash_grace: int
    time: int
    trash_due_at: int | None = None
    last_round_at: int | None = None
    drift_ms: int | None = None


class SweepStep(msgspec.Struct):
    """One transaction of a round over all subjects; `more` says that the round is not at its end."""

    messages: int
    rows: int
    bytes: int
    subjects: int
    more: bool
    clocks_differ: bool


class Swept(msgspec.Struct):
    """What one sweep did: messages that expired, in how many extents, and objects deleted from the bucket. `finished`:
    all subjects were looked at, and nothing that is due is left in the trash."""

    messages: int = 0
    extents: int = 0
    bytes: int = 0
    objects_deleted: int = 0
    clocks_differ: bool = False
    finished: bool = False

    def counts(self) -> dict[str, int]:
        return {
            "messages": self.messages,
            "extents": self.extents,
            "bytes": self.bytes,
            "objects_deleted": self.objects_deleted,
        }
