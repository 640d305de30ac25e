"""Many small messages in one call: one pack, one commit, a result each."""

from __future__ import annotations

from collections.abc import Sequence

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pack import AlikeMessages, InlineMessage, Pack, build_alike_pack
from minitoolstream.ports import PackResult
from minitoolstream.services.core import Core


async def publish_batch(core: Core, items: AlikeMessages | Sequence[InlineMessage | MtsError]) -> list[PackResult]:
    """A result for each item. One that is wrong by itself keeps its error and does not stop the others."""
    if isinstance(items, AlikeMessages):
        in_transaction = items.like.transaction_id is not None
        results = await _store(core, build_alike_pack(items), all_or_none=in_transaction)
        return _all_stored(results) if in_transaction else results
    messages = [item for item in items if isinstance(item, InlineMessage)]
    if any(message.transaction_id is not None for message in messages):
        return await _stage(core, items)
    stored = iter(await _store(core, core.packer.writer.build(messages)) if messages else ())
    return [PackResult(None, item) if isinstance(item, MtsError) else next(stored) for item in items]


async def _store(core: Core, pack: Pack, *, all_or_none: bool = False) -> list[PackResult]:
    name = await core.packer.writer.put(pack)
    return await core.packer.writer.commit(name, pack, all_or_none=all_or_none)


async def _stage(core: Core, items: Sequence[InlineMessage | MtsError]) -> list[PackResult]:
    """A batch in a transaction: all of it, or the error that stands in its way."""
    messages = []
    for index, item in enumerate(items):
        if isinstance(item, MtsError):
            raise MtsError(item.code, f"item {index}: {item.message}", {**item.details, "index": index})
        messages.append(item)
    return _all_stored(await _store(core, core.packer.writer.build(messages), all_or_none=True))


def _all_stored(results: list[PackResult]) -> list[PackResult]:
    for result in results:
        if result.error is not None:
            raise result.error
    return results
