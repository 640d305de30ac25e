"""The wall clock is set, and time goes on: what was promised for seconds takes seconds (by the steady clock)."""

from __future__ import annotations

import pytest

from tests.live import eventually
from tests.model.world import MINUTE, World

A_MONTH = 30 * 24 * 3600


@pytest.mark.parametrize("seconds", [-3600, A_MONTH])
def test_leases_and_sessions_end_in_their_time_when_the_clock_is_set(world: World, seconds: int) -> None:
    subject = world.new_subject()
    world.publish(subject, [1])
    world.call("consumer_put", subject, "queue", {"mode": "shared"})
    world.call("consumer_put", subject, "position", {})
    assert world.call("delivery_lease", subject, "queue", 1, 600)["rows"]
    world.call("session_join", subject, "position", "reader", 600)

    world.call("clock_set", seconds)

    assert not world.call("delivery_lease", subject, "queue", 1, 600)["rows"], "not early"
    assert world.call("consumer_get", subject, "position")["sessions"] == 1
    world.call("consumer_seek", subject, "queue", 1)
    world.call("delivery_lease", subject, "queue", 1, 1)
    world.call("session_join", subject, "position", "reader", 1)
    world.call("clock_set", -seconds)
    world.call("clock_set", -3600)
    eventually(lambda: world.call("delivery_lease", subject, "queue", 1, 600)["rows"], 10)
    eventually(lambda: world.call("consumer_get", subject, "position")["sessions"] == 0, 10)


def test_a_reader_that_joins_again_for_less_time_is_dropped_after_that(world: World) -> None:
    subject = world.new_subject()
    world.publish(subject, [1])
    world.call("consumer_put", subject, "position", {})
    world.call("session_join", subject, "position", "reader", 10 * MINUTE)
    world.call("session_join", subject, "position", "reader", MINUTE)

    world.pass_time(1)
    world.call("consumers_tick", 100)

    assert world.call("space_select", "session", ["position", subject]) == []
    assert world.call("space_select", "consumer_partition", ["position", subject])[0][4] is None


def test_a_last_try_granted_in_a_time_that_has_not_come_yet_is_over(world: World) -> None:
    """The clock was set back while Tarantool was down: nobody leases, and the schedule still gives up."""
    subject = world.new_subject()
    world.publish(subject, [1, 1])
    world.call("consumer_put", subject, "queue", {"mode": "shared", "max_deliver": 1})
    world.pass_time(60)
    assert world.call("delivery_lease", subject, "queue", 1, 10 * MINUTE)["rows"]
    world.restart()
    assert world.call("delivery_lease", subject, "queue", 1, 10 * MINUTE)["dead_lettered"] == 1
    world.pass_time(60)
    world.call("consumer_seek", subject, "queue", 1)
    assert world.call("delivery_lease", subject, "queue", 1, 10 * MINUTE)["rows"]
    world.restart()

    assert world.call("consumers_tick", 100)["dead_lettered"] == 1
    assert world.call("consumers_tick", 100)["dead_lettered"] == 0
    assert world.call("consumer_get", subject, "queue")["outstanding"] == 0
