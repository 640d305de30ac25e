"""Commands that talk to a running host: publish, read, look at uploads."""

from __future__ import annotations

import click

COMMANDS: list[click.Command] = []
