"""What stands before the transactions of Tarantool: packs that hold some of them, batches, metrics, receipts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pack import AlikeMessages, InlineMessage, build_alike_pack, build_pack
from minitoolstream.domain.transaction import Transaction, TransactionReceipt
from minitoolstream.domain.upload import Receipt, State
from minitoolstream.ports import GroupResults, PackResult
from minitoolstream.services.get_receipt import get_receipt
from minitoolstream.services.publish_batch import publish_batch
from minitoolstream.services.run_transaction import commit_transaction
from tests.core_kit import CoreKit, core_kit

ID, OTHER = "01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-ac96-774b-bcce-b302099a8058"


def message(data: bytes, transaction_id: str | None = None, subject: str = "s") -> InlineMessage:
    return InlineMessage(subject, data, "text/plain", transaction_id=transaction_id)


def test_messages_of_a_transaction_are_groups_of_their_own() -> None:
    messages = [
        message(b"0"),
        message(b"1", ID),
        message(b"2", ID),
        message(b"3"),
        message(b"4", OTHER),
        message(b"5", OTHER, "t"),
    ]
    groups = build_pack(messages).groups
    assert [(group.transaction_id, list(group.indexes)) for group in groups] == [
        (None, [0, 3]),
        (ID, [1, 2]),
        (OTHER, [4]),
        (OTHER, [5]),
    ]


def test_alike_messages_are_in_their_transaction() -> None:
    (group,) = build_alike_pack(AlikeMessages(message(b"", ID), [b"1", b"2"])).groups
    assert group.transaction_id == ID


@pytest.fixture
def kit() -> CoreKit:
    return core_kit()


def refuse_packs(kit: CoreKit, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = PackResult(None, MtsError("transaction_too_large", "no room"))

    async def commit_pack(_name: str, groups: Any, *, all_or_none: bool) -> list[GroupResults]:
        assert all_or_none, "a batch is marked as one"
        return [GroupResults([refused] * len(group.sizes)) for group in groups]

    monkeypatch.setattr(kit.metadata, "commit_pack", commit_pack)


def test_a_batch_in_a_transaction_fails_as_a_whole(kit: CoreKit, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_packs(kit, monkeypatch)
    batches: tuple[AlikeMessages | list[InlineMessage | MtsError], ...] = (
        AlikeMessages(message(b"", ID), [b"1", b"2"]),
        [message(b"1", ID), message(b"2", ID)],
    )
    for items in batches:
        with pytest.raises(MtsError) as raised:
            asyncio.run(publish_batch(kit.core, items))
        assert raised.value.code == "transaction_too_large"


def test_a_bad_item_of_such_a_batch_is_named_and_nothing_is_stored(kit: CoreKit) -> None:
    items: list[InlineMessage | MtsError] = [message(b"1", ID), MtsError("bad_request", "no")]
    with pytest.raises(MtsError, match="item 1: no"):
        asyncio.run(publish_batch(kit.core, items))
    assert not kit.payloads.objects


def test_a_repeated_commit_is_counted_once(kit: CoreKit) -> None:
    receipts = (TransactionReceipt("u", 3, 0, 2, 3),)
    answers = [Transaction(ID, "committed", 0, 1, None, receipts, repeated) for repeated in (False, True)]
    kit.transactions.answers["commit"] = lambda _id: answers.pop(0)

    async def commit_twice() -> None:
        for _ in range(2):
            await commit_transaction(kit.core, ID)

    asyncio.run(commit_twice())
    assert kit.metrics.messages_committed == 3


def test_a_receipt_that_waits_for_its_transaction_is_not_waited_for(
    kit: CoreKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = Receipt(State.STORED, "u", transaction_id=ID)

    async def get_upload(_upload_id: str) -> Any:
        return None, receipt

    monkeypatch.setattr(kit.metadata, "get_upload", get_upload)
    assert asyncio.run(asyncio.wait_for(get_receipt(kit.core, "u", wait=20), 5)) is receipt
