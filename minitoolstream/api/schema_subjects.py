"""The shapes of subjects on the wire; most are the domain's own."""

from __future__ import annotations

import msgspec

from minitoolstream.domain.subject_settings import Subject as Subject  # noqa: PLC0414 - part of the wire shapes
from minitoolstream.domain.subject_settings import SubjectChanges as SubjectChanges  # noqa: PLC0414


class SubjectDeleted(msgspec.Struct):
    """The subject is gone; while `purging`, what it held is being cleared away."""

    subject: str
    deleted: bool
    purging: bool
