"""The description of the API, made from the routes and the shapes on the wire; nothing is written twice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from minitoolstream.api.app import Route
from minitoolstream.api.errors import HTTP_STATUS, is_ipfs
from minitoolstream.api.schema import Error, IpfsError
from minitoolstream.domain.limits import MAX_DURABLE_LENGTH, MAX_SEQUENCE
from minitoolstream.domain.subject import SUBJECT_PATTERN, UPLOAD_ID_PATTERN
from minitoolstream.domain.tracking import FILENAME_PATTERN, TRANSITIONS, WORK_STAGES

Json = dict[str, Any]

_REF = "#/components/schemas/{name}"
_IPFS = "ipfs-"
_PARAMETER = re.compile(r"\{(\w+)\}")
_SUBJECT: Json = {
    "type": "string",
    "pattern": f"^{SUBJECT_PATTERN}$",
    "examples": ["orders"],
}
_UPLOAD_ID: Json = {
    "type": "string",
    "pattern": f"^{UPLOAD_ID_PATTERN}$",
    "examples": ["01890a5d-ac96-774b-bcce-b302099a8057"],
}
_DURABLE: Json = {
    "type": "string",
    "pattern": f"^[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_DURABLE_LENGTH - 1}}}$",
    "examples": ["billing"],
}
PATH_PARAMETERS: Mapping[str, tuple[Json, str]] = {
    "subject": (_SUBJECT, "name of the stream"),
    "durable": (_DURABLE, "name of the consumer whose position the server keeps"),
    "session_id": ({**_DURABLE, "examples": ["worker-1"]}, "the session, as its reader named it"),
    "transaction_id": (_UPLOAD_ID, "the transaction, as it was named when it began"),
    "upload_id": (_UPLOAD_ID, "the upload, as its ticket names it"),
    "filename": (
        {"type": "string", "pattern": f"^{FILENAME_PATTERN}$", "examples": ["20250101000000"]},
        "name of an event file, up to its .event-ingest.txt",
    ),
    "cid": ({"type": "string", "minLength": 1, "maxLength": 128}, "content id, such as bafkrei..."),
    "requestid": ({"type": "string", "minLength": 1, "maxLength": 128}, "the pin's id, as it was answered"),
    "batch_id": ({"type": "string", "minLength": 1}, "the batch's id, as it was answered"),
    "stage": ({"type": "string", "enum": list(WORK_STAGES)}, "a stage that daemons work on"),
    "transition": ({"type": "string", "enum": list(TRANSITIONS)}, "what happens to the stage"),
    "sequence": (
        {"type": "integer", "minimum": 1, "maximum": MAX_SEQUENCE},
        "place of the message in the order",
    ),
}
FUNCTIONS = {
    "publish": "Announce payloads, follow their uploads, publish small messages.",
    "fetch": "Read messages, wait for them, share them out: metadata and presigned download URLs.",
    "on_object_created": "What the object store's events do.",
    "ttl_sweeper": "Look after the stream.",
    "pipeline": "Track files and their shards through the stages of a pipeline.",
}
_SUCCESS_TEXT = {200: "Done.", 201: "Made.", 202: "Accepted, but not visible yet."}
_STATUS_TEXT = {
    400: "The request is wrong; nothing was changed.",
    401: "The bearer token is missing or wrong.",
    403: "Not allowed.",
    404: "There is no such thing.",
    405: "The path exists, the method does not.",
    409: "It does not fit what is stored; `code` says in which way.",
    410: "The payload is gone.",
    413: "The body is too large.",
    422: "The same idempotency key came with another body.",
    429: "Too much at once; try again after `Retry-After` seconds.",
    500: "Something went wrong on our side; the log has more under the request id.",
    503: "A part we need does not answer; try again after `Retry-After` seconds.",
}
_DESCRIPTION = (
    "A message stream for payloads of any size. Producers upload straight into the object store with "
    "presigned URLs, readers download from it. Sequences, seqnos and offsets are numbers up to 2^53 and "
    "strings above; both are accepted."
)


def openapi(routes: Iterable[tuple[str, Route]]) -> Json:
    """OpenAPI 3.1 of routes, each with the name of the function it belongs to."""
    routes = list(routes)
    references, components = _schemas(routes)
    paths: dict[str, Json] = {}
    for function, route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(function, route, references)
    used = {function for function, _ in routes}
    return {
        "openapi": "3.1.0",
        "info": {"title": "MiniToolStream", "version": _version(), "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "tags": [{"name": name, "description": about} for name, about in FUNCTIONS.items() if name in used],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {**_error_responses("", Error), **_error_responses(_IPFS, IpfsError)},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "`mts token` prints it."}},
        },
    }


def _operation(function: str, route: Route, references: Mapping[Any, Json]) -> Json:
    names = _PARAMETER.findall(route.path)
    parameters = [_path_parameter(name) for name in names]
    parameters += [_parameter("query", name, *about) for name, about in route.query.items()]
    parameters += [_parameter("header", name, *about) for name, about in route.headers.items()]
    operation: Json = {
        "operationId": getattr(route.handler, "__name__", route.path),
        "summary": route.summary,
        "tags": [function],
        "responses": {**_answers(route, references), **_errors(route, bool(names))},
    }
    if about := _docstring(route):
        operation["description"] = about
    if parameters:
        operation["parameters"] = parameters
    if content := _request_content(route, references):
        operation["requestBody"] = {"required": route.body_needed, "content": content}
    return operation


def _docstring(route: Route) -> str | None:
    text = getattr(route.handler, "__doc__", None)
    return " ".join(text.split()) if text else None


def _path_parameter(name: str) -> Json:
    schema, about = PATH_PARAMETERS.get(name, ({"type": "string", "minLength": 1}, name))
    return {"name": name, "in": "path", "required": True, "description": about, "schema": schema}


def _parameter(place: str, name: str, kind: str | Mapping[str, Any], about: str) -> Json:
    schema = {"type": kind} if isinstance(kind, str) else dict(kind)
    return {"name": name, "in": place, "required": False, "description": about, "schema": schema}


def _request_content(route: Route, references: Mapping[Any, Json]) -> Json:
    content: Json = {kind: {"schema": _raw_schema(kind)} for kind in route.raw_body}
    if route.request is not None:
        content[route.json_type] = {"schema": _schema_of(route.request, references)}
    return content


def _raw_schema(kind: str) -> Json:
    """A payload is whatever its type allows."""
    if kind == "application/json":
        return {}
    return {"type": "string"} if kind.startswith("text/") else {"type": "string", "format": "binary"}


def _answers(route: Route, references: Mapping[Any, Json]) -> Json:
    answer: Json = {"headers": _request_id_header()}
    if route.response is not None:
        answer["content"] = {"application/json": {"schema": _schema_of(route.response, references)}}
    statuses = sorted((route.status, *route.also))
    return {str(status): {"description": _SUCCESS_TEXT[status], **answer} for status in statuses}


def _errors(route: Route, has_parameters: bool) -> Json:
    possible = set(_STATUS_TEXT) - {403, 405}
    if route.method == "GET":
        possible -= {413, 422}
    if not has_parameters and not route.may_lack:
        possible -= {404, 410}
    shape = _IPFS if is_ipfs(route.path) else ""
    return {str(status): {"$ref": f"#/components/responses/{shape}{status}"} for status in sorted(possible)}


def _error_responses(shape: str, error: type[Error | IpfsError]) -> Json:
    codes: dict[int, list[str]] = {}
    for code, status in HTTP_STATUS.items():
        codes.setdefault(status, []).append(code)
    answers: Json = {}
    for status, text in _STATUS_TEXT.items():
        headers = _request_id_header()
        if status in {429, 503}:
            headers["Retry-After"] = {"description": "seconds", "schema": {"type": "integer"}}
        names = ", ".join(f"`{code}`" for code in codes.get(status, []))
        answers[f"{shape}{status}"] = {
            "description": f"{text} Codes: {names}." if names else text,
            "headers": headers,
            "content": {"application/json": {"schema": {"$ref": _REF.format(name=error.__name__)}}},
        }
    return answers


def _request_id_header() -> Json:
    return {"X-Request-Id": {"description": "names this request in the logs", "schema": {"type": "string"}}}


def _schemas(routes: Sequence[tuple[str, Route]]) -> tuple[dict[Any, Json], Json]:
    """A reference for every type that a route names, and the definitions behind them."""
    types: list[Any] = [Error, IpfsError]
    for _, route in routes:
        for named in (route.request, route.response):
            types += [each for each in _alternatives(named) if each not in types]
    schemas, components = msgspec.json.schema_components(types, schema_hook=_any_value, ref_template=_REF)
    return dict(zip(types, schemas, strict=True)), components


def _any_value(kind: type) -> Json:
    if kind is object:
        return {"description": "any JSON value"}
    raise NotImplementedError(kind)


def _schema_of(named: Any, references: Mapping[Any, Json]) -> Json:
    schemas = [references[each] for each in _alternatives(named)]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _alternatives(named: Any) -> tuple[Any, ...]:
    """`A | B` by its parts: msgspec does not describe a union of untagged structs."""
    if named is None:
        return ()
    return get_args(named) if get_origin(named) in {Union, UnionType} else (named,)


def _version() -> str:
    try:
        return metadata.version("minitoolstream")
    except metadata.PackageNotFoundError:
        return "0"
