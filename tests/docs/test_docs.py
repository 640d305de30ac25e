"""Docs that can't go stale: commands run, generated pages are as generated, links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from minitoolstream.domain import limits
from scripts import gen_config_docs
from tests.live import Live

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def run(script: str, live: Live, folder: Path, *command: str) -> str:
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "MTS_URL": live.url,
        "MTS_TOKEN": live.token,
        "MTS_HOME": str(folder / ".mts"),
        "XDG_STATE_HOME": str(folder),
    }
    done = subprocess.run(
        [*command, script], cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def without_stack_commands(script: str, live: Live) -> str:
    """The test has a stack of its own: what asks the one of `mts up` for its address is answered here."""
    script = script.replace(". .venv/bin/activate\n", "")
    script = re.sub(r"^url=.*$", f"url={live.url}", script, flags=re.MULTILINE)
    return script.replace("$(mts token)", live.token)


def test_the_readmes_shell_commands_work(live: Live, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(README, "utf-8")
    first, curl = (block for block in blocks("sh") if "make up" not in block)
    before = live.api("GET", "/v1/status").json["watermark"]

    first = first.replace("mts get 1 ", f"mts get {before + 1} ")
    run(without_stack_commands(first, live), live, tmp_path, "bash", "-euc")
    assert (tmp_path / "copy.md").read_text("utf-8") == README

    curl = curl.replace("/subjects/orders/", "/subjects/curl/")  # other tests fill the first page of `orders`
    shown = run(without_stack_commands(curl, live), live, tmp_path, "bash", "-euc")
    assert '"state":"committed"' in shown
    assert '"data":"aGVsbG8="' in shown


def test_the_commands_of_the_page_on_subjects_work(live: Live, tmp_path: Path) -> None:
    commands = blocks("sh", (ROOT / "docs/topics.md").read_text("utf-8"))
    script = "\n".join([f"url={live.url}", f'auth="Authorization: Bearer {live.token}"', *commands])
    shown = run(script, live, tmp_path, "bash", "-euc")
    assert '"quota":{"messages":1000000,"rate":5000}' in shown
    assert '"state":"committed"' in shown
    assert '"deleted":true' in shown


def test_the_commands_of_the_page_on_transactions_work(live: Live, tmp_path: Path) -> None:
    commands = blocks("sh", (ROOT / "docs/transactions.md").read_text("utf-8"))
    script = "\n".join([f"url={live.url}", f'auth="Authorization: Bearer {live.token}"', *commands])
    shown = run(script, live, tmp_path, "bash", "-euc")
    before, after = shown.split('"messages":', 1)
    assert before.count('"state":"stored"') == 2
    assert after.startswith("[]")
    assert after.count('"state":"committed"') == 6


def test_the_readmes_python_works(live: Live, tmp_path: Path) -> None:
    (script,) = blocks("python")
    assert run(script, live, tmp_path, sys.executable, "-c").split()[1] == "15"


def test_the_configuration_page_is_as_generated() -> None:
    assert (ROOT / "docs/configuration.md").read_text("utf-8") == gen_config_docs.page()


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_limits_page_says_what_the_code_says() -> None:
    page = (ROOT / "docs/limits.md").read_text("utf-8")
    for value in (
        limits.MAX_PARTS,
        limits.MAX_MESSAGES_PER_PACK,
        limits.MAX_UPLOADS_PER_REQUEST,
        limits.MAX_FETCH_LIMIT,
        limits.MAX_PRODUCER_ID_LENGTH,
        limits.MAX_GROUP_LENGTH,
    ):
        assert f"{value:,}" in page
    for value in (
        limits.MAX_SUBJECT_LENGTH,
        limits.MAX_PARTITIONS,
        limits.MAX_HEADERS,
        limits.MAX_IDEMPOTENCY_KEY_LENGTH,
        limits.MAX_TRANSACTION_SECONDS,
    ):
        assert re.search(rf"\b{value}\b", page)
    assert f"{limits.MAX_WAIT_SECONDS:g} s" in page
    transactions = (ROOT / "tarantool/mts/transaction.lua").read_text("utf-8")
    (rows,) = re.findall(r"MOST_ROWS = (\d+)", transactions)
    assert f"| transaction | {int(rows):,} rows" in page
