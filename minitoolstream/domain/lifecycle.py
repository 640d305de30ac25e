"""Which rules the bucket's lifecycle has, and which it should have.

Ours never delete a current object by age (rule 26): dead letters, important durables, a raised TTL and uploads that
wait would lose their payloads. They end multiparts that nobody finished, and remove what a versioned bucket keeps of
deleted objects. Their ids are those of the specification, so rules that it made before are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from minitoolstream.domain.keys import PAYLOAD_PREFIX, SYSTEM_PREFIX

ABORT_AFTER_DAYS = 8
"""Above the 7 days of the longest ticket: parts of an upload that may still go on must stay."""
NONCURRENT_DAYS = 1
"""What was deleted had its grace in the trash already; a day is the least that a lifecycle knows."""
_OURS = re.compile(r"default-ttl\Z|channel-[A-Za-z0-9][A-Za-z0-9._-]*-ttl\Z")
_LONGEST_ID = 255
_MOST_RULES = 1000


@dataclass(frozen=True, slots=True)
class LifecycleRule:
    """`raw` is the rule as the store gave it, kept for rules that are not ours."""

    id: str
    prefix: str
    abort_after_days: int | None = None
    noncurrent_days: int | None = None
    removes_markers: bool = False
    expires_current: bool = False
    enabled: bool = True
    raw: bytes = b""

    @property
    def ours(self) -> bool:
        return _OURS.match(self.id) is not None


@dataclass(frozen=True, slots=True)
class BucketState:
    """`versioning`: off, enabled or suspended. `object_lock`: whether versions of objects may be locked."""

    versioning: str
    object_lock: bool


class Rule(msgspec.Struct, omit_defaults=True):
    """A rule of the bucket's lifecycle. `ours` are those that `apply` writes. One that `expires_current` objects and
    reaches payloads is `dangerous`: it deletes what messages still need."""

    id: str
    prefix: str
    enabled: bool
    ours: bool
    abort_after_days: int | None = None
    noncurrent_days: int | None = None
    expires_current: bool = False
    dangerous: bool = False


class LifecycleAnswer(msgspec.Struct):
    """The bucket's rules; `in_step` when ours are as they should be, `changed` when this call made them so.
    `versioning` is off, enabled or suspended."""

    rules: list[Rule]
    in_step: bool
    changed: bool
    versioning: str
    object_lock: bool


def wanted_rules(channels: Iterable[str]) -> list[LifecycleRule]:
    """Of the whole bucket, and of each channel that has a time of its own."""
    rules = [_rule("default-ttl", "")]
    for name in sorted(channels):
        rule_id = f"channel-{name}-ttl"
        if len(rule_id) <= _LONGEST_ID and len(rules) < _MOST_RULES // 2:  # the others are covered by the first
            rules.append(_rule(rule_id, f"{PAYLOAD_PREFIX}{name}/"))
    return rules


def _rule(rule_id: str, prefix: str) -> LifecycleRule:
    return LifecycleRule(rule_id, prefix, ABORT_AFTER_DAYS, NONCURRENT_DAYS, removes_markers=True)


def merged(current: Sequence[LifecycleRule], wanted: Sequence[LifecycleRule]) -> list[LifecycleRule]:
    """Ours as wanted, and those of others as they are."""
    return [rule for rule in current if not rule.ours] + list(wanted)


def same(current: Sequence[LifecycleRule], wanted: Sequence[LifecycleRule]) -> bool:
    """Are our rules there to the letter?"""
    return in_step(current, wanted) and all(rule.abort_after_days is not None for rule in current if rule.ours)


def in_step(current: Sequence[LifecycleRule], wanted: Sequence[LifecycleRule]) -> bool:
    """Do our rules do what they should? MinIO drops what is said about multiparts, for which it has a setting."""
    return {_facts(rule) for rule in current if rule.ours} == {_facts(rule) for rule in wanted}


def _facts(rule: LifecycleRule) -> tuple[object, ...]:
    abort_after = rule.abort_after_days or ABORT_AFTER_DAYS
    return rule.id, rule.prefix, abort_after, rule.noncurrent_days, rule.expires_current, rule.enabled


def dangerous(rules: Iterable[LifecycleRule]) -> list[LifecycleRule]:
    """Rules of others that would delete payloads under messages that still need them."""
    expiring = (rule for rule in rules if rule.enabled and rule.expires_current and not rule.ours)
    return [rule for rule in expiring if _overlaps(rule.prefix)]


def _overlaps(prefix: str) -> bool:
    return any(prefix.startswith(own) or own.startswith(prefix) for own in (PAYLOAD_PREFIX, SYSTEM_PREFIX))
