"""A host and an object store in memory, in the place of the SDK's HTTP client; failures on demand."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import struct
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from zlib import crc32

import msgspec

from minitoolstream.client import AsyncClient
from minitoolstream.client._retry import RetryPolicy
from minitoolstream.net.http1 import Body, HttpError, HttpResponse

TOKEN = "t0ken"
HOSTS = ("http://host-a", "http://host-b")
STORE = "http://store"
NOWHERE = Path("/dev/null/state")
Effect = Callable[[Callable[[], HttpResponse]], HttpResponse]


def refuse_connection(_: Callable[[], HttpResponse]) -> HttpResponse:
    raise HttpError("cannot connect", sent=False)


def break_before(_: Callable[[], HttpResponse]) -> HttpResponse:
    """The request went out, and had no effect."""
    raise HttpError("the peer closed the connection", sent=True)


def break_after(act: Callable[[], HttpResponse]) -> HttpResponse:
    """The request took effect, its answer was lost."""
    act()
    raise HttpError("the peer closed the connection", sent=True)


def answer(status: int, body: bytes = b"", **headers: str) -> Effect:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: HttpResponse(status, named, body)


def api_error(status: int, code: str, **headers: str) -> Effect:
    body = {"error": {"code": code, "message": f"{code} happened", "details": {}}}
    return answer(status, msgspec.json.encode(body), **headers)


@dataclass
class Upload:
    subject: str
    spec: dict[str, Any]
    state: str = "open"
    parts: dict[int, bytes] = field(default_factory=dict)
    payload: bytes | None = None
    sequence: int | None = None


@dataclass
class Stored:
    subject: str
    data: bytes
    meta: dict[str, Any]


class FakeHost:
    """Fulfils what the SDK uses of HttpClient. `log` has a line for every request, failed ones too."""

    def __init__(self, part_size: int = 10, inline_limit: int = 1 << 22, events: bool = True) -> None:
        self.part_size = part_size
        self.inline_limit = inline_limit
        self.events = events
        self.uploads: dict[str, Upload] = {}
        self.messages: list[Stored] = []
        self.packs: list[list[int]] = []
        self.unverified: set[int] = set()
        self.keys: dict[str, int] = {}
        self.objects: dict[str, bytes] = {}
        self.log: list[str] = []
        self.bodies: list[bytes] = []
        self.sent_headers: list[Mapping[str, str]] = []
        self.down: set[str] = set()
        self.now = 0.0
        self.pauses: list[float] = []
        self._effects: list[tuple[str, Effect]] = []
        self._chunk = 4

    # -- what tests use

    def once(self, pattern: str, *effects: Effect) -> None:
        """The next requests whose `METHOD path` contains the pattern have these effects, one each."""
        self._effects += [(pattern, effect) for effect in effects]

    def asked(self, pattern: str) -> list[str]:
        return [line for line in self.log if pattern in line]

    def client(self, tmp_path: Path | None = None, urls: Sequence[str] = HOSTS[:1], seconds: float = 30) -> AsyncClient:
        client = AsyncClient(urls, TOKEN, state_dir=tmp_path or NOWHERE)
        client._transport._http = client._transport._waiting = self  # type: ignore[assignment]
        client._transport.retry = RetryPolicy(seconds, lambda: 1.0, self._sleep, lambda: self.now)
        client._transport._current = 0
        return client

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    # -- what the SDK uses

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Body = b"",
        content_length: int | None = None,
        **_: object,
    ) -> HttpResponse:
        payload = await _whole(body)
        assert content_length in (None, len(payload))
        self.bodies.append(payload)
        self.sent_headers.append(dict(headers or {}))
        return self._handle(method, url, {k.lower(): v for k, v in (headers or {}).items()}, payload)

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, **_: object
    ) -> AsyncIterator[FakeStream]:
        response = self._handle(method, url, {k.lower(): v for k, v in (headers or {}).items()}, b"")
        yield FakeStream(response, self._chunk)

    async def close(self) -> None:
        return

    def _handle(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        parts = urlsplit(url)
        line = f"{method} {parts.netloc}{parts.path}" + (f"?{parts.query}" if parts.query else "")
        self.log.append(line)
        if f"http://{parts.netloc}" in self.down:
            raise HttpError(f"{parts.netloc}: cannot connect: refused", sent=False)

        def act() -> HttpResponse:
            query = dict(parse_qsl(parts.query))
            if url.startswith(STORE):
                return self._store(method, parts.path.removeprefix("/"), query, headers, body)
            if headers.get("authorization") != f"Bearer {TOKEN}":
                return _error(401, "unauthorized")
            return self._api(method, parts.path.split("/")[2:], query, headers, body)

        for index, (pattern, effect) in enumerate(self._effects):
            if pattern in line:
                del self._effects[index]
                return effect(act)
        return act()

    # -- the API

    def _api(
        self, method: str, path: list[str], query: dict[str, str], headers: Mapping[str, str], body: bytes
    ) -> HttpResponse:
        match method, path:
            case "POST", ["subjects", subject, "uploads"]:
                return self._ticket(subject, msgspec.json.decode(body))
            case _, ["uploads", upload_id, *_] if upload_id not in self.uploads:
                return _error(404, "not_found")
            case "GET", ["uploads", upload_id]:
                return self._receipt(upload_id)
            case "DELETE", ["uploads", upload_id]:
                return self._abort(upload_id)
            case _, ["uploads", upload_id, "parts"] if self.uploads[upload_id].state != "open":
                return _error(409, "upload_final")
            case "GET", ["uploads", upload_id, "parts"]:
                return _json(200, self._parts(upload_id, []))
            case "POST", ["uploads", upload_id, "parts"]:
                return _json(200, self._parts(upload_id, msgspec.json.decode(body)["parts"]))
            case "POST", ["uploads", upload_id, "complete"]:
                return self.complete(upload_id)
            case "POST", ["subjects", subject, "messages"]:
                return self._inline(subject, headers, body)
            case "POST", ["subjects", subject, "messages", "batch"]:
                return self._batch(subject, body)
            case "GET", ["subjects", subject, "messages"]:
                return self._page(subject, query)
            case "GET", ["subjects", subject, "latest"]:
                return _json(200, {"subject": subject, "latest_sequence": self._latest(subject), "now": 0})
            case "GET", ["subjects", subject]:
                return self._subject(subject)
            case "GET", ["messages", sequence]:
                if not 1 <= int(sequence) <= len(self.messages):
                    return _error(404, "not_found")
                return _json(200, self._message(int(sequence)))
            case "POST", ["subjects", _, "producers"]:
                named = msgspec.json.decode(body)["producer_id"]
                return _json(201, {"producer_id": named, "epoch": 3, "last_seqno": "41"})
            case "POST", ["reconcile"]:
                return _json(200, {"committed": 2, "expired": 1})
        raise AssertionError(f"{method} {path}")

    def _subject(self, subject: str) -> HttpResponse:
        if not self._latest(subject):
            return _error(404, "unknown_subject")
        counts = dict.fromkeys(("incarnation", "created_at", "messages", "bytes"), 1)
        return _json(200, {"subject": subject, "latest_sequence": self._latest(subject), **counts})

    def _ticket(self, subject: str, spec: dict[str, Any]) -> HttpResponse:
        key = (spec.get("producer_id"), spec.get("seqno"))
        for upload_id, upload in self.uploads.items():
            if key[0] and key == (upload.spec.get("producer_id"), upload.spec.get("seqno")):
                return _json(200, {**self._shape(upload_id), "duplicate": True})
        number = f"{len(self.uploads):012x}"
        upload_id = f"01900000-0000-7000-8000-{number}"
        self.uploads[upload_id] = Upload(subject, spec)
        name = f"m/{subject}/1/{upload_id}"
        ticket: dict[str, Any] = {
            "upload_id": upload_id,
            "object_name": name,
            "method": "PUT",
            "expires_at": 1 << 40,
        }
        if spec["size"] > self.part_size:
            ticket["parts"] = self._parts(upload_id, [])
        else:
            ticket["url"] = f"{STORE}/{name}"
            ticket["headers"] = {"content-type": spec["content_type"], "if-none-match": "*"}
        return _json(201, ticket)

    def _parts(self, upload_id: str, wanted: list[dict[str, Any]]) -> dict[str, Any]:
        upload = self.uploads[upload_id]
        size = upload.spec["size"]
        arrived = [
            {"number": number, "size": len(data), "etag": _md5(data).hex()}
            for number, data in sorted(upload.parts.items())
        ]
        urls = [
            {
                "number": part["number"],
                "size": min(self.part_size, size - (part["number"] - 1) * self.part_size),
                "url": f"{STORE}/m/{upload.subject}/1/{upload_id}?partNumber={part['number']}",
                "headers": {"content-md5": base64.b64encode(bytes.fromhex(part["md5"])).decode()},
            }
            for part in wanted
        ]
        count = -(-size // self.part_size)
        return {"part_size": self.part_size, "count": count, "urls": urls, "arrived": arrived}

    def _shape(self, upload_id: str) -> dict[str, Any]:
        upload = self.uploads[upload_id]
        shape: dict[str, Any] = {"upload_id": upload_id, "state": upload.state}
        if upload.sequence:
            shape |= {"sequence": upload.sequence, "partition": 0, "offset": upload.sequence - 1}
        return shape

    def _receipt(self, upload_id: str) -> HttpResponse:
        return _json(200, self._shape(upload_id))

    def _abort(self, upload_id: str) -> HttpResponse:
        if self.uploads[upload_id].state == "committed":
            return _error(409, "upload_final")
        self.uploads[upload_id].state = "aborted"
        return _json(200, self._shape(upload_id))

    def complete(self, upload_id: str) -> HttpResponse:
        upload = self.uploads[upload_id]
        if upload.state == "open":
            count = -(-upload.spec["size"] // self.part_size)
            if upload.spec["size"] > self.part_size and len(upload.parts) == count:
                upload.payload = b"".join(data for _, data in sorted(upload.parts.items()))
            if upload.payload is None:
                return _error(409, "upload_incomplete")
            self._commit(upload_id)
        return self._receipt(upload_id)

    def _commit(self, upload_id: str) -> None:
        upload = self.uploads[upload_id]
        assert upload.payload is not None
        upload.state = "committed"
        upload.sequence = self._store_message(upload.subject, upload.payload, upload.spec)
        self.packs.append([upload.sequence])

    def _store_message(self, subject: str, data: bytes, meta: dict[str, Any]) -> int:
        self.messages.append(Stored(subject, data, meta))
        return len(self.messages)

    def _inline(self, subject: str, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        if len(body) > self.inline_limit:
            return _error(413, "too_large")
        meta: dict[str, Any]
        if headers["content-type"] == "application/vnd.mts.message+json":
            meta = msgspec.json.decode(body)
            body = base64.b64decode(meta.pop("data"))
        else:
            named = {k.removeprefix("x-mts-header-"): v for k, v in headers.items() if k.startswith("x-mts-header-")}
            meta = {"content_type": headers["content-type"], "headers": named}
        key = headers.get("idempotency-key") or f"{headers.get('x-mts-producer-id')} {headers.get('x-mts-seqno')}"
        duplicate = key in self.keys
        if not duplicate:
            self.keys[key] = self._store_message(subject, body, meta)
            self.packs.append([self.keys[key]])
        return _json(200 if duplicate else 201, _committed(self.keys[key], duplicate))

    def _batch(self, subject: str, body: bytes) -> HttpResponse:
        results: list[dict[str, Any]] = []
        pack: list[int] = []
        for raw, data in _frames(body):
            meta = msgspec.json.decode(raw)
            if meta.get("headers", {}).get("bad"):
                problem = {"code": "bad_request", "message": "bad header", "details": {"field": "headers"}}
                results.append({"state": "rejected", "error": problem})
                continue
            pack.append(self._store_message(subject, data, meta))
            results.append(_committed(pack[-1], duplicate=False))
        self.packs.append(pack)
        failed = len(results) - len(pack)
        return _json(200, {"results": results, "committed": len(pack), "failed": failed})

    # -- reading

    def _latest(self, subject: str) -> int:
        return max((n for n, m in enumerate(self.messages, 1) if m.subject == subject), default=0)

    def _message(self, sequence: int) -> dict[str, Any]:
        stored = self.messages[sequence - 1]
        self.objects[f"object-{sequence}"] = stored.data
        return {
            "sequence": sequence,
            "subject": stored.subject,
            "partition": 0,
            "offset": sequence - 1,
            "create_at": 1_700_000_000,
            "headers": stored.meta.get("headers", {}),
            "size": 0 if sequence in self.unverified else len(stored.data),
            "unverified": sequence in self.unverified,
            "content_type": stored.meta.get("content_type", "application/octet-stream"),
            "object_name": f"object-{sequence}",
            "sha256": stored.meta.get("sha256"),
            "url": f"{STORE}/object-{sequence}",
        }

    def _page(self, subject: str, query: dict[str, str]) -> HttpResponse:
        latest = self._latest(subject)
        words = {"first": 0, "last": latest, "new": latest + 1}
        start = words[query["start"]] if query["start"] in words else int(query["start"])
        limit = int(query["limit"])
        if query.get("view") == "extents":
            found = [pack for pack in self.packs if pack and pack[-1] >= start][:limit]
            extents = [self._extent(pack) for pack in found]
            following = found[-1][-1] + 1 if found else latest + 1
            return _json(200, {"extents": extents, "next_sequence": following, "latest_sequence": latest})
        numbers = [n for n, m in enumerate(self.messages, 1) if m.subject == subject and n >= start][:limit]
        messages = [self._message(number) for number in numbers]
        if query.get("inline") == "true":
            for message in messages:
                data = base64.b64encode(self.messages[message["sequence"] - 1].data).decode()
                message |= {"data": data, "encoding": "base64"}
        following = numbers[-1] + 1 if numbers else latest + 1
        return _json(200, {"messages": messages, "next_sequence": following, "latest_sequence": latest})

    def _extent(self, pack: list[int]) -> dict[str, Any]:
        stored = [self.messages[number - 1] for number in pack]
        sizes = [0 if number in self.unverified else len(m.data) for number, m in zip(pack, stored, strict=True)]
        name = f"pack-{pack[-1]}"
        framed = len(pack) > 1
        frames = [struct.pack(">II", len(m.data), crc32(m.data)) + m.data for m in stored]
        self.objects[name] = b"".join(frames) if framed else stored[0].data
        own = [{"index": n, "headers": m.meta["headers"]} for n, m in enumerate(stored) if m.meta.get("headers")]
        return {
            "own": own,
            "sequence": pack[-1],
            "subject": stored[0].subject,
            "partition": 0,
            "offset": pack[-1] - 1,
            "count": len(pack),
            "create_at": 1_700_000_000,
            "headers": {},
            "size": sum(sizes),
            "sizes": sizes,
            "unverified": pack[-1] in self.unverified,
            "object_name": name,
            "url": f"{STORE}/{name}",
            "content_type": "text/plain",
            "framed": framed,
        }

    # -- the object store

    def _store(
        self, method: str, name: str, query: dict[str, str], headers: Mapping[str, str], body: bytes
    ) -> HttpResponse:
        if method == "GET":
            return self._get_object(name, headers)
        upload = self.uploads[name.rpartition("/")[2]]
        if "partNumber" in query:
            if base64.b64encode(_md5(body)).decode() != headers["content-md5"]:
                return HttpResponse(400, {}, b"<Error><Code>BadDigest</Code><Message>no</Message></Error>")
            upload.parts[int(query["partNumber"])] = body
            return HttpResponse(200, {"etag": f'"{_md5(body).hex()}"'}, b"")
        if upload.payload is not None:
            return HttpResponse(412, {}, b"<Error><Code>PreconditionFailed</Code></Error>")
        upload.payload = body
        if self.events and upload.state == "open":
            self._commit(name.rpartition("/")[2])
        return HttpResponse(200, {}, b"")

    def _get_object(self, name: str, headers: Mapping[str, str]) -> HttpResponse:
        data = self.objects[name]
        if "range" not in headers:
            return HttpResponse(200, {}, data)
        first, _, last = headers["range"].removeprefix("bytes=").partition("-")
        return HttpResponse(206, {}, data[int(first) : int(last) + 1 if last else None])


class FakeStream:
    """The body in small chunks; `cut` ends it early, as a broken connection does."""

    def __init__(self, response: HttpResponse, chunk: int) -> None:
        self.status = response.status
        self.headers = response.headers
        self._body = response.body
        self._chunk = chunk

    async def chunks(self) -> AsyncIterator[bytes]:
        cut = self.headers.get("cut")
        end = int(cut) if cut else len(self._body)
        for start in range(0, end, self._chunk):
            yield self._body[start : min(start + self._chunk, end)]
        if cut:
            raise HttpError("the peer closed the connection in the middle of its answer", sent=True)


async def _whole(body: Body) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, AsyncIterable):
        return b"".join([chunk async for chunk in body])
    return b"".join(body)


def _frames(body: bytes) -> Iterable[tuple[bytes, bytes]]:
    position = 0
    fields: list[bytes] = []
    while position < len(body):
        (length,) = struct.unpack_from(">I", body, position)
        fields.append(body[position + 4 : position + 4 + length])
        position += 4 + length
    return zip(fields[::2], fields[1::2], strict=True)


def _committed(sequence: int, duplicate: bool) -> dict[str, Any]:
    return {
        "state": "committed",
        "sequence": sequence,
        "partition": 0,
        "offset": sequence - 1,
        "duplicate": duplicate,
    }


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _json(status: int, value: Any) -> HttpResponse:
    return HttpResponse(status, {"content-type": "application/json"}, msgspec.json.encode(value))


def _error(status: int, code: str) -> HttpResponse:
    body = {"error": {"code": code, "message": f"{code} happened", "details": {}}}
    return HttpResponse(status, {"x-request-id": uuid.uuid4().hex}, msgspec.json.encode(body))
