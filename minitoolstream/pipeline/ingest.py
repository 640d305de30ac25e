"""Event ingest: a subject's range, or a window of time, becomes a registered file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec

from minitoolstream.client import Client
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.subject import check_subject
from minitoolstream.domain.tracking import check_filename, check_shards
from minitoolstream.pipeline.events import check_key, event_of, line_of
from minitoolstream.pipeline.files import events_name, find, is_there, plan_name, put_once
from minitoolstream.pipeline.places import Place

_NAME = "%Y%m%d%H%M%S"
_SETTLED = timedelta(seconds=2)
"""After its end a window may still get what was being committed."""


class Plan(msgspec.Struct, omit_defaults=True):
    """What a file holds, decided once: `first` to `last` of a subject, which is what was `wanted` then, and how its
    messages are spread over shards."""

    subject: str
    wanted: str
    first: int
    last: int
    shards: list[int]
    key: str


@dataclass(frozen=True, slots=True)
class Range:
    """Sequences from `first` to `last`; without a last, up to what is the latest."""

    first: int = 1
    last: int | None = None

    def __str__(self) -> str:
        return f"{self.first}-{self.last or ''}"


@dataclass(frozen=True, slots=True)
class Window:
    """The tumbling window of `seconds` that `moment` lies in, counted from 1970."""

    seconds: int
    moment: datetime

    def __post_init__(self) -> None:
        if not 1 <= self.seconds <= 366 * 86400:
            raise bad_request("a window is 1 second to 366 days long", field="window")

    def __str__(self) -> str:
        return f"{self.start.isoformat()} {self.seconds}s"

    @property
    def start(self) -> datetime:
        at = int(self.moment.timestamp())
        return datetime.fromtimestamp(at - at % self.seconds, UTC)

    @property
    def end(self) -> datetime:
        return self.start + timedelta(seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class Ingested:
    """`messages` is None when an earlier run had written the file."""

    filename: str
    plan: Plan
    created: bool
    messages: int | None
    url: str


def last_window(seconds: int, now: datetime) -> Window:
    """The last one that is over, by the server's time: it is the server that tells when a message came."""
    return Window(seconds, now - _SETTLED - timedelta(seconds=seconds))


def ingest(
    client: Client,
    files: Place,
    subject: str,
    wanted: Range | Window,
    *,
    shards: Sequence[int],
    key: str,
    filename: str | None = None,
) -> Ingested | None:
    """None when there is no message. Called again after whatever happened, it goes on and ends the same."""
    check_subject(subject)
    if isinstance(wanted, Window):
        if wanted.end + _SETTLED > client.server_time(subject):
            raise bad_request(f"the window until {wanted.end.isoformat()} is not over yet", field="window")
        filename = filename or wanted.start.strftime(_NAME)
    elif wanted.last is not None and wanted.last < wanted.first:
        raise bad_request(f"the range is empty: {wanted.last} comes before {wanted.first}", field="to")
    planned = Plan(subject, str(wanted), 0, 0, list(check_shards(shards)), check_key(key))
    known = _known(files, filename, planned) if filename else None
    if known is None:
        made = _resolve(client, wanted, planned)
        if made is None:
            return None
        plan, begun = made
        filename = check_filename(filename or datetime.fromtimestamp(begun, UTC).strftime(_NAME))
        put_once(files, plan_name(filename), (msgspec.json.encode(plan),))
        known = _known(files, filename, planned)
        assert known is not None
    assert filename is not None
    created = client.pipeline.register(filename, known.shards)
    messages = _write(client, files, filename, known)
    client.pipeline.finish_ingest(filename)
    return Ingested(filename, known, created, messages, files.url(events_name(filename)))


def read_plan(files: Place, filename: str) -> Plan:
    found = find(files, plan_name(filename))
    if found is None:
        raise MtsError("bad_event_file", f"{filename} has no plan: {files.url(plan_name(filename))} is missing")
    try:
        return msgspec.json.decode(found, type=Plan)
    except msgspec.DecodeError as error:
        raise MtsError("bad_event_file", f"{plan_name(filename)} is no plan: {error}") from None


def _known(files: Place, filename: str, planned: Plan) -> Plan | None:
    """The plan that is there already; it must be for what is wanted."""
    if find(files, plan_name(check_filename(filename))) is None:
        return None
    known = read_plan(files, filename)
    if msgspec.structs.replace(known, first=0, last=0) != planned:
        raise MtsError(
            "already_exists",
            f"{filename} is a file of {known.first} to {known.last} of {known.subject}, over {len(known.shards)} "
            f"shards by {known.key}; give this one another name",
            {"filename": filename},
        )
    return known


def _resolve(client: Client, wanted: Range | Window, planned: Plan) -> tuple[Plan, int] | None:
    """The plan with its sequences, and the time of its first message."""
    start = wanted.start if isinstance(wanted, Window) else wanted.first
    page = client.fetch(planned.subject, start=start, limit=1)
    if not page.messages:
        return None
    first, last = page.messages[0], page.latest_sequence
    if isinstance(wanted, Window):
        behind = client.fetch(planned.subject, start=wanted.end, limit=1).messages
        last = behind[0].sequence - 1 if behind else last
    elif wanted.last is not None:
        last = min(last, wanted.last)
    if first.sequence > last:
        return None
    return msgspec.structs.replace(planned, first=first.sequence, last=last), first.create_at


def _write(client: Client, files: Place, filename: str, plan: Plan) -> int | None:
    if is_there(files, events_name(filename)):
        return None
    written = 0

    def lines() -> Iterator[bytes]:
        nonlocal written
        for message in client.read(plan.subject, start=plan.first):
            if message.sequence > plan.last:
                break
            written += 1
            yield line_of(event_of(message))

    return written if put_once(files, events_name(filename), lines()) else None
