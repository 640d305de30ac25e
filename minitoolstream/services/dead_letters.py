"""Dead letters: messages whose tries were used up, kept by reference until somebody replays or removes them."""

from __future__ import annotations

from collections.abc import Sequence

from minitoolstream.domain.consumer import Start
from minitoolstream.services.core import Core
from minitoolstream.services.fetch_messages import Page, Selection, resolve_start, signed_page

_AT_ONCE = 500


async def read_dead_letters(core: Core, selection: Selection, start: Start) -> Page:
    """Those that came from a subject, wherever its durables let them go; of a dead-letter subject, all in it."""
    names = await core.deliveries.dead_letter_subjects(selection.subject)
    places = [await resolve_start(core, name, start) for name in names]
    first = max(places) if start == "last" else min(places)
    found = await core.deliveries.dead_letters(selection.subject, max(first, 1), selection.limit)
    page = await signed_page(core, found, selection)
    core.metrics.delivered(page.count)
    return page


async def replay_dead_letters(core: Core, subject: str, sequences: Sequence[int] | None) -> tuple[int, bool]:
    """Publish them again where they came from; how many, and whether more are left."""
    return await core.deliveries.replay_dead_letters(subject, sequences, _AT_ONCE)


async def purge_dead_letters(core: Core, subject: str) -> tuple[int, bool]:
    return await core.deliveries.purge_dead_letters(subject, _AT_ONCE)
