"""The message header `filename`: what a file was called where it came from."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

HEADER = "filename"
_LONGEST = 200
"""Bytes, which leaves room for the ending of a download that is under way."""
_UNSAFE = re.compile(r'[<>:"|?*]')


def with_filename(headers: Mapping[str, str], path: str) -> dict[str, str]:
    """The headers, and the file's name unless one is among them; a name that is not UTF-8 is mended."""
    return {HEADER: os.fsencode(Path(path).name).decode("utf-8", "replace"), **headers}


def safe_filename(headers: Mapping[str, str]) -> str | None:
    """The name to save a payload under here, if its header gives one.

    Whoever published the message chose it: it is no path, not hidden, no option of a command, and has nothing
    that a terminal or another file system takes for something else.
    """
    name = re.split(r"[/\\]", headers.get(HEADER, ""))[-1]
    name = _UNSAFE.sub("_", "".join(char for char in name if char.isprintable()))
    name = name.encode()[-_LONGEST:].decode(errors="ignore")  # the end has the extension
    return name.lstrip(". -").rstrip(". ") or None
