"""Retention, for people."""

from __future__ import annotations

from collections.abc import Iterator

from minitoolstream.cli.progress import human_size
from minitoolstream.cli.shapes import fields_text, life_text, table, when_text
from minitoolstream.domain.retention import Hold, Retention


def status_text(found: Retention) -> str:
    text = fields_text(
        [
            ("messages expire", "yes" if found.enabled else "no"),
            ("default", life_text(found.default_ttl)),
            ("channels", ", ".join(f"{name} {life_text(life)}" for name, life in sorted(found.channels.items()))),
            ("looked for every", life_text(found.check_interval)),
            ("last look ended", when_text(found.last_round_at) or "not yet"),
            ("trash", f"{found.trash} objects"),
            ("next one goes", when_text(found.trash_due_at)),
            ("payloads outlive messages by", life_text(found.trash_grace)),
            ("clocks", _clocks_text(found)),
        ]
    )
    return f"{text}\n\n{_holds_text(found.holds)}" if found.holds else text


def _clocks_text(found: Retention) -> str:
    if found.clocks_agree:
        return ""
    if found.drift_ms is None:
        return "not compared yet: nothing expires"
    return f"differ by {found.drift_ms / 1000:.0f} s: nothing expires"


def _holds_text(holds: list[Hold]) -> str:
    rows = [
        (
            hold.subject,
            hold.durable,
            f"{'about ' if hold.estimated else ''}{hold.messages}",
            human_size(hold.bytes),
            when_text(hold.oldest_at),
        )
        for hold in holds
    ]
    return table(("SUBJECT", "HELD BACK BY", "MESSAGES", "SIZE", "OLDEST"), rows, numbers=(2, 3))


def attention_lines(found: Retention) -> Iterator[str]:
    """What `mts status` says of it: the last sweep and the trash, and what keeps messages from expiring."""
    swept = when_text(found.last_round_at) or "not yet"
    state = f"last sweep: {swept}" if found.enabled else "messages do not expire: TTL is off"
    yield f"{state}; trash: {found.trash} objects"
    if clocks := _clocks_text(found):
        yield f"! clocks: {clocks}"
    for hold in found.holds:
        about = "about " if hold.estimated else ""
        size = human_size(hold.bytes)
        yield f"! {hold.durable} holds back {about}{hold.messages} messages ({size}) of {hold.subject}"
