"""The media types that are ours, or that mean something to us."""

from __future__ import annotations

JSON_MESSAGE = "application/vnd.mts.message+json"
"""One message with its facts, as JSON."""
FRAMES = "application/vnd.mts.frames"
"""A batch: metadata and payload of each message, with their lengths before them."""
JSON_LINES = "application/x-ndjson"
"""A batch: a message a line."""
