"""`mts import legacy`: an installation of the first server becomes ours."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from minitoolstream.cli.output import emit, json_option, note
from minitoolstream.cli.progress import StepLine, human_size
from minitoolstream.config import Settings, load_settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.setting_values import address, bucket_name, endpoint

if TYPE_CHECKING:
    from minitoolstream.bootstrap import LegacyPlace
    from minitoolstream.services.import_legacy import ImportReport

_USER = "minitoolstream_connector"


@click.command("legacy")
@click.option("--tarantool", required=True, metavar="HOST:PORT", help="Its Tarantool; only read.")
@click.option("--user", default=_USER, show_default=True, help="A user that may read its spaces.")
@click.option("--password", envvar="MTS_LEGACY_PASSWORD", default="", help="Better in MTS_LEGACY_PASSWORD.")
@click.option("--bucket", required=True, help="Where its payloads are. In our own bucket they stay as they are.")
@click.option("--endpoint", "store", metavar="URL", help="The object store of that bucket, unless it is ours.")
@click.option("--access-key", envvar="MTS_LEGACY_ACCESS_KEY", help="For that object store.")
@click.option("--secret-key", envvar="MTS_LEGACY_SECRET_KEY", help="Better in MTS_LEGACY_SECRET_KEY.")
@json_option
def import_legacy(  # noqa: PLR0917 - click calls it by names
    tarantool: str,
    user: str,
    password: str,
    bucket: str,
    store: str | None,
    access_key: str | None,
    secret_key: str | None,
    as_json: bool,
) -> None:
    """Take over an installation of the first server: its messages, positions and payloads.

    Sequences, times and object names are kept. It needs a Tarantool of ours without messages, and nothing else is
    published until it has ended; stop the old servers first. After an interruption, the same command goes on. From
    then on the payloads are ours: they are deleted when their messages expire, so set `ttl` before.
    """
    from minitoolstream.bootstrap import LegacyPlace

    try:
        place = LegacyPlace(
            address(tarantool),
            user,
            password,
            bucket_name(bucket),
            endpoint(store) if store else None,
            access_key,
            secret_key,
        )
    except ValueError as error:
        raise MtsError("bad_request", str(error)) from None
    line = StepLine()
    try:
        report = asyncio.run(_run(load_settings(), place, line))
    except KeyboardInterrupt:
        line.end()
        note("run the same command again to go on where it stopped")
        raise
    finally:
        line.end()
    shown = {
        "messages": report.messages,
        "bytes": report.bytes,
        "already": report.already,
        "copied": report.copied,
        "missing": report.missing,
        "headers_dropped": report.headers_dropped,
        "positions": report.positions,
        "last_sequence": report.last_sequence,
        "refused": dict(report.refused),
    }
    emit(as_json, shown, lambda: _text(shown))


def _text(shown: dict[str, object]) -> str:
    lines = [
        f"imported: {shown['messages']} messages, {human_size(int(str(shown['bytes'])))}, "
        f"{shown['positions']} durables; the last sequence is {shown['last_sequence']}"
    ]
    told = {
        "already": "messages were there from an earlier run",
        "copied": "payloads were copied",
        "missing": "messages have no payload: they are marked so",
        "headers_dropped": "messages had more headers than we take, and lost them",
    }
    lines += [f"{shown[name]} {about}" for name, about in told.items() if shown[name]]
    refused = shown["refused"]
    assert isinstance(refused, dict)
    lines += [f"! left out, its name is not one of ours: {name} ({count} rows)" for name, count in refused.items()]
    return "\n".join(lines)


async def _run(settings: Settings, place: LegacyPlace, line: StepLine) -> ImportReport:
    from minitoolstream.bootstrap import open_import
    from minitoolstream.services.import_legacy import import_legacy as take_over

    parts = await open_import(settings, place)
    try:
        return await take_over(
            parts.core,
            parts.store,
            parts.source,
            payloads=parts.payloads,
            progress=lambda done, total: line.show("imported", done, total),
        )
    finally:
        await parts.close()
