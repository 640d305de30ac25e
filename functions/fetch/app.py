"""Reading: pages of messages, single ones, the latest sequence."""

from __future__ import annotations

from minitoolstream.api import parse, schema, show
from minitoolstream.api.app import App, Request, Response, answer
from minitoolstream.domain.checks import check_number
from minitoolstream.domain.message import wire_number
from minitoolstream.services.describe import latest_sequence, list_subjects
from minitoolstream.services.fetch_messages import fetch_extents, fetch_messages, get_message, resolve_start

app = App("fetch")

INLINE = ({"type": "boolean"}, "bring small payloads along, as base64")


@app.endpoint(
    "GET",
    "/v1/subjects/{subject}/messages",
    "A page of messages with presigned download URLs",
    response=schema.Page | schema.ExtentPage,
    query={
        "start": ({"type": "string"}, "a sequence, or first, last, new"),
        "limit": ({"type": "integer", "minimum": 1, "maximum": 1000}, "how many messages at most"),
        "partition": ({"type": "integer", "minimum": 0}, "only this partition"),
        "inline": INLINE,
        "view": ({"type": "string", "enum": ["messages", "extents"]}, "extents: one URL for a whole pack"),
    },
)
async def read_messages(request: Request) -> Response:
    subject, query = parse.subject_of(request), request.query
    limit, partition = parse.limit_of(query), parse.partition_of(query)
    view = parse.choice_of(query, "view", ("messages", "extents"))
    inline = parse.flag_of(query, "inline")
    start = await resolve_start(request.core, subject, parse.start_of(query))
    if view == "extents":
        return answer(show.extents(await fetch_extents(request.core, subject, start, limit, partition=partition)))
    page = await fetch_messages(request.core, subject, start, limit, partition=partition, inline=inline)
    return answer(show.page(page))


@app.endpoint(
    "GET", "/v1/messages/{sequence}", "One message by its sequence", response=schema.Message, query={"inline": INLINE}
)
async def read_message(request: Request) -> Response:
    sequence = check_number(request.params["sequence"], "sequence")
    return answer(await get_message(request.core, sequence, inline=parse.flag_of(request.query, "inline")))


@app.endpoint("GET", "/v1/subjects/{subject}/latest", "The last sequence of a subject", response=schema.Latest)
async def read_latest(request: Request) -> Response:
    subject = parse.subject_of(request)
    return answer(schema.Latest(subject, wire_number(await latest_sequence(request.core, subject))))


@app.endpoint(
    "GET",
    "/v1/subjects",
    "Subjects with their counters",
    response=schema.Subjects,
    query={
        "after": ({"type": "string"}, "names behind this one"),
        "limit": ({"type": "integer", "minimum": 1, "maximum": 1000}, "how many at most"),
    },
)
async def read_subjects(request: Request) -> Response:
    found = await list_subjects(request.core, request.query.get("after", ""), parse.limit_of(request.query))
    return answer({"subjects": found})
