"""The tracked pipeline: files, their shards, and the stages these pass on their way into MySQL."""

from __future__ import annotations

from minitoolstream.api import parse, parse_pipeline, schema_pipeline, show_pipeline
from minitoolstream.api.app import App, Request, Response, answer
from minitoolstream.domain.tracking import MAX_TASK_LEASE, RESULT
from minitoolstream.services import track_pipeline

app = App("pipeline")

BASE = "/api/v1/pipeline"
LIMIT = ({"type": "integer", "minimum": 1, "maximum": 1000}, "how many at most (100)")
QUEUE = {
    "limit": LIMIT,
    "offset": ({"type": "integer", "minimum": 0}, "how many of the oldest to leave out"),
    "updated_before": ({"type": "string"}, "only what did not change since: unix seconds or ISO 8601"),
    "claim": ({"type": "boolean"}, "start them in the caller's name: no other call gets the same"),
    "owner": ({"type": "string", "minLength": 1, "maxLength": 200}, "the caller's name, with claim"),
    "lease": ({"type": "integer", "minimum": 1, "maximum": MAX_TASK_LEASE}, "seconds they are its own, with claim"),
}


@app.endpoint(
    "POST",
    f"{BASE}/files/register",
    "Register a file with its shards; again, it adds those that are missing",
    request=schema_pipeline.RegisterRequest,
    response=schema_pipeline.Registered,
)
async def register_file(request: Request) -> Response:
    filename, shards = parse_pipeline.register_of(request)
    created = await track_pipeline.register_file(request.core, filename, shards)
    return answer(schema_pipeline.Registered(filename, list(shards), created))


@app.endpoint(
    "POST",
    f"{BASE}/stages/event-ingest/done",
    "Mark a file as written: all its shards may be split",
    request=schema_pipeline.IngestRequest,
    response=schema_pipeline.IngestDone,
    may_lack=True,
)
async def finish_ingest(request: Request) -> Response:
    filename = parse_pipeline.ingest_of(request)
    changed = await track_pipeline.finish_ingest(request.core, filename)
    return answer(schema_pipeline.IngestDone(filename, changed))


@app.endpoint(
    "POST",
    f"{BASE}/stages/{{stage}}/{{transition}}",
    "Start a stage of a shard (of two that try, one gets it), or mark it as done or failed",
    request=schema_pipeline.StageRequest,
    response=schema_pipeline.StageAnswer,
)
async def change_stage(request: Request) -> Response:
    """A lease that ends puts the task back into its queue; its owner starts it again to keep it. Repeating `done` or
    `fail` changes nothing. What does not fit the status is a 409 with the status and what is allowed."""
    stage, transition = parse_pipeline.transition_of(request)
    body, core = parse_pipeline.stage_request_of(request), request.core
    of, owner = (body.filename, body.shard, stage), body.owner
    if transition == "start":
        task = await track_pipeline.start_stage(core, *of, owner=owner, lease=body.lease)
    elif transition == "done":
        task = await track_pipeline.finish_stage(core, *of, owner=owner)
    else:
        task = await track_pipeline.fail_stage(core, *of, owner=owner, error=body.error)
    return answer(show_pipeline.stage_answer(task, stage, RESULT[transition], owner))


@app.endpoint(
    "POST",
    f"{BASE}/stages/{{stage}}/retry",
    "Put a failed shard back into a stage's queue",
    request=schema_pipeline.RetryRequest,
    response=schema_pipeline.StageAnswer,
)
async def retry_stage(request: Request) -> Response:
    stage, (filename, shard) = parse_pipeline.stage_of(request, "retry"), parse_pipeline.retry_of(request)
    task = await track_pipeline.retry_stage(request.core, filename, shard, stage)
    return answer(show_pipeline.stage_answer(task, stage, RESULT["retry"], None))


@app.endpoint(
    "GET",
    f"{BASE}/queues/{{stage}}",
    "What waits for a stage, oldest first",
    response=schema_pipeline.Queue,
    query=QUEUE,
)
async def read_queue(request: Request) -> Response:
    stage, place = parse_pipeline.stage_of(request), parse_pipeline.place_of(request.query)
    owner, lease = parse_pipeline.owner_of(request.query), parse_pipeline.lease_of(request.query)
    claim = parse.flag_of(request.query, "claim")
    if claim:
        found = await track_pipeline.claim_tasks(request.core, stage, place, owner=owner, lease=lease)
    else:
        found = await track_pipeline.read_queue(request.core, stage, place)
    return answer(show_pipeline.queue(stage, found, claimed=claim))


@app.endpoint(
    "GET",
    f"{BASE}/files/{{filename}}",
    "A file's shards and the status of each stage",
    response=schema_pipeline.FileStatus,
    query={"details": ({"type": "boolean"}, "also owners, leases, attempts and last errors")},
)
async def read_file(request: Request) -> Response:
    filename, details = parse_pipeline.filename_of(request), parse.flag_of(request.query, "details")
    found = await track_pipeline.get_file(request.core, filename)
    return answer(show_pipeline.file_status(filename, found, details=details))


@app.endpoint(
    "GET",
    f"{BASE}/files",
    "Files by name, the last first, with the status of their shards",
    response=schema_pipeline.Files,
    query={"limit": LIMIT, "before": ({"type": "string"}, "names before this one")},
)
async def list_files(request: Request) -> Response:
    limit, before = parse.limit_of(request.query), parse_pipeline.before_of(request.query)
    return answer(show_pipeline.files(await track_pipeline.list_files(request.core, limit + 1, before), limit))


@app.endpoint(
    "GET", f"{BASE}/metrics/summary", "Figures by stage and by shard", response=schema_pipeline.PipelineFigures
)
async def read_summary(request: Request) -> Response:
    return answer(show_pipeline.figures(await track_pipeline.summarise(request.core)))
