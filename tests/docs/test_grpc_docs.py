"""The Python of the page on gRPC runs, in its order."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.docs.test_docs import ROOT, blocks, run
from tests.grpc_kit import start_grpc
from tests.live import Live

PAGE = (ROOT / "docs/grpc.md").read_text("utf-8")


def test_the_python_of_the_page_works(live: Live, tmp_path: Path) -> None:
    process = start_grpc(live)
    (tmp_path / "contract.pdf").write_bytes(b"%PDF-1.7")
    script = "\n".join(blocks("python", PAGE))
    script = script.replace("localhost:50051", process.ingress).replace("localhost:50052", process.egress)
    try:
        shown = run(script, live, tmp_path, sys.executable, "-c")
    finally:
        process.stop()
    assert re.search(r"^\d+ _mts/packs/", shown, re.MULTILINE)
    assert re.search(r"^\[\d+, \d+\]$", shown, re.MULTILINE)
