"""AWS: events that could not be handled, and what a month there costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from minitoolstream.aws.cost import Use, costs_of, load_prices
from minitoolstream.aws.letters import Letter, open_queues, read_letters, redrive
from minitoolstream.cli.options import parse_size
from minitoolstream.cli.output import Exit, emit, json_option, note
from minitoolstream.cli.shapes import table, when_text
from minitoolstream.config import Settings, env_name, load_settings
from minitoolstream.domain.errors import MtsError

_SHOWN = 60


@click.group()
def aws() -> None:
    """On AWS: events of the bucket that could not be handled.

    With the credentials that the AWS command line would use (AWS_PROFILE, AWS_ACCESS_KEY_ID ...).
    """


def _url(settings: Settings, key: str, given: str | None) -> str:
    url = given or settings[key]
    if not url:
        raise MtsError("not_configured", f"which queue? Give its URL, or set {env_name(key)}; Terraform prints it")
    return str(url)


def _queues(settings: Settings) -> Any:
    return open_queues(settings["aws.endpoint"], settings["minio.region"])


_FROM_HELP = "Queue of dead letters; else that of MTS_AWS_DEAD_LETTERS."
_FROM = click.option("--from", "dead_url", metavar="URL", help=_FROM_HELP)
_LIMIT = click.option("--limit", default=1000, show_default=True, type=click.IntRange(1), help="How many at most.")


@aws.command("letters")
@_FROM
@_LIMIT
@json_option
def letters(dead_url: str | None, limit: int, as_json: bool) -> None:
    """Show events that ended as dead letters, and why. Exit code 3 when there are none."""
    settings = load_settings()
    found = read_letters(_queues(settings), _url(settings, "aws.dead_letters", dead_url), limit)
    shown = [{"id": one.id, "sent_at": one.sent_at, "reason": one.reason, "body": one.body} for one in found]
    if as_json or found:
        emit(as_json, {"letters": shown}, lambda: _letters_text(found))
    if not found:
        if not as_json:
            note("there are no dead letters")
        click.get_current_context().exit(Exit.NOT_FOUND)


def _letters_text(found: Sequence[Letter]) -> str:
    rows = [
        (when_text(int(one.sent_at)), one.reason, one.body if len(one.body) <= _SHOWN else f"{one.body[:_SHOWN]}…")
        for one in found
    ]
    return table(("TIME", "REASON", "EVENT"), rows)


@aws.command("redrive")
@_FROM
@click.option("--to", "url", metavar="URL", help="Queue of events; else that of MTS_OBJECT_STORE_QUEUE_URL.")
@_LIMIT
@json_option
def redrive_letters(dead_url: str | None, url: str | None, limit: int, as_json: bool) -> None:
    """Send dead letters back to the queue of events, to be handled again."""
    settings = load_settings()
    dead, queue = _url(settings, "aws.dead_letters", dead_url), _url(settings, "object_store.queue_url", url)
    count = redrive(_queues(settings), dead, queue, limit)
    emit(as_json, {"redriven": count}, f"redriven: {count}")


@click.command()
@click.option("--messages", default=1_000_000, show_default=True, type=click.IntRange(1), help="Published in a month.")
@click.option("--size", default="10KB", show_default=True, callback=parse_size, help="Of one, such as 10KB or 1GiB.")
@click.option(
    "--way",
    type=click.Choice(["ticket", "inline", "batch"]),
    default="ticket",
    show_default=True,
    help="How they are published: with a ticket each, inline, or in batches of up to 1,000 and 4 MiB.",
)
@click.option("--reads", default=1.0, show_default=True, type=click.FloatRange(0), help="How often each is downloaded.")
@click.option("--days", default=1.0, show_default=True, type=click.FloatRange(0), help="How long each stays.")
@click.option("--outside", is_flag=True, help="Readers are outside of AWS: what they download is paid for.")
@click.option("--prices", type=click.Path(dir_okay=False, path_type=Path), help="Your prices, as --show-prices prints.")
@click.option("--show-prices", is_flag=True, help="Print the prices that are used, as JSON, and nothing else.")
@json_option
def cost(  # noqa: PLR0917 - one for each option
    messages: int,
    size: int,
    way: str,
    reads: float,
    days: float,
    outside: bool,
    prices: Path | None,
    show_prices: bool,
    as_json: bool,
) -> None:
    """What a month on AWS costs: requests, storage, functions, the machines.

    Prices are inputs with a date and a region, not asked of AWS: look at `--show-prices`, and give your own.
    """
    known = load_prices(prices)
    if show_prices:
        emit(True, known.shown(), "")
        return
    lines = costs_of(Use(messages, size, way, reads, days, outside=outside), known)
    total = sum(line.dollars for line in lines)
    by_use = sum(line.dollars for line in lines if not line.fixed)
    gigabytes = messages * size / 1e9
    shown = {
        "prices": {"date": known.date, "region": known.region},
        "lines": [{"what": line.what, "quantity": line.quantity, "dollars": round(line.dollars, 4)} for line in lines],
        "total": round(total, 2),
        "per_million_messages": round(by_use / messages * 1e6, 2),
        "per_terabyte": round(by_use / gigabytes * 1000, 2) if gigabytes else None,
    }
    emit(as_json, shown, lambda: _cost_text(shown))


def _cost_text(shown: dict[str, Any]) -> str:
    rows = [(line["what"], line["quantity"], f"{line['dollars']:.2f}") for line in shown["lines"]]
    text = table(("WHAT", "HOW MUCH", "$ A MONTH"), rows, numbers=(2,))
    per_tb = "" if shown["per_terabyte"] is None else f", {shown['per_terabyte']:.2f} $ a TB"
    return (
        f"{text}\n\ntotal {shown['total']:.2f} $ a month; without the machines {shown['per_million_messages']:.2f} $ "
        f"a million messages{per_tb}\nprices of {shown['prices']['region']}, {shown['prices']['date']}"
    )


COMMANDS: list[click.Command] = [aws, cost]
