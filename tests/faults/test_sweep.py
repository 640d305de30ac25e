"""Expiry while parts die, the clock is set, and sweepers meet: nothing is lost, nothing is left over."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.services.manage_retention import apply_settings
from minitoolstream.services.reconcile_uploads import reconcile
from minitoolstream.services.sweep_expired import sweep
from tests.clocked_core import Clocked
from tests.faults.audit import objects_in_bucket, objects_of_rows, settle, status
from tests.live import Live, eventually, start_live

DAY = 86400
KEPT = 40


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Live]:
    """One of its own, to be killed; uploads end soon, so that what they leave is seen to go."""
    lives = {"MTS_UPLOADS_TICKET_LIFE": "2s", "MTS_UPLOADS_PUT_GRACE": "1s", "MTS_UPLOADS_FIRST_LOOK": "1s"}
    live = start_live(tmp_path, extra_env={"MTS_TTL_CHECK_INTERVAL": "1h", "MTS_PACKS_GRACE": "20s", **lives})
    yield live
    live.stop()


def fill(live: Live, subject: str, count: int) -> None:
    def publish(number: int) -> None:
        assert live.publish(subject, b"%d" % number).status == 201

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(publish, range(count)))


def sweep_quietly(live: Live) -> Any:
    """A sweep whose answer may be lost with its host."""
    try:
        return live.api("POST", "/v1/sweep").json
    except (OSError, ValueError):
        return {}


def held_back(live: Live) -> dict[str, int]:
    return {hold["durable"]: hold["messages"] for hold in live.api("GET", "/v1/ttl").json["holds"]}


def has_begun(live: Live, rows: int) -> bool:
    return bool(status(live)["rows"] < rows)


@pytest.mark.parametrize("victim", ["host", "tarantool", "minio"])
def test_a_kill_in_the_middle_of_a_sweep_loses_nothing_and_leaves_nothing(stack: Live, victim: str) -> None:
    live = stack
    live.api("PUT", "/v1/subjects/gone", {"ttl": 1})
    live.api("PUT", "/v1/subjects/kept", {"max_messages": KEPT})
    fill(live, "kept", KEPT)
    kept = {message["sequence"] for message in live.messages("kept")}
    for _ in range(3):
        fill(live, "gone", 150)
        ended = threading.Event()

        def sweep_again(ended: threading.Event = ended) -> None:
            while not ended.is_set():
                sweep_quietly(live)

        begun = partial(has_begun, live, status(live)["rows"])
        sweeper = threading.Thread(target=sweep_again)
        sweeper.start()
        eventually(begun, pause=0.0)
        server = {"host": live.hosts[0], "tarantool": live.tarantool, "minio": live.minio}[victim]
        server.kill()
        server.start()
        ended.set()
        sweeper.join()
        eventually(live.hosts[0].ready)
    eventually(lambda: sweep_quietly(live).get("finished") and not live.messages("gone"), 60)
    settle(live)
    found = live.messages("kept")
    assert {message["sequence"] for message in found} == kept
    assert all(live.payload(message) for message in found)


def test_sweepers_of_two_hosts_at_once_do_no_harm(stack: Live) -> None:
    live = stack
    live.add_host()
    live.api("PUT", "/v1/subjects/gone", {"ttl": 1})
    fill(live, "gone", 300)
    fill(live, "kept", 50)

    def swept() -> bool:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: sweep_quietly(live), range(4)))
        return not live.messages("gone")

    eventually(swept, 60)
    settle(live)
    assert len(live.messages("kept")) == 50
    assert objects_in_bucket(live) == objects_of_rows(live)
    assert status(live)["trash"] == 0


def test_an_important_durable_keeps_its_messages_over_kills_and_sweeps(stack: Live) -> None:
    live = stack
    live.api("PUT", "/v1/subjects/held", {"ttl": 1})
    assert live.api("PUT", "/v1/subjects/held/consumers/careful", {"important": True}).status == 201
    fill(live, "held", 60)
    last = live.messages("held")[-1]["sequence"]
    eventually(lambda: sweep_quietly(live) and live.api("GET", "/v1/ttl").json["holds"])
    live.tarantool.kill()
    live.tarantool.start()
    eventually(live.hosts[0].ready)
    eventually(lambda: sweep_quietly(live) and held_back(live) == {"careful": 60})
    assert len(live.messages("held")) == 60
    assert live.api("POST", "/v1/subjects/held/consumers/careful/ack", {"sequence": last}).status == 200
    eventually(lambda: sweep_quietly(live) and not live.messages("held"))
    settle(live)


@pytest.fixture
def clocked(tmp_path: Path) -> Iterator[Clocked]:
    made = Clocked(tmp_path)
    yield made
    made.server.stop()


def test_a_clock_set_forward_expires_nothing_and_deletes_nothing(clocked: Clocked) -> None:
    async def scenario() -> None:
        await apply_settings(clocked.core)
        await clocked.publish(3)
        await clocked.pass_time(DAY + 1)
        assert (await sweep(clocked.core)).messages == 3
        await clocked.publish(2)

        await clocked.set_clock(30 * DAY)
        swept = await sweep(clocked.core)
        assert (swept.clocks_differ, swept.messages, swept.objects_deleted) == (True, 0, 0)
        assert (await reconcile(clocked.core)).objects_deleted == 0, "their grace is not over"
        assert (len(clocked.payloads.objects), await clocked.rows()) == (5, 2)

        await clocked.set_clock(-30 * DAY)
        await clocked.pass_time(600)
        swept = await sweep(clocked.core)
        assert (swept.clocks_differ, swept.messages, swept.objects_deleted) == (False, 0, 3)
        await clocked.pass_time(DAY)
        assert (await sweep(clocked.core)).messages == 2
        await clocked.close()

    asyncio.run(scenario())


def test_a_clock_set_back_keeps_messages_no_shorter_and_order_as_it_was(clocked: Clocked) -> None:
    async def scenario() -> None:
        await apply_settings(clocked.core)
        await clocked.publish(2)
        await clocked.set_clock(-3600)
        assert (await sweep(clocked.core)).clocks_differ
        clocked.payloads.clock.advance(-3600)  # both are wrong now, and agree
        await clocked.publish(2)
        await clocked.pass_time(DAY + 1)
        assert (await sweep(clocked.core)).messages == 0, "its time counts from when it was stored"
        await clocked.pass_time(3600)
        assert (await sweep(clocked.core)).messages == 4
        await clocked.close()

    asyncio.run(scenario())


def test_a_huge_backlog_goes_in_small_steps_while_publishes_go_on(clocked: Clocked) -> None:
    async def scenario() -> None:
        await apply_settings(clocked.core)
        await clocked.publish(3000)
        await clocked.pass_time(DAY + 1)
        sweeping = asyncio.create_task(sweep(clocked.core))
        await clocked.publish(20)
        swept = await sweeping
        assert (swept.messages, swept.finished) == (3000, True)
        assert await clocked.rows() == 20
        await clocked.close()

    asyncio.run(scenario())
