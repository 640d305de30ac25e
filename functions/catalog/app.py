"""The content catalog: what is pinned, where its copies are; and the IPFS Pinning Service API on top of it."""

from __future__ import annotations

from dataclasses import asdict

import msgspec

from minitoolstream.api import parse, parse_catalog, schema_catalog, show_catalog
from minitoolstream.api.app import App, Request, Response, answer
from minitoolstream.api.errors import IPFS
from minitoolstream.domain.checks import check_number
from minitoolstream.domain.cid import read_cid
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.pin import SHOWN, Wish
from minitoolstream.services import catalog_figures, run_batches
from minitoolstream.services.check_catalog import check_catalog
from minitoolstream.services.follow_subjects import hold_messages
from minitoolstream.services.list_pins import list_by_time, list_pins
from minitoolstream.services.manage_pins import create_pin, delete_pin, get_pin, pin_sequence, replace_pin, update_pin
from minitoolstream.services.tend_catalog import tend_catalog

app = App("catalog")

BASE = "/v1/catalog"
LIMIT = ({"type": "integer", "minimum": 1, "maximum": 1000}, "how many at most")
TIME = {"type": "string"}
FILTER = {
    "status": ({"type": "string"}, "queued, pinning, pinned, failed; some of them, separated by commas"),
    "name": ({"type": "string"}, "pins of this name"),
    "match": ({"type": "string", "enum": ["exact", "iexact", "partial", "ipartial"]}, "how names are compared"),
    "before": (TIME, "made before: unix seconds or ISO 8601"),
    "after": (TIME, "made after"),
    "limit": LIMIT,
}
VERSION = ({"type": "integer", "minimum": 1}, "only when this is the pin's current version")
OPERATION = ({"type": "string", "minLength": 1, "maxLength": 200}, "a repeated one is done once")


@app.endpoint(
    "POST",
    f"{BASE}/pins",
    "Pin a content, or the payload of a message: keep so many copies of it",
    request=schema_catalog.PinRequest,
    response=schema_catalog.PinShape,
    status=201,
    also=(200,),
    may_lack=True,
)
async def make_pin(request: Request) -> Response:
    body = parse.decode(request.body, schema_catalog.PinRequest)
    actor, wish = parse_catalog.actor_of(request), parse_catalog.wish_of(body)
    if (body.cid is None) == (body.sequence is None):
        raise bad_request("say what to pin: either cid or sequence", field="cid")
    if body.cid is not None:
        state, created = await create_pin(request.core, actor, read_cid(body.cid), wish, body.operation_id)
    else:
        _operators_only(request)  # whose payload it is, and by its id what is in it, an owner need not know
        sequence = check_number(body.sequence, "sequence")
        state, created = await pin_sequence(request.core, actor, sequence, wish, body.operation_id)
    return answer(show_catalog.pin(state), 201 if created else 200)


@app.endpoint(
    "GET",
    f"{BASE}/pins",
    "Pins, the newest first",
    response=schema_catalog.Pins,
    query={
        **FILTER,
        "tag": ({"type": "string"}, "pins with this tag"),
        "owner": ({"type": "string"}, "whose; with the host's token anybody's, `-` for what only messages hold"),
        "cursor": ({"type": "string"}, "where the page before ended"),
    },
)
async def read_pins(request: Request) -> Response:
    wanted = parse_catalog.filter_of(request.query, frozenset(SHOWN))
    limit, cursor = parse.limit_of(request.query), request.query.get("cursor")
    return answer(
        show_catalog.pins(await list_pins(request.core, parse_catalog.owner_of(request), wanted, limit, cursor))
    )


@app.endpoint("GET", f"{BASE}/pins/{{cid}}", "A pin and where its copies are", response=schema_catalog.PinShape)
async def read_pin(request: Request) -> Response:
    cid = parse_catalog.cid_of(request)
    return answer(show_catalog.pin(await get_pin(request.core, parse_catalog.actor_of(request), cid)))


@app.endpoint(
    "PUT",
    f"{BASE}/pins/{{cid}}",
    "Change a pin",
    request=schema_catalog.PinChange,
    response=schema_catalog.PinShape,
)
async def change_pin(request: Request) -> Response:
    """With `version`, of two that change the same one the second gets a 409 with the current version."""
    cid, body = parse_catalog.cid_of(request), parse.decode(request.body, schema_catalog.PinChange)
    state = await update_pin(
        request.core,
        parse_catalog.actor_of(request),
        cid,
        parse_catalog.wish_of(body),
        version=body.version,
        operation_id=body.operation_id,
    )
    return answer(show_catalog.pin(state))


@app.endpoint(
    "DELETE",
    f"{BASE}/pins/{{cid}}",
    "Unpin a content; its copies go when nobody else holds it",
    response=schema_catalog.Unpinned,
    query={"version": VERSION, "operation_id": OPERATION},
)
async def remove_pin(request: Request) -> Response:
    cid, actor = parse_catalog.cid_of(request), parse_catalog.actor_of(request)
    await delete_pin(
        request.core, actor, cid, parse_catalog.version_of(request.query), request.query.get("operation_id")
    )
    return answer(schema_catalog.Unpinned())


@app.endpoint(
    "GET",
    f"{BASE}/pins/{{cid}}/events",
    "What was done with a content, the oldest first",
    response=schema_catalog.PinEvents,
    query={"limit": LIMIT},
    may_lack=True,
)
async def read_pin_events(request: Request) -> Response:
    cid, limit, actor = parse_catalog.cid_of(request), parse.limit_of(request.query), parse_catalog.actor_of(request)
    since = None if actor.all_owners else (await get_pin(request.core, actor, cid)).pin.created_at
    return answer(show_catalog.events(await catalog_figures.read_events(request.core, cid, limit, since)))


@app.endpoint(
    "POST",
    f"{BASE}/batches",
    "Pin or unpin up to 100,000 contents in one operation",
    request=schema_catalog.BatchRequest,
    response=schema_catalog.BatchShape,
    status=202,
)
async def make_batch(request: Request) -> Response:
    body, cids = parse_catalog.batch_of(request)
    tags = None if body.tags is None else frozenset(body.tags)
    wish = Wish(rf=body.rf, tags=tags, zones=None if body.zones is None else frozenset(body.zones))
    row = await run_batches.start_batch(
        request.core, parse_catalog.actor_of(request), body.kind, cids, wish, operation_id=body.operation_id
    )
    return answer(show_catalog.batch(row), 202)


@app.endpoint("GET", f"{BASE}/batches/{{batch_id}}", "How far a batch is", response=schema_catalog.BatchShape)
async def read_batch(request: Request) -> Response:
    actor = parse_catalog.actor_of(request)
    return answer(show_catalog.batch(await run_batches.get_batch(request.core, actor, request.params["batch_id"])))


@app.endpoint(
    "GET",
    f"{BASE}/batches/{{batch_id}}/items",
    "What became of each content of a batch",
    response=schema_catalog.BatchItems,
    query={"limit": LIMIT, "after": ({"type": "integer", "minimum": 0}, "behind this position")},
)
async def read_batch_items(request: Request) -> Response:
    actor, limit = parse_catalog.actor_of(request), parse.limit_of(request.query)
    after = parse.number_of(request.query, "after", -1, 0, 10**6)
    rows, more = await run_batches.batch_items(request.core, actor, request.params["batch_id"], after, limit)
    return answer(show_catalog.batch_items(rows, more))


@app.endpoint(
    "POST",
    f"{BASE}/contents",
    "Tell the digests of messages that came without: those of subjects that ask for copies hold their contents",
    request=schema_catalog.ContentsRequest,
    response=schema_catalog.Held,
)
async def hold_contents(request: Request) -> Response:
    _operators_only(request)
    subject, digests = parse_catalog.contents_of(request)
    return answer(schema_catalog.Held(await hold_messages(request.core, subject, digests)))


@app.endpoint("GET", f"{BASE}/peers", "The object stores that hold copies", response=schema_catalog.Peers)
async def read_peers(request: Request) -> Response:
    found = await catalog_figures.read_peers(request.core)
    return answer(schema_catalog.Peers([show_catalog.peer(one) for one in found]))


@app.endpoint("GET", f"{BASE}/stats", "Figures of the catalog", response=schema_catalog.CatalogStats)
async def read_stats(request: Request) -> Response:
    found = await catalog_figures.read_figures(request.core)
    return answer(
        schema_catalog.CatalogStats(
            **found.counts,
            prefixes=found.prefixes,
            smallest_prefix=found.smallest,
            largest_prefix=found.largest,
            peers=found.peers,
        )
    )


@app.endpoint(
    "POST",
    f"{BASE}/reconcile",
    "Expire pins, go on with batches, make and remove copies: now instead of by the clock",
    response=schema_catalog.CopiesSettled,
)
async def reconcile(request: Request) -> Response:
    _operators_only(request)
    done = dict.fromkeys(schema_catalog.CopiesSettled.__struct_fields__, 0) | dict(await tend_catalog(request.core))
    return answer(schema_catalog.CopiesSettled(**done))


@app.endpoint(
    "POST",
    f"{BASE}/check",
    "Whether the catalog's rows fit each other, and copies the rows",
    request=schema_catalog.CheckRequest,
    body_needed=False,
    response=schema_catalog.Checked,
)
async def check(request: Request) -> Response:
    _operators_only(request)
    body = parse.decode(request.body or b"{}", schema_catalog.CheckRequest)
    report = await check_catalog(request.core, mend=body.mend, deep=body.deep)
    return answer(msgspec.convert(asdict(report), schema_catalog.Checked))


def _operators_only(request: Request) -> None:
    if not parse_catalog.actor_of(request).all_owners:
        raise MtsError("forbidden", "this needs the host's own token")


@app.endpoint(
    "GET",
    IPFS,
    "IPFS Pinning Service API: list pins",
    response=schema_catalog.IpfsPins,
    query={
        **FILTER,
        "cid": ({"type": "string"}, "up to ten, separated by commas"),
        "meta": ({"type": "string"}, "a JSON object of what their meta must have"),
    },
)
async def ipfs_list(request: Request) -> Response:
    wanted = parse_catalog.filter_of(request.query, frozenset({"pinned"}))
    limit = parse.number_of(request.query, "limit", 10, 1, 1000)
    page = await list_by_time(request.core, parse_catalog.actor_of(request).owner, wanted, limit)
    return answer(show_catalog.ipfs_pins(page))


@app.endpoint(
    "POST",
    IPFS,
    "IPFS Pinning Service API: add a pin",
    request=schema_catalog.IpfsPin,
    response=schema_catalog.IpfsPinStatus,
    status=202,
)
async def ipfs_add(request: Request) -> Response:
    body, actor = parse.decode(request.body, schema_catalog.IpfsPin), parse_catalog.actor_of(request)
    cid = parse_catalog.whole_cid(body.cid)
    state, _ = await create_pin(request.core, actor, cid, Wish(name=body.name, metadata=body.meta))
    return answer(show_catalog.ipfs_status(state), 202)


@app.endpoint(
    "GET",
    f"{IPFS}/{{requestid}}",
    "IPFS Pinning Service API: a pin",
    response=schema_catalog.IpfsPinStatus,
)
async def ipfs_get(request: Request) -> Response:
    state = await get_pin(request.core, parse_catalog.actor_of(request), parse_catalog.cid_of(request, "requestid"))
    return answer(show_catalog.ipfs_status(state))


@app.endpoint(
    "POST",
    f"{IPFS}/{{requestid}}",
    "IPFS Pinning Service API: replace a pin by another",
    request=schema_catalog.IpfsPin,
    response=schema_catalog.IpfsPinStatus,
    status=202,
)
async def ipfs_replace(request: Request) -> Response:
    old, actor = parse_catalog.cid_of(request, "requestid"), parse_catalog.actor_of(request)
    body = parse.decode(request.body, schema_catalog.IpfsPin)
    wish = Wish(name=body.name, metadata=body.meta)
    state = await replace_pin(request.core, actor, old, parse_catalog.whole_cid(body.cid), wish)
    return answer(show_catalog.ipfs_status(state), 202)


@app.endpoint("DELETE", f"{IPFS}/{{requestid}}", "IPFS Pinning Service API: remove a pin", status=202)
async def ipfs_remove(request: Request) -> Response:
    cid = parse_catalog.cid_of(request, "requestid")
    await delete_pin(request.core, parse_catalog.actor_of(request), cid)
    return Response(b"", 202)
