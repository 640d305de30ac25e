"""Which lifecycle rules are ours, and which of others are dangerous (rule 26)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minitoolstream.adapters.s3.xml import lifecycle_request, lifecycle_rules
from minitoolstream.domain.lifecycle import LifecycleRule, dangerous, in_step, merged, same, wanted_rules

FOREIGN = (
    b"<Rule><ID>archive</ID><Status>Enabled</Status><Filter><And><Prefix>backups/</Prefix><Tag><Key>a</Key>"
    b"<Value>b</Value></Tag></And></Filter><Expiration><Days>30</Days></Expiration></Rule>"
)


def test_no_rule_of_ours_deletes_current_objects_by_age() -> None:
    for rule in lifecycle_rules(lifecycle_request(wanted_rules(["logs", "metrics"]))):
        assert not rule.expires_current
        assert (rule.noncurrent_days, rule.abort_after_days, rule.removes_markers, rule.enabled) == (1, 8, True, True)


def test_rule_ids_are_those_of_the_specification() -> None:
    rules = wanted_rules(["metrics", "logs"])
    assert [(rule.id, rule.prefix) for rule in rules] == [
        ("default-ttl", ""),
        ("channel-logs-ttl", "m/logs/"),
        ("channel-metrics-ttl", "m/metrics/"),
    ]
    assert all(rule.ours for rule in rules)


def test_a_channel_whose_name_makes_no_id_is_covered_by_the_rule_of_all() -> None:
    assert len(wanted_rules(["x" * 250])) == 1
    assert len(wanted_rules(f"c{number}" for number in range(2000))) == 500


def test_rules_that_the_specification_would_have_made_are_replaced() -> None:
    before = [
        LifecycleRule("default-ttl", "", expires_current=True),
        LifecycleRule("channel-old-ttl", "old_", raw=b"x"),
    ]
    wanted = wanted_rules([])
    assert not in_step(before, wanted)
    assert merged(before, wanted) == wanted


def test_rules_of_others_are_kept_to_the_letter() -> None:
    namespace = b'<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    (foreign,) = lifecycle_rules(namespace + FOREIGN + b"</LifecycleConfiguration>")
    assert (foreign.id, foreign.prefix, foreign.ours) == ("archive", "backups/", False)
    after = lifecycle_request(merged([foreign], wanted_rules([])))
    assert FOREIGN in after
    assert lifecycle_rules(after)[0] == foreign


def test_what_a_store_drops_about_multiparts_is_no_difference_that_counts() -> None:
    wanted = wanted_rules([])
    dropped = [replace(rule, abort_after_days=None) for rule in wanted]
    assert in_step(dropped, wanted)
    assert not same(dropped, wanted)
    assert same(wanted, wanted)
    assert not in_step([replace(wanted[0], enabled=False)], wanted)


@pytest.mark.parametrize(
    ("rule", "is_dangerous"),
    [
        (LifecycleRule("all", "", expires_current=True), True),
        (LifecycleRule("payloads", "m/orders/", expires_current=True), True),
        (LifecycleRule("packs", "_mts/", expires_current=True), True),
        (LifecycleRule("elsewhere", "backups/", expires_current=True), False),
        (LifecycleRule("versions", "", noncurrent_days=3), False),
        (LifecycleRule("off", "", expires_current=True, enabled=False), False),
    ],
    ids=lambda value: value.id if isinstance(value, LifecycleRule) else "",
)
def test_a_rule_that_reaches_payloads_and_deletes_by_age_is_dangerous(rule: LifecycleRule, is_dangerous: bool) -> None:
    assert bool(dangerous([rule])) == is_dangerous


def test_the_oldest_form_of_a_prefix_is_read() -> None:
    body = (
        b"<LifecycleConfiguration><Rule><ID>a</ID><Prefix>m/</Prefix><Expiration><Date>2030-01-01</Date></Expiration>"
    )
    (rule,) = lifecycle_rules(body + b"<Status>Enabled</Status></Rule></LifecycleConfiguration>")
    assert (rule.prefix, rule.expires_current) == ("m/", True)
