"""Publishing: tickets, receipts, parts, inline and batch publishes."""

from __future__ import annotations

from minitoolstream.api import parse, schema, show
from minitoolstream.api.app import App, Request, Response, answer
from minitoolstream.domain.checks import check_producer
from minitoolstream.domain.message import wire_number
from minitoolstream.domain.upload import Receipt, State
from minitoolstream.services.end_upload import abort_upload, complete_upload
from minitoolstream.services.get_receipt import get_receipt
from minitoolstream.services.issue_tickets import issue_tickets
from minitoolstream.services.publish_inline import publish_batch, publish_inline
from minitoolstream.services.start_producer import start_producer
from minitoolstream.services.upload_parts import list_parts, sign_missing_parts, sign_parts

app = App("publish")

PRODUCER_HEADERS = {
    "x-mts-producer-id": ("string", "names the producer; with X-Mts-Seqno, a message is stored at most once"),
    "x-mts-seqno": ("integer", "the producer's own number of this message; gaps are allowed"),
    "x-mts-epoch": ("integer", "the producer's session"),
}


@app.endpoint(
    "POST",
    "/v1/subjects/{subject}/uploads",
    "Announce one payload, or up to 1,000, and get the way to upload it",
    request=schema.UploadRequest | schema.UploadsRequest,
    response=schema.Ticket | schema.Tickets | schema.ReceiptAnswer,
    status=201,
    also=(200,),
)
async def create_uploads(request: Request) -> Response:
    specs, single = parse.uploads_of(request)
    issued = await issue_tickets(request.core, parse.subject_of(request), specs)
    if single:
        return answer(show.ticket(issued[0]), 200 if isinstance(issued[0], Receipt) else 201)
    return answer({"uploads": [show.ticket(item) for item in issued]}, 201)


@app.endpoint(
    "GET",
    "/v1/uploads/{upload_id}",
    "What became of an upload; waits for it to end",
    response=schema.ReceiptAnswer,
    query={"wait": ({"type": "number", "minimum": 0, "maximum": 25}, "seconds to wait for the upload to end")},
)
async def read_receipt(request: Request) -> Response:
    receipt = await get_receipt(request.core, parse.upload_id_of(request), parse.wait_of(request.query))
    return answer(show.receipt(receipt))


@app.endpoint("DELETE", "/v1/uploads/{upload_id}", "Give an upload up", response=schema.ReceiptAnswer)
async def delete_upload(request: Request) -> Response:
    return answer(show.receipt(await abort_upload(request.core, parse.upload_id_of(request))))


@app.endpoint(
    "POST", "/v1/uploads/{upload_id}/complete", "Finish an upload and commit it", response=schema.ReceiptAnswer
)
async def complete(request: Request) -> Response:
    return answer(show.receipt(await complete_upload(request.core, parse.upload_id_of(request))))


@app.endpoint("GET", "/v1/uploads/{upload_id}/parts", "Which parts have arrived", response=schema.Parts)
async def read_parts(request: Request) -> Response:
    return answer(show.parts(await list_parts(request.core, parse.upload_id_of(request))))


@app.endpoint(
    "POST",
    "/v1/uploads/{upload_id}/parts",
    "Sign parts: the given ones, or those that are missing",
    request=schema.PartsRequest,
    response=schema.Parts,
)
async def create_part_urls(request: Request) -> Response:
    upload_id = parse.upload_id_of(request)
    wanted, start = parse.parts_of(request)
    if wanted is None:
        return answer(show.parts(await sign_missing_parts(request.core, upload_id, start)))
    return answer(show.parts(await sign_parts(request.core, upload_id, wanted)))


@app.endpoint(
    "POST",
    "/v1/subjects/{subject}/messages",
    "Publish a small message: the body is its payload",
    request=schema.InlineRequest,
    json_type=parse.JSON_MESSAGE,
    raw_body=("application/octet-stream", "text/plain", "application/json"),
    response=schema.ReceiptAnswer,
    status=201,
    also=(200, 202),
    headers={
        "idempotency-key": ("string", "a message sent again with the same key within a day is stored once"),
        **PRODUCER_HEADERS,
    },
)
async def publish_message(request: Request) -> Response:
    result = await publish_inline(request.core, parse.inline_of(request))
    if result.receipt is None:
        assert result.error is not None
        raise result.error
    status = 202 if result.receipt.state is State.STORED else 200 if result.receipt.duplicate else 201
    return answer(show.receipt(result.receipt), status)


@app.endpoint(
    "POST",
    "/v1/subjects/{subject}/messages/batch",
    "Publish many small messages as one pack",
    raw_body=(parse.JSON_LINES, parse.FRAMES),
    response=schema.BatchAnswer,
)
async def publish_many(request: Request) -> Response:
    return answer(show.batch(await publish_batch(request.core, parse.batch_of(request))))


@app.endpoint(
    "POST",
    "/v1/subjects/{subject}/producers",
    "Begin a producer's session; older ones are fenced",
    request=schema.ProducerRequest,
    response=schema.ProducerSession,
)
async def create_session(request: Request) -> Response:
    producer_id = parse.decode(request.body, schema.ProducerRequest).producer_id
    check_producer(producer_id, 0, None)
    epoch, last_seqno = await start_producer(request.core, parse.subject_of(request), producer_id)
    return answer(schema.ProducerSession(producer_id, epoch, wire_number(last_seqno)))
