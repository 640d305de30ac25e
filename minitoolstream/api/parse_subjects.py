"""Requests about subjects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from minitoolstream.api.app import Request
from minitoolstream.api.parse import decode
from minitoolstream.domain.subject import check_subject
from minitoolstream.domain.subject_settings import SubjectChanges


def changes_of(request: Request) -> dict[str, Any]:
    """The settings that are given, and no others."""
    given: dict[str, Any] = msgspec.to_builtins(decode(request.body, SubjectChanges))
    return given


def prefix_of(query: Mapping[str, str]) -> str:
    """A prefix is the beginning of a name, so it is made like a name."""
    prefix = query.get("prefix", "")
    return check_subject(prefix) if prefix else ""
