"""`mts ttl`, `mts sweep`, `mts lifecycle` and the settings of `mts subject` as a user types them, and the SDK behind
them, on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minitoolstream.cli.retention_text import attention_lines, status_text
from minitoolstream.client import AsyncClient, Client
from minitoolstream.domain.retention import Hold, Retention
from tests.integration.test_cli_delivery import Mts
from tests.live import Live, eventually, start_live


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One of its own: the default of all subjects is changed here."""
    live = start_live(tmp_path_factory.mktemp("cli-retention"), extra_env={"MTS_TTL_CHECK_INTERVAL": "1h"})
    eventually(lambda: live.api("GET", "/v1/ttl").json["enabled"])
    yield live
    live.stop()


@pytest.fixture
def mts(stack: Live) -> Mts:
    return Mts(stack)


def test_a_subjects_time_is_written_as_people_write_it(mts: Mts, subject: str) -> None:
    made = mts.json("subject", "create", subject, "--ttl", "7d", "--max-messages", "5", "--max-bytes", "10GiB")
    assert made["settings"]["ttl"] == 604800
    assert (made["settings"]["max_messages"], made["settings"]["max_bytes"]) == (5, 10 * 2**30)
    shown = "\n".join(mts.lines("subject", "info", subject))
    assert "7d" in shown
    assert "5 messages, 10.0 GiB" in shown
    mts.lines("subject", "alter", subject, "--ttl", "0", "--max-messages", "0", "--max-bytes", "0")
    shown = "\n".join(mts.lines("subject", "info", subject))
    assert "(the default)" in shown
    assert "keeps at most" not in shown


@pytest.mark.parametrize("given", [("--ttl", "soon"), ("--ttl", "11y"), ("--max-bytes", "much")], ids=" ".join)
def test_a_time_or_size_that_is_none_is_refused(mts: Mts, subject: str, given: tuple[str, str]) -> None:
    assert mts("subject", "create", subject, *given).exit_code == 2


def test_the_default_and_channels_are_set_and_shown(mts: Mts) -> None:
    mts.lines("ttl", "set", "--channel", "metrics=30d")
    changed = mts.json("ttl", "set", "--default", "48h", "--channel", "logs=7d", "--check-interval", "2h")
    assert (changed["default_ttl"], changed["check_interval"]) == (172800, 7200)
    assert changed["channels"] == {"metrics": 2592000, "logs": 604800}
    shown = "\n".join(mts.lines("ttl", "status"))
    assert "2d" in shown
    assert "logs 7d, metrics 30d" in shown
    assert mts.json("ttl", "set", "--disable")["enabled"] is False
    assert mts.json("ttl", "set", "--enable")["enabled"] is True
    assert mts("ttl", "set").exit_code == 2
    assert mts("ttl", "set", "--channel", "logs").exit_code == 2


def test_a_sweep_by_hand_says_what_went(mts: Mts, stack: Live, subject: str) -> None:
    mts.lines("subject", "create", subject, "--max-messages", "1")
    for _ in range(3):
        stack.publish(subject, b"12345")
    assert "2 messages expired (10 B)" in mts.lines("sweep")[0]
    assert mts.json("sweep") | {"messages": 0, "finished": True} == mts.json("sweep")


def test_the_lifecycle_is_shown_and_applied(mts: Mts, stack: Live) -> None:
    shown = mts.json("lifecycle", "apply")
    assert shown["in_step"]
    assert "default-ttl" in "\n".join(mts.lines("lifecycle", "show"))
    rule = {"ID": "theirs", "Filter": {"Prefix": "m/"}, "Status": "Enabled", "Expiration": {"Days": 1}}
    stack.minio.s3().put_bucket_lifecycle_configuration(
        Bucket=stack.minio.bucket, LifecycleConfiguration={"Rules": [rule]}
    )
    told = mts("lifecycle", "apply")
    assert told.exit_code == 4
    assert "theirs deletes payloads" in told.stderr
    assert "deletes current objects by age" in told.stdout
    stack.minio.s3().delete_bucket_lifecycle(Bucket=stack.minio.bucket)
    assert mts("lifecycle", "show").exit_code == 4


def test_the_status_says_who_holds_back_what(mts: Mts, stack: Live, subject: str) -> None:
    mts.lines("subject", "create", subject, "--max-messages", "1")
    mts.lines("consumer", "create", subject, "careful", "--important")
    for _ in range(3):
        stack.publish(subject, b"12345")
    mts.lines("sweep")
    lines = mts.lines("status")
    assert f"! careful holds back 2 messages (10 B) of {subject}" in lines
    assert any(line.startswith("last sweep: 2") for line in lines)
    assert mts.json("status")["retention"]["holds"][0]["durable"] == "careful"
    assert "careful" in "\n".join(mts.lines("ttl", "status"))
    mts.lines("consumer", "rm", subject, "careful", "--yes", "careful")


def test_clocks_that_differ_are_told() -> None:
    hold = Hold("orders", "careful", 5, 2048, 7, 1700000000, 60, estimated=True)
    common: dict[str, Any] = {"default_ttl": 60, "check_interval": 0.5, "channels": {}, "fiber_running": True}
    common |= {"trash": 3, "trash_grace": 3600, "time": 1, "clocks_agree": False, "trash_due_at": 1700000000}
    found = Retention(enabled=True, holds=[hold], drift_ms=-400_000, **common)
    assert "differ by -400 s: nothing expires" in status_text(found)
    assert "about 5" in status_text(found)
    assert "! careful holds back about 5 messages (2.0 KiB) of orders" in list(attention_lines(found))
    found = Retention(enabled=False, holds=[], **common)
    assert any("not compared" in line for line in attention_lines(found))
    assert any("TTL is off" in line for line in attention_lines(found))


async def test_the_sdk_for_asyncio_does_the_same(stack: Live, subject: str) -> None:
    async with AsyncClient(stack.url, stack.token) as client:
        made = await client.subjects.put(subject, ttl=100, max_messages=1)
        assert (made.expires_after, made.settings["max_messages"]) == (100, 1)
        assert (await client.subjects.put(subject, ttl=0)).expires_after != 100
        for _ in range(2):
            await client.publish(subject, b"x")
        assert (await client.retention.sweep()).messages >= 1
        assert (await client.retention.configure(channels={"a": 5})).channels == {"a": 5}
        assert (await client.retention.apply_lifecycle()).in_step
        assert (await client.retention.lifecycle()).versioning == "off"


def test_the_sdk_does_the_same(stack: Live) -> None:
    with Client(stack.url, stack.token) as client:
        assert client.retention.configure(default_ttl=60).default_ttl == 60
        assert client.retention.status().trash_grace == 0
        assert client.retention.sweep().finished
        assert client.retention.apply_lifecycle().in_step
        assert client.retention.lifecycle().in_step
