"""`mts fsck`: check the whole, and say what was found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from minitoolstream.cli.output import Exit, emit, json_option, note
from minitoolstream.cli.progress import StepLine, human_size
from minitoolstream.cli.shapes import fields_text, table, when_text
from minitoolstream.config import load_settings
from minitoolstream.domain.consistency import KINDS, SAMPLE, Amount, Fault, JournalFigures, Report
from minitoolstream.domain.errors import MtsError

_FAULTS_PRINTED = 20


@click.command()
@click.option("--deep", is_flag=True, help="Read every payload and check it, not only some.")
@click.option("--sample", default=SAMPLE, show_default=True, type=click.IntRange(0), help="Objects to read.")
@click.option("--repair", is_flag=True, help="Mend what can be mended; see docs/consistency.md.")
@click.option("--continue", "go_on", is_flag=True, help="Go on with a check that was interrupted.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write the report to this file, too.")
@json_option
def fsck(report: Path | None, as_json: bool, **options: Any) -> None:
    """Check that every row has its payload and every object its rows.

    Runs beside everything else, on a machine that reaches Tarantool and the object store; settings are those of
    `mts serve`. The report is also what GET /v1/consistency answers. Exit code 0: consistent, or mended; 4: not.
    """
    from minitoolstream.host.fsck import run_fsck

    line = StepLine()
    try:
        found = run_fsck(load_settings(), line.show, **options)
    except KeyboardInterrupt:
        line.end()
        note("`mts fsck --continue` goes on from here")
        raise
    line.end()
    if report is not None:
        _write(report, found)
    emit(as_json, msgspec.to_builtins(found), lambda: report_text(found))
    if found.verdict == "faults":
        click.get_current_context().exit(Exit.VERIFICATION_FAILED)


def _write(path: Path, report: Report) -> None:
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    except OSError as error:
        raise MtsError("cannot_write", f"cannot write {path}: {error.strerror}", {"path": str(path)}) from None


def _journal_text(journal: JournalFigures | None) -> str:
    if journal is None:
        return ""
    behind = f"{journal.behind} behind, the first for {journal.seconds} s" if journal.behind else "up to date"
    return f"{journal.segments} segments to {journal.last_sequence}, {behind}"


def report_text(report: Report) -> str:
    objects = report.objects
    ticket = report.oldest_ticket
    lines = [
        f"verdict: {report.verdict}",
        fields_text(
            [
                ("watermark", str(report.watermark)),
                ("ceiling", report.ceiling_in_bucket),
                ("journal", _journal_text(report.journal)),
                ("recovery", report.recovery),
                ("rows", f"{report.rows} ({report.messages} messages, {human_size(report.bytes)})"),
                ("objects", _amount(objects.needed)),
                ("  no longer needed in them", human_size(objects.unneeded.bytes) if objects.unneeded.bytes else ""),
                ("waiting for a commit", _amount(objects.waiting)),
                ("in the trash", f"{_amount(objects.trash)}; {report.trash} entries"),
                ("nobody's", _amount(objects.orphans)),
                ("the system's own", _amount(objects.system)),
                ("not ours", _amount(objects.foreign)),
                ("oldest ticket", ticket and f"{ticket.id} ({ticket.state}) of {when_text(ticket.created_at)}"),
                ("payloads read", f"{report.checked.objects} objects, {human_size(report.checked.bytes)}"),
                ("quarantined rows", report.quarantined or ""),
                ("deletions to finish", report.deletions or ""),
            ]
        ),
    ]
    if report.found:
        rows = [
            (kind, str(count), str(report.repaired.get(kind, 0)), KINDS.get(kind, ""))
            for kind, count in report.found.items()
        ]
        lines += ["", table(("FAULT", "FOUND", "REPAIRED", "MEANING"), rows, numbers=(1, 2))]
        lines += [""] + [_fault_text(fault) for fault in report.faults[:_FAULTS_PRINTED]]
        if len(report.faults) > _FAULTS_PRINTED:
            lines.append("... --json or --report shows more")
    return "\n".join(lines)


def _fault_text(fault: Fault) -> str:
    lane = None if fault.partition is None else f"partition {fault.partition}"
    place = " ".join(str(part) for part in (fault.subject, lane, fault.sequence, fault.object_name) if part is not None)
    return f"{fault.kind}{' (repaired)' if fault.repaired else ''}: {place}: {fault.what}"


def _amount(amount: Amount) -> str:
    return f"{amount.count} ({human_size(amount.bytes)})" if amount.count else "0"
