"""Errors that cross a process boundary as the text of a traceback."""

from __future__ import annotations

import json
import re

from minitoolstream.domain.errors import MtsError

_MARK = "mts-error:"
_FOUND = re.compile(re.escape(_MARK) + r"(\{.*\})")


class TaskError(MtsError):
    """An MtsError whose text carries all of it, so that the driver can tell what happened in a task."""

    def __str__(self) -> str:
        told = {"code": self.code, "message": self.message, "details": self.details}
        return f"{self.message} ({_MARK}{json.dumps(told, default=str)})"

    def __reduce__(self) -> tuple[type[TaskError], tuple[str, str, dict[str, object]]]:
        return TaskError, (self.code, self.message, self.details)


def for_tasks(error: MtsError, **details: object) -> TaskError:
    """The same error, fit to travel; `details` such as the sequence it is about."""
    return TaskError(error.code, error.message, {**error.details, **details})


def from_traceback(text: str) -> MtsError | None:
    """The error that a traceback tells of, or None."""
    for found in reversed(_FOUND.findall(text)):
        try:
            told = json.loads(found)
            return MtsError(told["code"], told["message"], told["details"])
        except (ValueError, KeyError, TypeError):
            continue
    return None
