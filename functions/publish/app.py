"""Publishing: tickets, receipts, parts, inline and batch publishes; subjects and their settings."""

from __future__ import annotations

from minitoolstream.api import (
    parse,
    parse_subjects,
    parse_transactions,
    schema,
    schema_subjects,
    schema_transactions,
    show,
    show_transactions,
)
from minitoolstream.api.app import App, Request, Response, answer
from minitoolstream.api.own_headers import ANY_HEADER
from minitoolstream.domain.checks import check_headers, check_producer
from minitoolstream.domain.media_types import FRAMES, JSON_LINES, JSON_MESSAGE
from minitoolstream.domain.message import wire_number
from minitoolstream.domain.subject_settings import CODECS
from minitoolstream.domain.upload import Receipt, State
from minitoolstream.services.end_upload import abort_upload, complete_upload
from minitoolstream.services.get_receipt import get_receipt
from minitoolstream.services.issue_tickets import issue_tickets
from minitoolstream.services.manage_subjects import delete_subject, get_subject, list_subjects, put_subject
from minitoolstream.services.publish_batch import publish_batch
from minitoolstream.services.publish_inline import publish_inline
from minitoolstream.services.run_transaction import (
    abort_transaction,
    begin_transaction,
    commit_transaction,
    get_transaction,
)
from minitoolstream.services.start_producer import start_producer
from minitoolstream.services.upload_parts import list_parts, sign_missing_parts, sign_parts

app = App("publish", commits=True)

PRODUCER_HEADERS = {
    "x-mts-producer-id": ("string", "names the producer; with X-Mts-Seqno, a message is stored at most once"),
    "x-mts-seqno": ("integer", "the producer's own number of this message; gaps are allowed"),
    "x-mts-epoch": ("integer", "the producer's session"),
}
ROUTING_HEADERS = {
    "x-mts-group": ("string", "messages of a group share a partition, and so keep their order"),
    "x-mts-codec": ({"type": "string", "enum": list(CODECS)}, "how the payload is compressed; it is stored as it is"),
}
TRANSACTION_HEADERS = {"x-mts-transaction-id": ("string", "publish in this transaction: seen only after its commit")}
TRANSACTION = "/v1/transactions/{transaction_id}"


@app.endpoint(
    "POST",
    "/v1/subjects/{subject}/uploads",
    "Announce one payload, or up to 1,000, and get the way to upload it",
    request=schema.UploadRequest | schema.UploadsRequest,
    response=schema.Ticket | schema.Tickets | schema.ReceiptAnswer,
    status=201,
    also=(200,),
    headers={"idempotency-key": ("string", "in a transaction: sent again with the same key, it is the same upload")},
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
    json_type=JSON_MESSAGE,
    raw_body=("application/octet-stream", "text/plain", "application/json"),
    response=schema.ReceiptAnswer,
    status=201,
    also=(200, 202),
    headers={
        "idempotency-key": ("string", "a message sent again with the same key within a day is stored once"),
        **PRODUCER_HEADERS,
        **ROUTING_HEADERS,
        **TRANSACTION_HEADERS,
        ANY_HEADER: ("string", "a header of the message, whose name stands for the `*`"),
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
    raw_body=(JSON_LINES, FRAMES),
    response=schema.BatchAnswer,
    headers=TRANSACTION_HEADERS,
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
async def create_producer_session(request: Request) -> Response:
    asked = parse.decode(request.body, schema.ProducerRequest)
    check_producer(asked.producer_id, 0, None)
    headers = check_headers(asked.headers)
    epoch, last_seqno = await start_producer(request.core, parse.subject_of(request), asked.producer_id, headers)
    last = None if last_seqno is None else wire_number(last_seqno)
    return answer(schema.ProducerSession(asked.producer_id, epoch, last))


@app.endpoint(
    "GET",
    "/v1/subjects",
    "Subjects with their counters",
    response=schema.Subjects,
    query={
        "prefix": ({"type": "string"}, "names that begin like this"),
        "after": ({"type": "string"}, "names behind this one"),
        "limit": ({"type": "integer", "minimum": 1, "maximum": 1000}, "how many at most"),
    },
)
async def read_subjects(request: Request) -> Response:
    prefix, after = parse_subjects.prefix_of(request.query), request.query.get("after", "")
    found, following = await list_subjects(request.core, prefix, after, parse.limit_of(request.query))
    return answer({"subjects": found, "next": following} if following else {"subjects": found})


@app.endpoint(
    "PUT",
    "/v1/subjects/{subject}",
    "Make a subject, or change its settings",
    request=schema_subjects.SubjectChanges,
    response=schema_subjects.Subject,
    status=201,
    also=(200,),
)
async def write_subject(request: Request) -> Response:
    changes = parse_subjects.changes_of(request)
    subject, created = await put_subject(request.core, parse.subject_of(request), changes)
    return answer(subject, 201 if created else 200)


@app.endpoint(
    "GET",
    "/v1/subjects/{subject}",
    "A subject's partitions, settings and what of its quotas is used",
    response=schema_subjects.Subject,
)
async def read_subject(request: Request) -> Response:
    return answer(await get_subject(request.core, parse.subject_of(request)))


@app.endpoint(
    "DELETE",
    "/v1/subjects/{subject}",
    "Delete a subject with all its messages, durables and producers",
    response=schema_subjects.SubjectDeleted,
)
async def remove_subject(request: Request) -> Response:
    subject = parse.subject_of(request)
    purging = await delete_subject(request.core, subject)
    return answer(schema_subjects.SubjectDeleted(subject, deleted=True, purging=purging))


@app.endpoint(
    "POST",
    "/v1/transactions",
    "Begin a transaction: what is published and acked in it becomes visible together",
    request=schema_transactions.TransactionRequest,
    body_needed=False,
    response=schema_transactions.Transaction,
    status=201,
)
async def create_transaction(request: Request) -> Response:
    begun = await begin_transaction(request.core, parse_transactions.timeout_of(request))
    return answer(show_transactions.transaction(begun), 201)


@app.endpoint("GET", TRANSACTION, "What became of a transaction", response=schema_transactions.Transaction)
async def read_transaction(request: Request) -> Response:
    found = await get_transaction(request.core, parse_transactions.transaction_of(request))
    return answer(show_transactions.transaction(found))


@app.endpoint(
    "POST",
    f"{TRANSACTION}/commit",
    "Make all of it visible at once; asked again, the same is answered",
    response=schema_transactions.Transaction,
)
async def commit(request: Request) -> Response:
    committed = await commit_transaction(request.core, parse_transactions.transaction_of(request))
    return answer(show_transactions.transaction(committed))


@app.endpoint(
    "POST", f"{TRANSACTION}/abort", "Give it up: nothing of it is left", response=schema_transactions.Transaction
)
async def abort(request: Request) -> Response:
    aborted = await abort_transaction(request.core, parse_transactions.transaction_of(request))
    return answer(show_transactions.transaction(aborted))
