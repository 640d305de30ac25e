"""The check: each fault by its name, none that is not there, and a walk that may be interrupted anywhere."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from minitoolstream.domain.consistency import Report
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pack import InlineMessage
from minitoolstream.domain.subject import new_id, pack_name
from minitoolstream.ports import AuditStore, PayloadStore
from minitoolstream.services.check_consistency import Options, check_consistency
from minitoolstream.services.commit_uploads import commit_created
from minitoolstream.services.delete_messages import delete_message, purge_subject
from minitoolstream.services.delete_trash import delete_trash
from minitoolstream.services.fsck_book import Book
from minitoolstream.services.fsck_findings import kind_of
from minitoolstream.services.get_report import get_report
from minitoolstream.services.publish_batch import publish_batch
from minitoolstream.services.write_journal import write_journal
from tests.core_kit import CoreKit, core_kit
from tests.fuse import Fuse, KilledError
from tests.unit.test_services_delete import batch, plain

OLD = 1_600_000_000_000


def quiet(_what: str, _done: int, _total: int | None) -> None: ...


async def check(kit: CoreKit, folder: Path, **options: Any) -> Report:
    book = Book(folder / "book.sqlite")
    try:
        report = await check_consistency(kit.core, book, Options(**options), quiet)
    finally:
        book.close()
    book.delete()
    return report


def names(kit: CoreKit) -> list[str]:
    return [row.object_name for row in kit.metadata.order.rows]


async def test_a_healthy_stream_is_clean_and_accounted_for(tmp_path: Path) -> None:
    kit = core_kit()
    await kit.core.ceiling.keep()
    await batch(kit, 3)
    await plain(kit, b"12345")
    await kit.ticket(7)
    kit.payloads.client_put("somebody/else", b"foreign")
    await write_journal(kit.core)
    await plain(kit, b"6")
    report = await check(kit, tmp_path)
    assert (report.verdict, report.found, report.rows, report.messages) == ("clean", {}, 3, 5)
    assert (report.objects.needed.count, report.objects.foreign.bytes, report.objects.system.count) == (3, 7, 2)
    assert report.objects.unneeded.bytes == 0
    assert report.subjects[0].bytes == report.bytes
    assert report.oldest_ticket is not None
    assert report.ceiling_in_bucket == 2**24
    assert report.journal is not None
    assert (report.journal.segments, report.journal.last_sequence, report.journal.behind) == (1, 4, 1)
    assert msgspec.json.decode(await get_report(kit.core), type=Report) == report


async def test_without_a_check_there_is_no_report() -> None:
    with pytest.raises(MtsError) as none:
        await get_report(core_kit().core)
    assert none.value.code == "not_found"


async def test_bytes_that_no_row_needs_are_told(tmp_path: Path) -> None:
    kit = core_kit()
    sent = sorted(await batch(kit, 4))
    await kit.core.deletions.delete_message(sent[1], "api", "")  # the pack is not rewritten yet
    report = await check(kit, tmp_path)
    assert (report.verdict, report.objects.unneeded.count) == ("clean", 1)
    assert report.objects.unneeded.bytes == len(b"orders 1") + 8


@pytest.mark.parametrize("prefix", ["m/orders/1/", "_mts/packs/"])
async def test_an_orphan_is_found_and_discarded(tmp_path: Path, prefix: str) -> None:
    kit, name = core_kit(), prefix + new_id(OLD)
    kit.payloads.client_put(name, b"orphan")
    report = await check(kit, tmp_path)
    assert (report.verdict, report.left, report.objects.orphans.bytes) == ("faults", {"orphan": 1}, 6)
    assert name not in kit.metadata.trash
    report = await check(kit, tmp_path, repair=True)
    assert (report.verdict, report.repaired, report.faults[0].repaired) == ("repaired", {"orphan": 1}, True)
    assert name in kit.metadata.trash
    await delete_trash(kit.core)
    assert (await check(kit, tmp_path)).verdict == "clean"


async def test_a_report_that_never_counted_is_cleared_away(tmp_path: Path) -> None:
    kit = core_kit()
    for made_at in (OLD, kit.metadata.clock.milliseconds()):
        kit.payloads.client_put(f"_mts/fsck/{new_id(made_at)}", b"{}")
    assert (await check(kit, tmp_path)).verdict == "clean"
    await delete_trash(kit.core)
    assert len([name for name in kit.payloads.objects if name.startswith("_mts/fsck/")]) == 2, "one may still count"


async def test_young_packs_and_foreign_objects_are_nobodys_orphans(tmp_path: Path) -> None:
    kit = core_kit()
    for name in ("m/orders/x", "_mts/packs/readme", "backup.tar", pack_name(new_id(kit.metadata.clock.milliseconds()))):
        kit.payloads.client_put(name, b"x")
    report = await check(kit, tmp_path, repair=True)
    assert report.verdict == "clean"
    assert report.objects.foreign.count == 2
    assert report.objects.waiting.count == 1


async def test_missing_short_and_wrong_payloads_are_found(tmp_path: Path) -> None:
    kit = core_kit()
    await plain(kit, b"lost")
    await plain(kit, b"longer")
    await batch(kit, 2)
    lost, longer, pack = names(kit)
    del kit.payloads.objects[lost]
    kit.payloads.objects[longer].body += b"!"
    kit.payloads.objects[pack].body = kit.payloads.objects[pack].body[:-1]
    report = await check(kit, tmp_path)
    assert report.left == {"missing": 1, "size": 1, "short": 1}
    report = await check(kit, tmp_path, repair=True)
    assert (report.repaired, report.left, report.quarantined) == ({"missing": 1, "short": 1}, {"size": 1}, 2)
    kit.payloads.objects[longer].body = b"longer"
    report = await check(kit, tmp_path)
    assert (report.verdict, report.quarantined) == ("clean", 2), "what is known to be lost is no news"
    kit.payloads.client_put(lost, b"lost")
    assert (await check(kit, tmp_path, repair=True)).quarantined == 1


async def test_an_upload_that_waits_and_has_lost_its_payload_is_found(tmp_path: Path) -> None:
    kit = core_kit()
    await kit.ticket(1, producer_id="p", seqno=1)
    second = (await kit.ticket(2, producer_id="p", seqno=2)).upload
    await commit_created(kit.core, kit.put(second, b"22"))
    assert (await check(kit, tmp_path)).verdict == "clean"
    del kit.payloads.objects[second.object_name]
    report = await check(kit, tmp_path, repair=True)
    assert report.left == {"missing": 1}
    assert (report.faults[0].object_name, second.id in report.faults[0].what) == (second.object_name, True)


async def test_wrong_references_and_counters_are_corrected(tmp_path: Path) -> None:
    kit = core_kit()
    await batch(kit, 2)
    (pack,) = names(kit)
    kit.metadata.uploads.objects[pack] = 5
    kit.metadata.order.lanes["orders"].messages = 9
    report = await check(kit, tmp_path)
    assert report.left == {"counters": 1, "refs": 1}
    report = await check(kit, tmp_path, repair=True)
    assert (report.verdict, report.repaired) == ("repaired", {"counters": 1, "refs": 1})
    assert (kit.metadata.uploads.objects[pack], kit.metadata.order.lanes["orders"].messages) == (1, 2)
    assert (await check(kit, tmp_path)).verdict == "clean"


async def test_a_pack_that_is_counted_but_not_needed_goes(tmp_path: Path) -> None:
    kit = core_kit()
    name = pack_name(new_id(OLD))
    kit.payloads.client_put(name, b"x")
    kit.metadata.uploads.objects[name] = 1
    assert (await check(kit, tmp_path, repair=True)).repaired == {"refs": 1}
    assert name in kit.metadata.trash


async def test_damage_is_found_by_reading(tmp_path: Path) -> None:
    kit = core_kit()
    await batch(kit, 3)
    (pack,) = names(kit)
    body = bytearray(kit.payloads.objects[pack].body)
    body[-2] ^= 4
    kit.payloads.objects[pack].body = bytes(body)
    assert (await check(kit, tmp_path, sample=0)).verdict == "clean"
    report = await check(kit, tmp_path, deep=True, repair=True)
    assert (report.verdict, report.left, report.checked.objects) == ("faults", {"damaged": 1}, 1)
    assert report.faults[0].object_name == pack


async def test_a_ceiling_below_the_sequence_is_a_fault(tmp_path: Path) -> None:
    kit = core_kit()
    await batch(kit, 3)
    kit.payloads.client_put("_mts/ceiling/00000000000000000002", b"")
    assert (await check(kit, tmp_path)).left == {"ceiling": 1}


async def test_killed_at_any_step_a_check_goes_on_and_its_repair_is_done_once(tmp_path: Path) -> None:
    step, survived = 0, False
    while not survived:
        step += 1
        kit = core_kit()
        await batch(kit, 3)
        await plain(kit, b"lost")
        del kit.payloads.objects[names(kit)[1]]
        kit.payloads.client_put(f"m/orders/1/{new_id(OLD)}", b"orphan")
        kit.metadata.order.lanes["orders"].bytes = 1
        audit, payloads, fuse = kit.core.audit, kit.core.payloads, Fuse(step, after=step % 2 == 0)
        kit.core.audit = cast(AuditStore, fuse.before(audit))
        kit.core.payloads = cast(PayloadStore, fuse.before(payloads))
        book = Book(tmp_path / f"{step}.sqlite")
        try:
            await check_consistency(kit.core, book, Options(repair=True, deep=True), quiet)
            survived = True
        except KilledError:
            pass
        book.close()
        kit.core.audit, kit.core.payloads = audit, payloads
        if not survived:
            again = Book(tmp_path / f"{step}.sqlite")
            report = await check_consistency(kit.core, again, Options(repair=True, deep=True), quiet)
            again.delete()
            assert not report.left, f"step {step}: {report.faults}"
        await delete_trash(kit.core)
        report = await check(kit, tmp_path, deep=True)
        assert (report.verdict, report.quarantined) == ("clean", 1), f"step {step}: {report.faults}"
    assert step > 20


class Busy:
    """Stands before a port: before and after each call, the stream lives on."""

    def __init__(self, port: object, live: Callable[[], Awaitable[None]]) -> None:
        self._port = port
        self._live = live

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)

        async def call(*arguments: Any, **named: Any) -> Any:
            await self._live()
            result = await method(*arguments, **named)
            await self._live()
            return result

        return call


@pytest.mark.parametrize("seed", range(30))
async def test_no_false_alarm_while_everything_goes_on(tmp_path: Path, seed: int) -> None:
    kit, dice = core_kit(), random.Random(seed)
    for _ in range(5):
        await batch(kit, 3)
        await plain(kit, b"payload")
    audit, payloads = kit.core.audit, kit.core.payloads

    async def live() -> None:
        kit.core.audit, kit.core.payloads = audit, payloads
        sequences = [row.sequence for row in kit.metadata.order.rows]
        action = dice.randrange(7)
        if action == 0:
            await publish_batch(kit.core, [InlineMessage("orders", b"data", "text/plain")] * 2)
        elif action == 1:
            await plain(kit, b"more")
        elif action == 2 and sequences:
            await delete_message(kit.core, dice.choice(sequences), "api", "")
        elif action == 3 and dice.random() < 0.2:
            await purge_subject(kit.core, "orders", "api", "")
        elif action == 4 and sequences:
            await kit.core.deletions.delete_message(dice.choice(sequences), "api", "")
        elif action == 5:
            ticket = await kit.ticket(3)
            if dice.random() < 0.5:
                kit.payloads.client_put(ticket.upload.object_name, b"abc")
            if dice.random() < 0.5:
                await kit.metadata.abort_upload(ticket.upload.id)
        else:
            await delete_trash(kit.core)
        kit.core.audit = cast(AuditStore, Busy(audit, live))
        kit.core.payloads = cast(PayloadStore, Busy(payloads, live))

    kit.core.audit = cast(AuditStore, Busy(audit, live))
    kit.core.payloads = cast(PayloadStore, Busy(payloads, live))
    report = await check(kit, tmp_path, deep=True)
    assert report.verdict == "clean", report.faults


def test_names_say_whose_an_object_is() -> None:
    upload = new_id(OLD)
    assert kind_of(f"m/orders/1/{upload}") == "payload"
    assert kind_of(f"_mts/packs/{upload}") == "pack"
    assert kind_of(f"_mts/deletions/{upload}") == "record"
    assert kind_of("_mts/journal/1-2-x") == "system"
    assert [kind_of(name) for name in ("m/orders/1/x", "else", "m/")] == ["foreign"] * 3


async def test_a_payload_in_the_trash_that_a_row_needs_is_found_and_taken_out(tmp_path: Path) -> None:
    kit = core_kit()
    await plain(kit, b"12345")
    (row,) = kit.metadata.order.rows
    kit.metadata.uploads.discard(row.object_name, "by mistake")
    report = await check(kit, tmp_path)
    assert (report.verdict, report.left) == ("faults", {"doomed": 1})
    report = await check(kit, tmp_path, repair=True)
    assert (report.verdict, report.repaired) == ("repaired", {"doomed": 1})
    assert (await check(kit, tmp_path)).verdict == "clean"
    assert row.object_name not in kit.metadata.trash
