"""The description of the API says what the routes do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from minitoolstream.api import schema
from minitoolstream.api.app import Route
from minitoolstream.api.errors import error_body
from minitoolstream.api.openapi import openapi
from minitoolstream.domain.errors import MtsError
from minitoolstream.host.functions import load_functions
from tests.unit.host_client import echo


@pytest.fixture(scope="module")
def description() -> Any:
    """As it goes over the wire."""
    return msgspec.json.decode(msgspec.json.encode(openapi(load_functions().routes)))


def operations(description: Any) -> Iterator[tuple[str, str, Any]]:
    for path, item in description["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_route_of_every_function_is_described(description: Any) -> None:
    described = {(method, path) for method, path, _ in operations(description)}
    assert described == {(route.method, route.path) for _, route in load_functions().routes}
    assert ("POST", "/v1/subjects/{subject}/uploads") in described


def test_every_reference_leads_somewhere(description: Any) -> None:
    found = set(references(description))
    assert found
    for reference in found:
        place = description
        for key in reference.removeprefix("#/").split("/"):
            place = place[key]


def test_every_schema_is_valid(description: Any) -> None:
    for one in description["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **one})


def test_names_of_operations_are_unique(description: Any) -> None:
    names = [operation["operationId"] for _, _, operation in operations(description)]
    assert len(names) == len(set(names))


def test_every_parameter_of_a_path_is_described(description: Any) -> None:
    for _, path, operation in operations(description):
        described = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
        assert described == set(re.findall(r"\{(\w+)\}", path))
        assert all(p["description"] != p["name"] for p in operation.get("parameters", []))


def test_every_call_needs_the_token_and_says_how_it_fails(description: Any) -> None:
    assert description["security"] == [{"token": []}]
    for _, _, operation in operations(description):
        assert "security" not in operation
        assert {"400", "401", "500", "503"} <= operation["responses"].keys()


def validator(description: Any, name: str) -> Any:
    whole = {"$ref": f"#/components/schemas/{name}", "components": description["components"]}
    return jsonschema_rs.validator_for(whole)


def test_an_error_as_it_is_sent_fits_its_description(description: Any) -> None:
    body = error_body(MtsError("too_large", "too large", {"limit": 1, "more": ["x"]}))
    validator(description, "Error").validate(body)


def test_unknown_fields_of_a_request_are_refused_by_the_description_too(description: Any) -> None:
    request = validator(description, "UploadRequest")
    assert request.is_valid({"size": 5})
    assert not request.is_valid({"size": 5, "sise": 5})


def test_many_tickets_may_hold_receipts(description: Any) -> None:
    ticket = {"upload_id": "u", "object_name": "o", "method": "PUT", "expires_at": 1}
    tickets = validator(description, "Tickets")
    assert tickets.is_valid({"uploads": [ticket, {"state": "committed", "duplicate": True}]})
    assert not tickets.is_valid({"uploads": ["x"]})


def test_a_route_may_take_raw_bodies_headers_and_answer_with_several_statuses() -> None:
    route = Route(
        "POST",
        "/v1/things/{thing}",
        echo,
        "a thing",
        request=schema.InlineRequest,
        json_type="application/vnd.x+json",
        raw_body=("text/plain",),
        response=schema.ReceiptAnswer,
        status=201,
        also=(200,),
        headers={"x-a": ("string", "a header")},
        query={"b": ({"type": "integer", "minimum": 1}, "a number"), "c": ("boolean", "a flag")},
    )
    operation = openapi([("publish", route)])["paths"]["/v1/things/{thing}"]["post"]
    assert set(operation["requestBody"]["content"]) == {"text/plain", "application/vnd.x+json"}
    assert {"200", "201", "413"} <= operation["responses"].keys()
    assert operation["description"] == "Says what arrived."
    places = {(p["name"], p["in"], p["schema"]["type"]) for p in operation["parameters"]}
    assert places == {
        ("thing", "path", "string"),
        ("x-a", "header", "string"),
        ("b", "query", "integer"),
        ("c", "query", "boolean"),
    }


def test_a_route_without_parameters_is_never_not_found() -> None:
    operation = openapi([("publish", Route("GET", "/v1/x", echo, "x"))])["paths"]["/v1/x"]["get"]
    assert "404" not in operation["responses"]
    assert "requestBody" not in operation
