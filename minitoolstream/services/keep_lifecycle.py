"""The bucket's lifecycle as it should be (rule 26): never a current object by age."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from minitoolstream.domain.lifecycle import (
    BucketState,
    LifecycleRule,
    dangerous,
    in_step,
    merged,
    same,
    wanted_rules,
)
from minitoolstream.services.core import Core

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """`dangerous` are rules of others that would delete payloads which messages still need."""

    rules: list[LifecycleRule]
    in_step: bool
    changed: bool
    bucket: BucketState
    dangerous: list[LifecycleRule]


async def get_lifecycle(core: Core) -> Lifecycle:
    """The rules as they are, and whether ours are as they should be."""
    current = await core.bucket.lifecycle()
    wanted = wanted_rules((await core.retention.status()).channels)
    return Lifecycle(current, in_step(current, wanted), False, await core.bucket.state(), dangerous(current))


async def apply_lifecycle(core: Core) -> Lifecycle:
    """Ours as they should be; those of others stay, and are warned about where they are dangerous."""
    current = await core.bucket.lifecycle()
    wanted = wanted_rules((await core.retention.status()).channels)
    changed = not in_step(current, wanted)
    if not same(current, wanted):
        await core.bucket.set_lifecycle(merged(current, wanted))
        current = await core.bucket.lifecycle()
    threats = dangerous(current)
    for rule in threats:
        _log.warning("the bucket's lifecycle rule `%s` deletes payloads that messages still need: remove it", rule.id)
    return Lifecycle(current, in_step(current, wanted), changed, await core.bucket.state(), threats)
