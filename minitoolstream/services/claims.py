"""Shares of work: a claim is given to one holder at a time, and ends by itself."""

from __future__ import annotations

from datetime import timedelta

from minitoolstream.domain.catalog_tables import CLAIMS
from minitoolstream.services.core import Core

SECONDS = 60.0
"""How long a claim lasts unless it is taken again."""


async def take_claim(core: Core, name: str, holder: str, place: str | None = None) -> bool:
    """Also for longer, by who has it, and then with the place where its work is. False while another has it."""
    now = core.wall()
    row = {"name": name, "holder": holder, "until": now + timedelta(seconds=SECONDS), **_place(place)}
    # Most have been claimed before: a look costs less than a condition that does not hold.
    there = await core.catalog.get(CLAIMS, (name,)) or await core.catalog.put_new(CLAIMS, row)
    if there is None:
        return True
    until = there["until"]
    # One that ends long after it could is of a clock that was ahead.
    if there["holder"] != holder and until is not None and now < until <= now + timedelta(seconds=2 * SECONDS):
        return False
    expected = {"holder": there["holder"], "until": there["until"]}
    return await core.catalog.put_if(CLAIMS, row, expected) is None


async def give_up_claim(core: Core, name: str, holder: str, place: str | None = None) -> None:
    row = {"name": name, "holder": holder, "until": core.wall(), **_place(place)}
    await core.catalog.put_if(CLAIMS, row, {"holder": holder})


def _place(place: str | None) -> dict[str, str]:
    """None leaves it as it is."""
    return {} if place is None else {"place": place}


async def end_claim(core: Core, name: str, holder: str) -> None:
    """The work under it is done for ever: nothing of it stays."""
    await core.catalog.delete_if(CLAIMS, (name,), {"holder": holder})


async def place_of(core: Core, name: str) -> str | None:
    """Where the work under this claim goes on."""
    row = await core.catalog.get(CLAIMS, (name,))
    return row["place"] if row else None


async def set_place(core: Core, name: str, holder: str, place: str | None) -> bool:
    """Only by who has the claim."""
    return await core.catalog.put_if(CLAIMS, {"name": name, "place": place}, {"holder": holder}) is None
