"""Deletions, from the domain's words to the shapes on the wire."""

from __future__ import annotations

from minitoolstream.api import schema_deletion
from minitoolstream.domain.deletion import Deletion
from minitoolstream.domain.message import wire_number


def deletion(value: Deletion) -> schema_deletion.DeletionAnswer:
    return schema_deletion.DeletionAnswer(
        id=value.id,
        kind=value.kind,
        subject=value.subject,
        at=value.at,
        who=value.who,
        reason=value.reason,
        messages=value.messages,
        bytes=value.bytes,
        done=value.done,
        sequence=None if value.sequence is None else wire_number(value.sequence),
        sequences=[wire_number(sequence) for sequence in value.sequences],
    )
