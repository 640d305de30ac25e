"""The pages on the CLI and the SDK, and the examples: as generated, and running."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minitoolstream import client as sdk
from minitoolstream.api.errors import HTTP_STATUS
from scripts import gen_cli_docs
from tests.error_codes import raised_by
from tests.live import Live

ROOT = Path(__file__).parents[2]
SDK_PAGE = (ROOT / "docs/sdk.md").read_text("utf-8")
EXAMPLES = [
    example
    for example in sorted((ROOT / "examples").glob("*.py"))
    if "minitoolstream.connector" not in example.read_text("utf-8")
]
"""Those of the connector are run beside gRPC servers, in tests/integration/test_connector.py."""


def run(live: Live, folder: Path, *command: str) -> str:
    environ = {**os.environ, "MTS_URL": live.url, "MTS_TOKEN": live.token, "XDG_STATE_HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_cli_page_is_as_generated() -> None:
    """Mend it with `python -m scripts.gen_cli_docs`."""
    assert (ROOT / "docs/cli.md").read_text("utf-8") == gen_cli_docs.page()


def test_the_code_of_the_sdk_page_runs(live: Live, tmp_path: Path) -> None:
    (tmp_path / "film.mp4").write_bytes(os.urandom(6 << 20))
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", SDK_PAGE, re.MULTILINE | re.DOTALL))
    shown = run(live, tmp_path, "-c", code)
    assert "not_found there is no message 1000000000000000" in shown
    assert (tmp_path / "copy.mp4").read_bytes() == (tmp_path / "film.mp4").read_bytes()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_runs(example: Path, live: Live, tmp_path: Path) -> None:
    (tmp_path / "film.mp4").write_bytes(os.urandom(6 << 20))
    files = ["film.mp4", "copy.mp4"] if example.name == "large_file.py" else []
    shown = run(live, tmp_path, str(example), *files)
    expected = {
        "publish_and_read.py": "'hello' (5 bytes",
        "large_file.py": "copy.mp4 has the same 6,291,456 bytes",
        "exactly_once.py": "second run: 1000 sent, 0 new",
        "async_pipeline.py": "{'ann': 100, 'bob': 100, 'eve': 100}",
        "consume_transform_produce.py": "500 orders counted, 3001 in all",
        "work_queue.py": "20 sent, 2 tries failed",
    }
    assert expected[example.name] in shown


def test_the_sdk_page_lists_the_codes_that_its_calls_raise() -> None:
    table = SDK_PAGE.partition("| code | meaning |\n|---|---|\n")[2].partition("\n\n")[0]
    listed = [code for row in table.splitlines() for code in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert len(listed) == len(set(listed))
    assert set(listed) == raised_by("client", "config", "domain", "net") | set(HTTP_STATUS)


def test_every_public_name_has_a_docstring_and_the_clients_have_the_same_methods() -> None:
    for name in sdk.__all__:
        assert getattr(sdk, name).__doc__, name

    def methods(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    for name in ("BufferedPublisher", "Client", "Delivery", "Subscriber", "Subscription", "Transaction"):
        kinds = getattr(sdk, name), getattr(sdk, f"Async{name}")
        assert methods(kinds[0]) == methods(kinds[1])
        assert all(getattr(kind, method).__doc__ for kind in kinds for method in methods(kind))
