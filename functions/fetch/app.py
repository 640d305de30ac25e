"""Reading: pages of messages, live subscriptions, durables with their acks, leases and sessions, dead letters."""

from __future__ import annotations

from minitoolstream.api import parse, parse_delivery, schema, schema_delivery, show_delivery
from minitoolstream.api.app import App, Request, Response, answer
from minitoolstream.api.events import event_stream
from minitoolstream.domain.checks import check_number
from minitoolstream.domain.consumer import check_session_id
from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.message import wire_number
from minitoolstream.services.acknowledge import acknowledge
from minitoolstream.services.dead_letters import purge_dead_letters, read_dead_letters, replay_dead_letters
from minitoolstream.services.describe import latest_sequence, server_time
from minitoolstream.services.fetch_messages import Selection, get_message
from minitoolstream.services.lease_messages import extend_lease, give_back, lease_messages
from minitoolstream.services.manage_consumers import delete_consumer, get_consumer, list_consumers, put_consumer
from minitoolstream.services.read_messages import Reading, place_of, place_to_follow
from minitoolstream.services.share_partitions import join_session, keep_session, leave_session
from minitoolstream.services.wait_for_messages import wait_for_messages

app = App("fetch")

INLINE = ({"type": "boolean"}, "bring small payloads along, as base64")
START = ({"type": "string"}, "a sequence, first, last, new, or time:<unix seconds or ISO 8601>")
LIMIT = ({"type": "integer", "minimum": 1, "maximum": 1000}, "how many at most")
SELECTION = {
    "start": START,
    "limit": LIMIT,
    "partition": ({"type": "integer", "minimum": 0}, "only this partition"),
    "filter": ({"type": "string"}, "name=value or name^=prefix of headers, separated by commas"),
    "inline": INLINE,
    "view": ({"type": "string", "enum": ["messages", "extents"]}, "extents: one URL for a whole pack"),
    "durable": ({"type": "string"}, "read from where this durable stands, without moving it"),
    "region": ({"type": "string"}, "where the reader is: URLs lead to the nearest copy"),
}
REGION = {"x-mts-region": ({"type": "string"}, "the same as `region`")}
PAGE = schema.Page | schema.ExtentPage | schema_delivery.DurablePage | schema_delivery.DurableExtentPage
CONSUMER = "/v1/subjects/{subject}/consumers/{durable}"
DEAD_LETTERS = "/v1/subjects/{subject}/dead-letters"


@app.endpoint(
    "GET",
    "/v1/subjects/{subject}/messages",
    "A page of messages with presigned download URLs",
    response=PAGE,
    query=SELECTION,
    headers=REGION,
)
async def read_messages(request: Request) -> Response:
    selection = parse_delivery.selection_of(request)
    reader = parse_delivery.reader_of(request.query, selection)
    start = parse_delivery.start_of(request.query)
    place = await place_of(request.core, selection, reader, start if start is not None or reader else 1)
    return show_delivery.reading(await place.read(shared=False))


@app.endpoint(
    "GET",
    "/v1/subjects/{subject}/subscribe",
    "The next messages as soon as they come; with `Accept: text/event-stream`, a stream of them",
    response=PAGE,
    query={
        **SELECTION,
        "wait": ({"type": "number", "minimum": 0, "maximum": 25}, "seconds to wait for a message"),
        "session": ({"type": "string"}, "read the partitions of this session of the durable"),
        "epoch": ({"type": "integer", "minimum": 0}, "the session's, as it was given"),
        "after": ({"type": "string"}, "partition:sequence:fence, separated by commas: how far a session's reader got"),
    },
    headers={
        **REGION,
        "last-event-id": ({"type": "string"}, "a stream goes on behind the event with this id"),
    },
    waits=True,
)
async def subscribe(request: Request) -> Response:
    """Without `start` a durable is read from its position, and all else from `new`. Nothing is acked by reading."""
    selection = parse_delivery.selection_of(request)
    reader = parse_delivery.reader_of(request.query, selection)
    start, wait = parse_delivery.start_of(request.query), parse.wait_of(request.query)
    if start is None and reader is None:
        start = "new"
    if not parse_delivery.wants_events(request):
        place = await place_of(request.core, selection, reader, start)
        return show_delivery.reading(await wait_for_messages(request.core, place, wait))
    if not request.may_stream:
        raise bad_request("no stream of events can pass here: ask for JSON and wait, as in subscribe?wait=25")
    if reader is not None and reader.session is not None:
        raise bad_request("a session is read by long polls: leave `Accept: text/event-stream` out", field="session")
    seen = parse_delivery.last_event_of(request)
    place = await place_to_follow(request.core, selection, reader, start, seen)
    return event_stream(request.core, place)


@app.endpoint(
    "GET",
    "/v1/messages/{sequence}",
    "One message by its sequence",
    response=schema.Message,
    query={"inline": INLINE, "region": SELECTION["region"]},
    headers=REGION,
)
async def read_message(request: Request) -> Response:
    sequence = check_number(request.params["sequence"], "sequence")
    inline, region = parse.flag_of(request.query, "inline"), parse_delivery.region_of(request)
    return answer(await get_message(request.core, sequence, inline=inline, region=region))


@app.endpoint(
    "GET", "/v1/subjects/{subject}/latest", "The last sequence of a subject, and the time", response=schema.Latest
)
async def read_latest(request: Request) -> Response:
    subject = parse.subject_of(request)
    now = await server_time(request.core)
    return answer(schema.Latest(subject, wire_number(await latest_sequence(request.core, subject)), now))


@app.endpoint(
    "GET",
    "/v1/subjects/{subject}/consumers",
    "The durables of a subject",
    response=schema_delivery.Consumers,
    query={"after": ({"type": "string"}, "names behind this one"), "limit": LIMIT},
)
async def read_consumers(request: Request) -> Response:
    subject, limit = parse.subject_of(request), parse.limit_of(request.query)
    found, more = await list_consumers(request.core, subject, request.query.get("after", ""), limit)
    return answer(schema_delivery.Consumers([show_delivery.consumer(one) for one in found], more))


@app.endpoint("GET", CONSUMER, "A durable: its position, its lag, its settings", response=schema_delivery.Consumer)
async def read_consumer(request: Request) -> Response:
    return answer(show_delivery.consumer(await get_consumer(request.core, *parse_delivery.durable_of(request))))


@app.endpoint(
    "PUT",
    CONSUMER,
    "Make a durable, change its settings, ack, or seek",
    request=schema_delivery.ConsumerRequest,
    body_needed=False,
    response=schema_delivery.Consumer,
    status=201,
    also=(200,),
)
async def write_consumer(request: Request) -> Response:
    body, ack = parse_delivery.consumer_request_of(request), None
    if body.last_sequence is not None:
        ack = check_number(body.last_sequence, "last_sequence")
    consumer, created = await put_consumer(
        request.core,
        *parse_delivery.durable_of(request),
        parse_delivery.consumer_of(body),
        start=parse_delivery.start_in(body.start, "start"),
        ack=ack,
        seek=parse_delivery.start_in(body.seek, "seek"),
    )
    return answer(show_delivery.consumer(consumer), 201 if created else 200)


@app.endpoint("DELETE", CONSUMER, "Forget a durable", response=schema_delivery.Deleted)
async def remove_consumer(request: Request) -> Response:
    await delete_consumer(request.core, *parse_delivery.durable_of(request))
    return answer(schema_delivery.Deleted())


@app.endpoint(
    "POST",
    f"{CONSUMER}/ack",
    "Say what is done: a position, partitions of a session, or messages of a lease; now or with a transaction",
    request=schema_delivery.AckRequest,
    response=schema_delivery.Acked,
)
async def ack(request: Request) -> Response:
    done, transaction_id = parse_delivery.ack_of(request)
    acked = await acknowledge(request.core, *parse_delivery.durable_of(request), done, transaction_id)
    return answer(show_delivery.acked(acked))


@app.endpoint(
    "POST",
    f"{CONSUMER}/lease",
    "Take messages of a shared durable for some seconds",
    request=schema_delivery.LeaseRequest,
    body_needed=False,
    response=schema_delivery.Leased,
    waits=True,
)
async def lease(request: Request) -> Response:
    body = parse.decode(request.body or b"{}", schema_delivery.LeaseRequest)
    found = await lease_messages(
        request.core,
        *parse_delivery.durable_of(request),
        body.limit,
        seconds=body.seconds,
        wait=body.wait,
        inline=body.inline,
    )
    return answer(show_delivery.leased(found))


@app.endpoint(
    "POST",
    f"{CONSUMER}/extend",
    "Keep leased messages for longer",
    request=schema_delivery.ExtendRequest,
    response=schema_delivery.Extended,
)
async def extend(request: Request) -> Response:
    body = parse.decode(request.body, schema_delivery.ExtendRequest)
    some = None if body.sequences is None else parse_delivery.sequences_in(body.sequences)
    until = await extend_lease(
        request.core, *parse_delivery.durable_of(request), body.lease_id, seconds=body.seconds, sequences=some
    )
    return answer(schema_delivery.Extended(until / 1000))


@app.endpoint(
    "POST",
    f"{CONSUMER}/nack",
    "Give leased messages back, to be handed out again",
    request=schema_delivery.NackRequest,
    response=schema_delivery.Nacked,
)
async def nack(request: Request) -> Response:
    body = parse.decode(request.body, schema_delivery.NackRequest)
    sequences = parse_delivery.sequences_in(body.sequences)
    counts = await give_back(
        request.core,
        *parse_delivery.durable_of(request),
        body.lease_id,
        sequences,
        delay=body.delay,
        untried=body.untried,
    )
    return answer(schema_delivery.Nacked(*counts))


@app.endpoint(
    "POST",
    f"{CONSUMER}/sessions",
    "Join the readers that share a durable's partitions",
    request=schema_delivery.SessionRequest,
    response=schema_delivery.Session,
    status=201,
)
async def open_session(request: Request) -> Response:
    body = parse.decode(request.body, schema_delivery.SessionRequest)
    session_id = check_session_id(body.session_id)
    joined = await join_session(request.core, *parse_delivery.durable_of(request), session_id, body.ttl)
    return answer(show_delivery.session(joined), 201)


@app.endpoint(
    "POST",
    f"{CONSUMER}/sessions/{{session_id}}/heartbeat",
    "Keep a session, and learn which partitions it has",
    request=schema_delivery.HeartbeatRequest,
    response=schema_delivery.Session,
)
async def heartbeat(request: Request) -> Response:
    epoch = check_number(parse.decode(request.body, schema_delivery.HeartbeatRequest).epoch, "epoch")
    durable, session_id = parse_delivery.durable_of(request), parse_delivery.session_of(request)
    return answer(show_delivery.session(await keep_session(request.core, *durable, session_id, epoch)))


@app.endpoint(
    "DELETE",
    f"{CONSUMER}/sessions/{{session_id}}",
    "Leave: the partitions go to the others at once",
    response=schema_delivery.Deleted,
    query={"epoch": ({"type": "integer", "minimum": 0}, "the session's, as it was given; needed")},
)
async def remove_session(request: Request) -> Response:
    durable, session_id = parse_delivery.durable_of(request), parse_delivery.session_of(request)
    await leave_session(request.core, *durable, session_id, parse_delivery.epoch_of(request.query))
    return answer(schema_delivery.Deleted())


@app.endpoint(
    "GET",
    DEAD_LETTERS,
    "Messages of a subject whose tries were used up",
    response=schema.Page,
    query={"start": START, "limit": LIMIT, "inline": INLINE},
)
async def show_dead_letters(request: Request) -> Response:
    query, subject = request.query, parse.subject_of(request)
    selection = Selection(subject, parse.limit_of(query), inline=parse.flag_of(query, "inline"))
    page = await read_dead_letters(request.core, selection, parse_delivery.start_of(query) or 1)
    return show_delivery.reading(Reading(page))


@app.endpoint(
    "POST",
    f"{DEAD_LETTERS}/replay",
    "Publish dead letters again where they came from",
    request=schema_delivery.ReplayRequest,
    body_needed=False,
    response=schema_delivery.Replayed,
)
async def replay(request: Request) -> Response:
    body = parse.decode(request.body or b"{}", schema_delivery.ReplayRequest)
    some = None if body.sequences is None else parse_delivery.sequences_in(body.sequences)
    return answer(schema_delivery.Replayed(*await replay_dead_letters(request.core, parse.subject_of(request), some)))


@app.endpoint("DELETE", DEAD_LETTERS, "Remove dead letters", response=schema_delivery.Purged)
async def remove_dead_letters(request: Request) -> Response:
    return answer(schema_delivery.Purged(*await purge_dead_letters(request.core, parse.subject_of(request))))
