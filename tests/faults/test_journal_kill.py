"""Killed in the middle of a segment, a backup, a restore: nothing is missing, nothing is there twice (rules 28, 29)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.bootstrap import open_core
from minitoolstream.domain.errors import MtsError
from minitoolstream.services.adopt_orphans import discard_orphans
from minitoolstream.services.backup_places import BucketPlace
from minitoolstream.services.make_backup import list_backups, make_backup, prune_backups
from minitoolstream.services.restore_backup import replay_journal
from tests.faults.audit import check_stream, names_in_bucket, status
from tests.faults.load import Producers, payload_of
from tests.faults.recovery import (
    backup,
    lose_disk,
    rebuild,
    restore,
    start_hosts,
    with_core,
    write_journal,
)
from tests.faults.recovery_drill import SUBJECT, start_by_hand
from tests.live import Live, eventually, start_live


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    live = start_by_hand(tmp_path)
    yield live
    live.stop()


def publish(live: Live, *names: str) -> dict[str, int]:
    found = {}
    for name in names:
        answer = live.publish(SUBJECT, payload_of(name))
        assert answer.status in {200, 201}, answer.body
        found[name] = int(answer.json["sequence"])
    return found


KILLED = """
import asyncio, os, signal
from minitoolstream.bootstrap import open_core
from minitoolstream.config import load_settings
from minitoolstream.services.backup_places import BucketPlace
from minitoolstream.services.make_backup import make_backup
from minitoolstream.services.write_journal import write_journal

async def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    core = await open_core(load_settings())
    {die}
    await {work}

asyncio.run(main())
"""


def run_killed(live: Live, work: str, die: str) -> None:
    """A process of ours that is killed at a named step."""
    code = KILLED.format(work=work, die=die)
    environ = {**os.environ, **live.environ}
    done = subprocess.run([sys.executable, "-c", code], env=environ, cwd=live.folder, check=False)
    assert done.returncode == -9


@pytest.mark.parametrize("step", ["core.journal.ack_segment", "core.payloads.put_new", "core.journal.read_journal"])
def test_a_host_killed_in_the_middle_of_a_segment_loses_nothing(live: Live, step: str) -> None:
    known = publish(live, "a", "b")
    backup(live)
    known |= publish(live, "c")
    run_killed(live, "write_journal(core)", f"{step} = die")
    known |= publish(live, "d")
    assert write_journal(live)["complete"]
    lose_disk(live)

    restore(live)

    start_hosts(live)
    check_stream(live, SUBJECT, known)


@pytest.mark.parametrize("step", ["core.restores.read_backup", "core.payloads.put_new", "core.journal.plan_segment"])
def test_a_backup_that_was_killed_is_none_and_the_next_one_works(live: Live, step: str) -> None:
    known = publish(live, "a", "b")
    run_killed(live, "make_backup(core, BucketPlace(core.payloads))", f"{step} = die")
    assert with_core(live, lambda core: list_backups(BucketPlace(core.payloads))) == []

    made = backup(live)

    assert [one.id for one in with_core(live, lambda core: list_backups(BucketPlace(core.payloads)))] == [made.id]
    lose_disk(live)
    assert restore(live).last_sequence == known["b"]


def test_tarantool_killed_under_load_writes_on_where_the_bucket_ends(tmp_path: Path) -> None:
    live = start_live(tmp_path, extra_env={"MTS_JOURNAL_INTERVAL": "50ms", "MTS_BACKUP_INTERVAL": "0s"})

    def send(name: str) -> int | None:
        answer = live.publish(SUBJECT, payload_of(name), idempotency_key=name)
        return int(answer.json["sequence"]) if answer.status in {200, 201} else None

    with Producers(send, "p", 4) as producers:
        for _ in range(3):
            producers.wait_for_more(40)
            live.tarantool.kill()
            live.tarantool.start()
        producers.wait_for_more(40)
    eventually(lambda: not status(live)["journal"]["behind"] and not status(live)["journal"]["waiting"])
    lose_disk(live)

    restored = rebuild(live)

    assert (restored.dropped, restored.missing) == ([], [])
    start_hosts(live)
    check_stream(live, SUBJECT, producers.acknowledged)
    fresh = publish(live, "fresh")["fresh"]
    assert fresh > max(producers.acknowledged.values())
    live.stop()


def test_tarantool_killed_in_the_middle_of_a_restore_is_restored_by_the_next_one(live: Live) -> None:
    known = publish(live, *(f"early-{number}" for number in range(5)))
    backup(live)
    for number in range(4):
        known |= publish(live, f"late-{number}")
        write_journal(live)
    lose_disk(live)

    async def killed_half_way(core: Any) -> None:
        real, calls = core.restores.apply, 0

        async def apply(*rows: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 3:
                live.tarantool.kill()
            await real(*rows)

        core.restores.apply = apply
        with pytest.raises(MtsError):
            await replay_journal(core, rebuild=True)

    live.tarantool.start()
    with_core(live, killed_half_way)
    live.tarantool.start()
    refused = with_core(live, _keep)
    assert "restore is under way" in refused

    restored = rebuild(live)

    assert restored.last_sequence == max(known.values())
    start_hosts(live)
    check_stream(live, SUBJECT, known)
    with_core(live, discard_orphans)


async def _keep(core: Any) -> str:
    with pytest.raises(MtsError) as refused:
        await core.ceiling.keep()
    return refused.value.message


def test_a_store_that_was_down_gets_the_journal_later(live: Live) -> None:
    known = publish(live, "a")
    live.minio.stop()
    answer = live.api("POST", "/v1/journal")
    assert (answer.status, answer.code) == (503, "unavailable")
    assert status(live)["journal"]["behind"] == 1
    live.minio.start()
    eventually(lambda: live.api("POST", "/v1/journal").status == 200)
    known |= publish(live, "b")
    write_journal(live)
    lose_disk(live)
    assert rebuild(live).last_sequence == known["b"]


def test_only_the_newest_backups_are_kept(live: Live) -> None:
    async def make_three(core: Any) -> list[str]:
        place = BucketPlace(core.payloads)
        return [(await make_backup(core, place)).id for _ in range(3)]

    async def prune(core: Any) -> int:
        core.settings = core.settings.with_values(backup__keep=2)
        return await prune_backups(core, BucketPlace(core.payloads))

    made = with_core(live, make_three)
    assert with_core(live, prune) == 1
    kept = {name.split("/")[2] for name in names_in_bucket(live, "_mts/backups/")}
    assert kept == set(made[1:])


def test_the_host_makes_a_backup_by_itself(tmp_path: Path) -> None:
    live = start_live(tmp_path, extra_env={"MTS_BACKUP_INTERVAL": "1s", "MTS_BACKUP_KEEP": "2"})
    eventually(lambda: any(name.endswith("manifest.json") for name in names_in_bucket(live, "_mts/backups/")))
    live.stop()


def test_a_writer_and_a_backup_at_once_both_end(live: Live) -> None:
    known = publish(live, *(f"n-{number}" for number in range(20)))

    async def at_once(core: Any) -> None:
        other = await open_core(live.settings)
        await asyncio.gather(*(make_backup(one, BucketPlace(one.payloads)) for one in (core, other)))
        await other.close()

    with_core(live, at_once)
    lose_disk(live)
    assert restore(live).last_sequence == max(known.values())
