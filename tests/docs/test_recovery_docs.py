"""The commands of the page about recovery work, one after the other, on a stack as a user has it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_docs import ROOT, blocks
from tests.faults.recovery import data_folder, lose_disk
from tests.integration.test_stack import Stack
from tests.live import eventually, start_live

PAGE = (ROOT / "docs/recovery.md").read_text("utf-8")
MESSAGES = 5


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(tmp_path, MTS_OBJECT_STORE="minio", MTS_BACKUP_INTERVAL="0s")
    stack.mts("up")
    yield stack
    stack.command("down")


def sequences(stack: Stack) -> list[int]:
    shown = json.loads(stack.command("fetch", "orders", "--json").stdout)
    return [message["sequence"] for message in shown["messages"]]


def test_the_commands_about_recovery_work(stack: Stack) -> None:
    with stack.client() as client:
        for number in range(MESSAGES):
            client.publish("orders", b"%d" % number)
    watch, back_up, restore, adopt, rebuild = blocks("sh", PAGE)

    eventually(lambda: "up to date" in stack.mts("status"))
    shown = stack.shell(watch)
    assert "journal: " in shown
    assert "minitoolstream_journal_behind_seconds" in shown
    shown = stack.shell(back_up)
    assert shown.count("up to sequence 5") >= 2

    stack.kill("tarantool")
    shown = stack.shell(restore)
    assert "restored: 5 extents, up to sequence 5" in shown
    assert sequences(stack) == [1, 2, 3, 4, 5]
    assert "0 messages" in stack.shell(adopt)

    stack.kill("tarantool")
    shutil.rmtree(stack.home / "data" / "tarantool")
    shown = stack.shell(rebuild)
    assert "restored: 5 extents, up to sequence 5" in shown
    assert sequences(stack) == [1, 2, 3, 4, 5]
    with stack.client() as client:
        assert (client.publish("orders", b"fresh").sequence or 0) > 2**24
    assert "recovery" not in json.loads(stack.command("status", "--json").stdout)


def test_a_restore_that_is_refused_stops_and_moves_nothing(stack: Stack) -> None:
    with stack.client() as client:
        client.publish("orders", b"here")
    before = stack.pids()
    without_backup = stack.command("restore", "--replace")
    stack.mts("backup")
    with_data_in_the_way = stack.command("restore")
    of_no_backup = stack.command("restore", "01a1eb9b-f8ff-727b-a83b-4ee590ac4a44", "--replace")
    both = stack.command("restore", "--adopt", "--discard")

    assert (without_backup.returncode, "mts rebuild" in without_backup.stderr) == (3, True)
    assert (with_data_in_the_way.returncode, "--replace" in with_data_in_the_way.stderr) == (2, True)
    assert (of_no_backup.returncode, "mts backup ls" in of_no_backup.stderr) == (3, True)
    assert both.returncode == 2
    assert stack.pids() == before
    assert sequences(stack) == [1]


def test_a_restore_that_fails_leaves_the_data_where_it_was(stack: Stack, tmp_path: Path) -> None:
    with stack.client() as client:
        client.publish("orders", b"here")
    stack.mts("backup", "--to", "copies")
    (snapshot,) = (tmp_path / "copies").rglob("*.snap.*")
    snapshot.write_bytes(b"damaged")

    refused = stack.command("restore", "--from", "copies", "--replace")

    assert refused.returncode == 4
    assert "`mts up` starts it again" in refused.stderr
    stack.mts("up")
    assert sequences(stack) == [1]


def test_up_on_a_lost_folder_says_what_to_do(stack: Stack) -> None:
    with stack.client() as client:
        client.publish("orders", b"here")
    stack.mts("down")
    shutil.rmtree(stack.home / "data" / "tarantool")

    refused = stack.command("up")

    assert refused.returncode == 2
    assert "mts restore" in refused.stderr
    assert "restored: 1 extents" in stack.mts("rebuild", "--replace")


def test_a_tarantool_of_ones_own_is_restored_in_two_steps(tmp_path: Path) -> None:
    live = start_live(tmp_path, extra_env={"MTS_BACKUP_INTERVAL": "0s"})
    assert live.publish("orders", b"here").status in {200, 201}
    own = Stack(tmp_path, **live.environ)
    own.mts("backup", "--to", "copies")
    lose_disk(live)

    assert "cannot be stopped and filled from here" in own.command("restore").stderr
    files = own.command("restore", "--files", str(data_folder(live)), "--from", "copies", "--json")
    assert Path(json.loads(files.stdout)["snapshot"]).stat().st_size > 0
    again = own.command("restore", "--files", str(data_folder(live)), "--from", "copies")
    assert "is not empty" in again.stderr
    live.tarantool.start()
    shown = json.loads(own.command("restore", "--replay", "--json").stdout)

    assert (shown["last_sequence"], shown["orphans"]) == (1, [])
    assert "already" in own.command("restore", "--replay").stderr
    assert json.loads(own.command("restore", "--discard", "--json").stdout)["objects"] == 0
    assert "no restore waits" in own.command("restore", "--adopt").stderr
    live.stop()
