"""Logs on stderr: a JSON object a line, or text for people. Never a token, a query or a signature."""

from __future__ import annotations

import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from minitoolstream.config import Settings
from minitoolstream.request_id import request_id

_SECRETS = re.compile(r"(?i)(x-amz-(?:signature|credential|security-token)=|bearer\s+)[^\s&\"']+")
_QUIET = ("asyncio", "grpc", "botocore", "boto3", "urllib3")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_encode = msgspec.json.Encoder().encode


def configure(settings: Settings) -> None:
    """Send all logs of this process to stderr, in the format of the settings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings["logging.format"] == "json" else TextFormatter())
    level = _LEVELS[settings["logging.level"]]
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    # It warns ten times a second while Tarantool is down; the requests that fail by that are logged anyway.
    logging.getLogger("asynctnt").setLevel(logging.ERROR)


def redacted(text: str) -> str:
    """Text without what would let a reader of the logs act as somebody else."""
    return _SECRETS.sub(r"\1[hidden]", text)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
            "pid": record.process,
        }
        if current := request_id.get():
            line["request_id"] = current
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = redacted(self.formatException(record.exc_info))
        return _encode(line).decode()


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {**getattr(record, "fields", {})}
        if current := request_id.get():
            fields.setdefault("request_id", current)
        words = [_time(record), f"{record.levelname.lower():7}", redacted(record.getMessage())]
        words += [f"{name}={value}" for name, value in fields.items()]
        if record.exc_info:
            words.append("\n" + redacted(self.formatException(record.exc_info)))
        return " ".join(words)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
