"""The page of rules and the tests it names cannot drift apart."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/rules.md").read_text("utf-8")
FILES = dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", PAGE, re.MULTILINE))
NOT_BUILT = {"replication"}
"""What rules may wait for. Whoever builds one takes it away here, and names its tests on the page."""
NAMED = re.findall(r"\[([`*][^\]]+[`*])\]\[([^\]]+)\]", PAGE)


def test_every_rule_is_on_the_page_in_order() -> None:
    numbers = [int(number) for number in re.findall(r"^\*\*(\d+)\. ", PAGE, re.MULTILINE)]
    assert numbers == list(range(1, 33))


def test_every_test_the_page_names_is_in_the_file_it_leads_to() -> None:
    assert len(NAMED) > 80
    for name, label in NAMED:
        text = (ROOT / "docs" / FILES[label]).read_text("utf-8")
        if name.startswith("`"):
            assert f"def {name.strip('`')}(" in text, name
        else:
            title = " ".join(name.strip("*").split()).replace("'", "\\'")
            assert f"test:test('{title}'" in text, name


def test_only_what_is_not_built_is_said_to_come() -> None:
    assert set(re.findall(r"omes\s+with\s+(\w+)", PAGE)) <= NOT_BUILT


def test_every_rule_names_a_test_or_the_capability_it_comes_with() -> None:
    for rule in re.split(r"^\*\*(?=\d+\. )", PAGE, flags=re.MULTILINE)[1:]:
        text = " ".join(rule.partition("\n## ")[0].split())
        assert "][" in text or "omes with " in text, text[:60]
