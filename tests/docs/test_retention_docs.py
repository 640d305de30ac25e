"""The commands of the page on retention work, one after the other."""

from __future__ import annotations

from pathlib import Path

from tests.docs.test_docs import ROOT, blocks, run
from tests.live import Live, eventually

PAGE = (ROOT / "docs/retention.md").read_text("utf-8")


def test_the_commands_of_the_page_on_retention_work(live: Live, subject: str, tmp_path: Path) -> None:
    eventually(lambda: live.api("GET", "/v1/ttl").json["enabled"])
    script = "".join(blocks("sh", PAGE)).replace("telemetry", subject)
    shown = run(script, live, tmp_path, "bash", "-euc")
    assert "1000000 messages, 50.0 GiB" in shown
    assert "logs 30d" in shown
    assert "0 messages expired" in shown
    assert "default-ttl" in shown


def test_the_metrics_that_the_page_names_are_there(live: Live) -> None:
    names = {word.strip("`") for word in PAGE.replace(",", " ").split() if word.startswith("`minitoolstream_")}
    assert len(names) >= 4
    eventually(lambda: live.api("POST", "/v1/sweep").json["finished"])
    eventually(lambda: all(name in live.api("GET", "/metrics").body.decode() for name in names))
