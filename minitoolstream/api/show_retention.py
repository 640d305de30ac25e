"""Answers about retention."""

from __future__ import annotations

from minitoolstream.api import schema_retention
from minitoolstream.domain.lifecycle import LifecycleRule
from minitoolstream.services.keep_lifecycle import Lifecycle


def lifecycle_answer(found: Lifecycle) -> schema_retention.LifecycleAnswer:
    rules = [_rule(rule, dangerous=rule in found.dangerous) for rule in found.rules]
    bucket = found.bucket
    return schema_retention.LifecycleAnswer(rules, found.in_step, found.changed, bucket.versioning, bucket.object_lock)


def _rule(rule: LifecycleRule, *, dangerous: bool) -> schema_retention.Rule:
    return schema_retention.Rule(
        id=rule.id,
        prefix=rule.prefix,
        enabled=rule.enabled,
        ours=rule.ours,
        abort_after_days=rule.abort_after_days,
        noncurrent_days=rule.noncurrent_days,
        expires_current=rule.expires_current,
        dangerous=dangerous,
    )
