"""Requests about the content catalog."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

from minitoolstream.api import schema_catalog as schema
from minitoolstream.api.app import Request
from minitoolstream.api.parse import decode, number_of
from minitoolstream.domain.checks import check_number, check_sha256
from minitoolstream.domain.cid import CODECS, RAW, Cid, read_cid
from minitoolstream.domain.consumer import read_time
from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.pin import NOBODY, SHOWN, Wish, check_owner_name
from minitoolstream.domain.subject import check_subject
from minitoolstream.services.list_pins import PinFilter
from minitoolstream.services.manage_pins import Actor

API = "api"
_MATCHES = ("exact", "iexact", "partial", "ipartial")
_MOST_CIDS = 10


def actor_of(request: Request) -> Actor:
    """The holder of the host's token may act for everybody."""
    principal = request.principal or ""
    return Actor(principal, all_owners=principal == API)


def owner_of(request: Request) -> str:
    """Whose pins are listed."""
    actor = actor_of(request)
    owner = request.query.get("owner", actor.owner)
    if owner != actor.owner and not actor.all_owners:
        raise bad_request("only pins of your own can be listed", field="owner")
    return owner if owner == NOBODY else check_owner_name(owner)


def cid_of(request: Request, name: str = "cid") -> Cid:
    return read_cid(request.params[name], name)


def whole_cid(text: str) -> Cid:
    """Of a content that is one block. The IPFS API pins what is below a block, too, and nobody here looks for that."""
    cid = read_cid(text)
    if cid.codec != RAW:
        kind = CODECS[cid.codec]
        raise bad_request(f"cid: {kind} names a tree of blocks; only raw contents (bafkrei...) are pinned", field="cid")
    return cid


def wish_of(body: schema.PinRequest | schema.PinChange) -> Wish:
    return Wish(
        rf=body.rf,
        name=body.name,
        tags=None if body.tags is None else frozenset(body.tags),
        metadata=body.metadata,
        zones=None if body.zones is None else frozenset(body.zones),
        priority=body.priority,
        expires_at=None if body.expires_at is None else _moment(body.expires_at, "expires_at"),
        keep=isinstance(body, schema.PinChange) and body.keep,
    )


def filter_of(query: Mapping[str, str], default: frozenset[str]) -> PinFilter:
    """`default`: the statuses of a list that names none."""
    statuses = frozenset(filter(None, query.get("status", "").split(","))) or default
    if unknown := sorted(statuses - set(SHOWN)):
        raise bad_request(f"status {unknown[0][:40]!r} is none of {', '.join(SHOWN)}", field="status")
    match = query.get("match", "exact")
    if match not in _MATCHES:
        raise bad_request(f"match is one of {', '.join(_MATCHES)}", field="match")
    return PinFilter(
        statuses=statuses,
        name=query.get("name"),
        match=match,
        tag=query.get("tag"),
        cids=_cids(query["cid"]) if query.get("cid") else None,
        before=_moment(query["before"], "before", exact=True) if query.get("before") else None,
        after=_moment(query["after"], "after", exact=True) if query.get("after") else None,
        metadata=_meta(query["meta"]) if query.get("meta") else None,
    )


def _cids(text: str) -> frozenset[Cid]:
    parts = text.split(",")
    if len(parts) > _MOST_CIDS:
        raise bad_request(f"at most {_MOST_CIDS} content ids", field="cid")
    return frozenset(map(read_cid, parts))


def _meta(text: str) -> dict[str, str]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise bad_request("meta is a JSON object of texts", field="meta")
    return found


def _moment(value: float | str, field: str, *, exact: bool = False) -> datetime:
    try:
        if exact and isinstance(value, str) and "T" in value:
            moment = datetime.fromisoformat(value.replace(" ", "+"))  # a + that came unescaped
            moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
            return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
        return datetime.fromtimestamp(read_time(value, field), UTC)
    except (ValueError, OverflowError, OSError):
        raise bad_request(f"{field}: write unix seconds or an ISO 8601 time", field=field) from None


def version_of(query: Mapping[str, str]) -> int | None:
    return number_of(query, "version", 1, 1, 2**31 - 1) if "version" in query else None


def contents_of(request: Request) -> tuple[str, dict[int, str]]:
    body = decode(request.body, schema.ContentsRequest)
    digests = {check_number(sequence, "digests"): digest for sequence, digest in body.digests.items()}
    for digest in digests.values():
        check_sha256(digest)
    return check_subject(body.subject), digests


def batch_of(request: Request) -> tuple[schema.BatchRequest, list[Cid]]:
    body = decode(request.body, schema.BatchRequest)
    if body.kind not in ("pin", "unpin"):
        raise bad_request("kind is pin or unpin", field="kind")
    cids = []
    for at, text in enumerate(body.cids):
        cids.append(read_cid(text, f"cids[{at}]"))
    return body, cids
