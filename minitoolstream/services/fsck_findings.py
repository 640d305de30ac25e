"""What a check finds: faults by kind, and what is wrong with one object or row."""

from __future__ import annotations

from dataclasses import dataclass, field

from minitoolstream.domain.consistency import SHOWN, Fault
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.keys import DELETION_PREFIX, PACK_PREFIX, REPORT_PREFIX, SYSTEM_PREFIX
from minitoolstream.domain.message import Extent, wire_number
from minitoolstream.domain.subject import pack_id_of, upload_id_of
from minitoolstream.domain.upload import Receipt
from minitoolstream.ports import ObjectInfo, Pointing


@dataclass(slots=True)
class Findings:
    """Faults by kind, the first of them named."""

    found: dict[str, int] = field(default_factory=dict)
    repaired: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    shown: list[Fault] = field(default_factory=list)
    not_shown: int = 0

    def add(self, fault: Fault) -> None:
        for counts, counted in (
            (self.found, True),
            (self.repaired, fault.repaired),
            (self.left, not fault.repaired),
        ):
            if counted:
                counts[fault.kind] = counts.get(fault.kind, 0) + 1
        if len(self.shown) < SHOWN:
            self.shown.append(fault)
        else:
            self.not_shown += 1


def kind_of(name: str) -> str:
    """Whose an object is, by its name (rule 6)."""
    if upload_id_of(name):
        return "payload"
    if pack_id_of(name):
        return "pack"
    if name.startswith(DELETION_PREFIX):
        return "record"
    if name.startswith(REPORT_PREFIX):
        return "report"
    return "system" if name.startswith(SYSTEM_PREFIX) else "foreign"


def problem_of(row: Extent, info: ObjectInfo | None) -> tuple[str, str] | None:
    """What is wrong with a row's object, as far as its size tells."""
    if info is None:
        return "missing", f"its object is not in the bucket: {row.count} messages"
    span = row.byte_range
    needed = row.size if span is None else span[1] + 1
    if info.size < needed:
        return "short", f"its object has {info.size} bytes, and {needed} are needed"
    if span is None and info.size > needed:
        return "size", f"its object has {info.size} bytes instead of {needed}"
    return None


def damaged(row: Extent, error: MtsError) -> Fault:
    sequence = wire_number(row.sequence)
    return Fault("damaged", error.message, row.object_name, sequence, row.subject, row.partition)


def may_be_committed(name: str, first_young: str) -> bool:
    return name.startswith((PACK_PREFIX, REPORT_PREFIX)) and name.rpartition("/")[2] >= first_young


def refs_text(found: Pointing) -> str:
    counted = "nothing is" if found.refs is None else f"{found.refs} are"
    return f"{found.rows} rows and {found.stored} waiting uploads point at it, {counted} counted"


def waiting_text(receipt: Receipt) -> str:
    """Of an upload without its object: what it waits for, since ending that is all that helps."""
    waits_for = f"transaction {receipt.transaction_id}" if receipt.transaction_id else "an earlier upload"
    return f"upload {receipt.upload_id} waits for {waits_for}, and its object is not in the bucket"
