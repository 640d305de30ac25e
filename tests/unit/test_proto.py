"""What is made from the `.proto` files is what they say, and what was published is kept."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import proto, tools

BUF = Path(sys.executable).parent / "buf"


def test_the_checked_in_code_and_pages_are_what_make_proto_makes(tmp_path: Path) -> None:
    for path in (*proto.generate(tmp_path), proto.publish(tmp_path)):
        assert (tmp_path / path).read_text("utf-8") == (tools.ROOT / path).read_text("utf-8"), "run `make proto`"


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("v1/ingress.proto", "uint64 sequence = 1;", "uint64 sequence = 9;"),
        ("v1/ingress.proto", "bytes data = 2;", "string data = 2;"),
        ("v1/egress.proto", "rpc Fetch(", "rpc FetchMessages("),
        ("legacy/legacy.proto", "string subject = 1;", "string topic = 1;"),
    ],
)
def test_a_change_that_breaks_clients_is_found(tmp_path: Path, file: str, before: str, after: str) -> None:
    shutil.copytree(tools.ROOT / "proto", tmp_path / "proto")
    shutil.copy(tools.ROOT / "buf.yaml", tmp_path)
    changed = tmp_path / "proto" / "minitoolstream" / file
    changed.write_text(changed.read_text("utf-8").replace(before, after, 1), "utf-8")
    checked = [str(BUF), "breaking", "--against", str(tools.ROOT / proto.PUBLISHED)]
    done = subprocess.run(checked, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "on message" in done.stdout or "RPC" in done.stdout


def test_a_new_field_is_no_breaking_change(tmp_path: Path) -> None:
    shutil.copytree(tools.ROOT / "proto", tmp_path / "proto")
    shutil.copy(tools.ROOT / "buf.yaml", tmp_path)
    changed = tmp_path / "proto" / "minitoolstream" / "v1" / "ingress.proto"
    text = changed.read_text("utf-8").replace("string codec = 9;", "string codec = 9;\n  string more = 10;")
    changed.write_text(text, "utf-8")
    subprocess.run([BUF, "breaking", "--against", tools.ROOT / proto.PUBLISHED], cwd=tmp_path, check=True)
