"""Server-Sent Events: a stream of messages that a reader goes on with by `Last-Event-ID` when it was cut off."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from minitoolstream.api import show
from minitoolstream.api.app import Response
from minitoolstream.api.errors import error_body
from minitoolstream.api.parse_delivery import EVENT_STREAM
from minitoolstream.domain.errors import MtsError
from minitoolstream.services.core import Core
from minitoolstream.services.fetch_messages import MessagePage
from minitoolstream.services.read_messages import Place, Reading
from minitoolstream.services.wait_for_messages import follow_messages

HEARTBEAT_SECONDS = 15.0
RETRY_MS = 1000
_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


def event_stream(core: Core, place: Place) -> Response:
    # A proxy that collects an answer before it passes it on would hold back every event.
    headers = {"content-type": EVENT_STREAM, "cache-control": "no-store", "x-accel-buffering": "no"}
    return Response(b"", 200, headers, stream=_events(core, place))


async def _events(core: Core, place: Place) -> AsyncGenerator[bytes, None]:
    """Page by page, each when the one before was taken: a slow reader costs one page of memory."""
    # The id comes first: a reader that is cut off before its first message must not begin at `new` again.
    yield b"retry: %d\n%b" % (RETRY_MS, _resume_at(place))
    try:
        async with aclosing(follow_messages(core, place, HEARTBEAT_SECONDS)) as readings:
            async for reading in readings:
                if reading is None:
                    # What a filter left out counts as read, so the id goes on with the comment.
                    yield b":\n" + _resume_at(place)
                else:
                    yield events_of(reading)
    except MtsError as error:
        yield b"event: error\ndata: %b\n\n" % _encode(error_body(error))
    except Exception:
        _log.exception("a stream of events failed")
        failed = MtsError("internal", "something went wrong on our side; connect again")
        yield b"event: error\ndata: %b\n\n" % _encode(error_body(failed))


def _resume_at(place: Place) -> bytes:
    """An id without data sets what the reader will send as Last-Event-ID, and is no event."""
    return b"id: %d%b\n\n" % (max(place.next_sequence - 1, 0), _fence(place.fence))


def _fence(fence: int | None) -> bytes:
    """Behind a sequence of a durable: whoever comes back with the id is known to have read before a seek."""
    return b"" if fence is None else b":%d" % fence


def events_of(reading: Reading) -> bytes:
    """Its messages as events, encoded once for all who get this page with this fence."""
    page, fence = reading.page, _fence(reading.fence)
    form = f"events{fence.decode()}"
    encoded = page.forms.get(form)
    if encoded is None:
        name, items = (
            (b"message", page.messages) if isinstance(page, MessagePage) else (b"extent", show.extents(page).extents)
        )
        # JSON has no raw line break, so one data line holds it.
        encoded = b"".join(
            b"id: %d%b\nevent: %b\ndata: %b\n\n" % (int(item.sequence), fence, name, _encode(item)) for item in items
        )
        page.forms[form] = encoded
    return encoded
