"""The scheduled sweeper: expires what had its time, commits what events missed, ends what never came, empties the
trash, does what is due for durables, transactions and deleted subjects, writes the journal, makes backups. And what an
operator asks about that: what expires, what is deleted for good, whether everything is consistent."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

import msgspec

from minitoolstream import container
from minitoolstream.api import (
    parse,
    parse_deletion,
    schema,
    schema_deletion,
    schema_retention,
    show_deletion,
    show_retention,
)
from minitoolstream.api.app import App, Request, Response, answer, run
from minitoolstream.domain.checks import check_number
from minitoolstream.domain.consistency import Report
from minitoolstream.services.core import Core
from minitoolstream.services.delete_messages import delete_message, list_deletions, purge_subject
from minitoolstream.services.describe import describe_journal, describe_status
from minitoolstream.services.get_report import get_report
from minitoolstream.services.keep_lifecycle import apply_lifecycle, get_lifecycle
from minitoolstream.services.manage_retention import configure_retention, get_retention
from minitoolstream.services.reconcile_now import reconcile_now
from minitoolstream.services.run_sweeper import run_sweeper
from minitoolstream.services.sweep_expired import sweep as sweep_all
from minitoolstream.services.write_journal import write_journal

app = App("ttl-sweeper")
_log = logging.getLogger(__name__)

SWEEP_SECONDS = 20.0  # an API gateway ends a request after 29
SHARE = 0.7  # of the time that a Lambda has left


@app.endpoint("POST", "/v1/reconcile", "Run the reconciler now", response=schema.Reconciled)
async def run_reconciler(request: Request) -> Response:
    return answer(await reconcile_now(request.core))


@app.endpoint("POST", "/v1/sweep", "Expire what is due now, and empty the trash", response=schema_retention.Swept)
async def run_sweep(request: Request) -> Response:
    """Ends after some 20 s; `finished` is false when there is more to do: ask again."""
    return answer(await sweep_all(request.core, SWEEP_SECONDS))


@app.endpoint("GET", "/v1/ttl", "What expires when, and who holds back what", response=schema_retention.Retention)
async def read_ttl(request: Request) -> Response:
    return answer(await get_retention(request.core))


@app.endpoint(
    "PUT",
    "/v1/ttl",
    "How long messages stay where their subject says nothing",
    request=schema_retention.TtlChanges,
    response=schema_retention.Retention,
)
async def put_ttl(request: Request) -> Response:
    changes = msgspec.to_builtins(parse.decode(request.body, schema_retention.TtlChanges))
    return answer(await configure_retention(request.core, changes))


@app.endpoint("GET", "/v1/lifecycle", "The bucket's lifecycle rules", response=schema_retention.LifecycleAnswer)
async def read_lifecycle(request: Request) -> Response:
    return answer(show_retention.lifecycle_answer(await get_lifecycle(request.core)))


@app.endpoint(
    "POST",
    "/v1/lifecycle",
    "Put the bucket's lifecycle in step: never current objects by age",
    response=schema_retention.LifecycleAnswer,
)
async def put_lifecycle(request: Request) -> Response:
    return answer(show_retention.lifecycle_answer(await apply_lifecycle(request.core)))


@app.endpoint("GET", "/v1/status", "Figures for an operator", response=schema.Status)
async def read_status(request: Request) -> Response:
    return answer(await describe_status(request.core))


@app.endpoint("POST", "/v1/journal", "Write the journal now", response=schema.JournalWritten)
async def run_journal(request: Request) -> Response:
    written = await write_journal(request.core)
    shown = {**written.counts(), "complete": written.complete}
    return answer({**shown, "journal": await describe_journal(request.core)})


@app.endpoint("GET", "/v1/consistency", "The latest report of `mts fsck`", response=Report, may_lack=True)
async def read_consistency(request: Request) -> Response:
    return Response(await get_report(request.core), 200, {"content-type": "application/json"})


@app.endpoint(
    "DELETE",
    "/v1/messages/{sequence}",
    "Delete one message for good, with whatever shares its payload",
    response=schema_deletion.DeletionAnswer,
    query={"reason": ({"type": "string", "maxLength": 1000}, "goes on the record of deletions")},
)
async def remove_message(request: Request) -> Response:
    sequence = check_number(request.params["sequence"], "sequence")
    reason = parse_deletion.reason_of(request)
    deleted = await delete_message(request.core, sequence, request.principal or "-", reason)
    return answer(show_deletion.deletion(deleted))


@app.endpoint(
    "POST",
    "/v1/subjects/{subject}/purge",
    "Delete all messages of a subject for good; the subject, its durables and producers stay",
    request=schema_deletion.PurgeRequest,
    body_needed=False,
    response=schema_deletion.DeletionAnswer,
)
async def purge(request: Request) -> Response:
    subject, reason = parse.subject_of(request), parse_deletion.purge_reason_of(request)
    deleted = await purge_subject(request.core, subject, request.principal or "-", reason)
    return answer(show_deletion.deletion(deleted))


@app.endpoint(
    "GET",
    "/v1/deletions",
    "The record of deletions",
    response=schema_deletion.DeletionRecords,
    query={
        "after": ({"type": "string"}, "ids behind this one"),
        "limit": ({"type": "integer", "minimum": 1, "maximum": 1000}, "how many at most"),
    },
)
async def read_deletions(request: Request) -> Response:
    after, limit = parse_deletion.after_of(request), parse.limit_of(request.query)
    found, following = await list_deletions(request.core, after, limit)
    return answer({"deletions": found, "next": following} if following else {"deletions": found})


@app.schedule("rate(1 minute)")
def sweep(event: Any) -> dict[str, Any]:
    """EventBridge calls it. It stops well before Lambda would stop it, and goes on in its next run."""

    async def swept(core: Core) -> dict[str, Any]:
        seconds = event.context.get_remaining_time_in_millis() / 1000 * SHARE
        await core.ceiling.keep_if_possible()
        done = asdict(await run_sweeper(core, seconds))
        _log.info("%s", done)
        return done

    return run(container.current().use(swept))
