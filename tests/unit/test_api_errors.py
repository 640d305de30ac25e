"""The table from error codes to statuses is whole."""

from __future__ import annotations

import re
from pathlib import Path

from minitoolstream.api.errors import HTTP_STATUS

ROOT = Path(__file__).parents[2]
SERVER_SIDE = ("domain", "services", "adapters", "api", "host")
CODE = r'"([a-z_]+)"'


def test_every_code_that_a_server_raises_has_a_status() -> None:
    raised: set[str] = set()
    for layer in SERVER_SIDE:
        for path in (ROOT / "minitoolstream" / layer).rglob("*.py"):
            raised |= set(re.findall(rf"MtsError\(\s*{CODE}", path.read_text("utf-8")))
    for path in (ROOT / "tarantool" / "mts").rglob("*.lua"):
        raised |= set(re.findall(r"errors\.refuse\('([a-z_]+)'", path.read_text("utf-8")))
    assert len(raised) > 15
    assert raised <= set(HTTP_STATUS)
