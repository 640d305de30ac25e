"""The commands of the page about readers work, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.test_docs import ROOT, run, without_stack_commands
from tests.live import Live

PAGE = (ROOT / "docs/consumers.md").read_text("utf-8")


def test_the_commands_about_readers_work(live: Live, subject: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    script = without_stack_commands("".join(blocks), live).replace("/subjects/jobs/", f"/subjects/{subject}/")
    live.api("POST", f"/v1/subjects/{subject}-before/messages", b"so that the first sequence here is not 1")
    first = live.api("GET", "/v1/status").json["watermark"] + 1
    shown = run(script, live, tmp_path, "bash", "-euc")
    assert '"durable":"billing"' in shown
    assert f'"last_sequence":{first}' in shown
    assert '{"acked":1}' in shown
