"""A subject on its way out, or in: to and from a folder or a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click
import msgspec

from minitoolstream.cli.legacy_command import import_legacy
from minitoolstream.cli.options import open_client
from minitoolstream.cli.output import emit, json_option, note
from minitoolstream.cli.progress import StepLine, human_size
from minitoolstream.cli.s3_place import S3Place
from minitoolstream.config import load_settings

_GO_ON = "run the same command again to go on where it stopped"


@contextmanager
def _place(given: str) -> Iterator[str | S3Place]:
    if not given.startswith("s3://"):
        yield given
        return
    place = S3Place(load_settings(), given)
    try:
        yield place
    finally:
        place.close()


@contextmanager
def _told() -> Iterator[StepLine]:
    line = StepLine()
    try:
        yield line
    except KeyboardInterrupt:
        line.end()
        note(_GO_ON)
        raise
    finally:
        line.end()


@click.command("export")
@click.argument("subject")
@click.argument("target", metavar="DIR|s3://BUCKET/PREFIX")
@json_option
def export_subject(subject: str, target: str, as_json: bool) -> None:
    """Save all messages of SUBJECT to a folder or a bucket.

    In order, with headers, content types, codecs, times and sequences. After an interruption, the same command goes
    on. docs/export.md describes the files.

    \b
    mts export orders backup/orders
    mts export orders s3://archive/orders
    """
    with _place(target) as place, open_client() as client, _told() as line:
        done = client.export_subject(subject, place, progress=lambda n, total: line.show("exported", n, total))
    lost = f"; {done.missing} have lost their payload" if done.missing else ""
    emit(
        as_json,
        msgspec.to_builtins(done),
        f"exported: {done.messages} messages of {subject}, {human_size(done.bytes)}{lost}",
    )


class _ByDefault(click.Group):
    """`mts import DIR` is `mts import files DIR`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "-h", "--help"}:
            args = ["files", *args]
        return super().parse_args(ctx, args)


@click.group("import", cls=_ByDefault)
def import_group() -> None:
    """Take in an export, or a whole installation of the first server.

    \b
    mts import backup/orders
    mts import legacy --tarantool old:3301 --bucket minitoolstream
    """


@import_group.command("files")
@click.argument("source", metavar="DIR|s3://BUCKET/PREFIX")
@click.option("--subject", help="Publish to this subject instead of the one it came from.")
@json_option
def import_subject(source: str, subject: str | None, as_json: bool) -> None:
    """Publish the messages of an export again, in the same order.

    Sizes and checksums are checked. After an interruption, the same command goes on, and nothing is stored twice.
    Messages get new sequences and times.
    """
    with _place(source) as place, open_client() as client, _told() as line:
        done = client.import_subject(place, subject, progress=lambda n, total: line.show("imported", n, total))
    before = f", {done.skipped} were there already" if done.skipped else ""
    lost = f", {done.missing} had no payload" if done.missing else ""
    emit(as_json, msgspec.to_builtins(done), f"imported: {done.messages} messages to {done.subject}{before}{lost}")


import_group.add_command(import_legacy)

COMMANDS: list[click.Command] = [export_subject, import_group]
