"""No route of the API answers without its token, and none mints a URL: every route is walked."""

from __future__ import annotations

from typing import Any

import pytest

from minitoolstream.host.functions import load_functions
from scripts.gen_functions import FUNCTIONS
from tests.e2e.conftest import Target
from tests.e2e.deploy import Deployed
from tests.live import send

ROUTES = sorted((route.method, route.path) for name, route in load_functions().routes if name in FUNCTIONS)
VALUES = {"subject": "s", "sequence": "1", "durable": "d", "stage": "shard-splitter", "transition": "start"}


def filled(path: str) -> str:
    for name in [part[1:-1] for part in path.split("/") if part.startswith("{")]:
        path = path.replace(f"{{{name}}}", VALUES.get(name, "01890a5d-ac96-774b-bcce-b302099a8057"))
    return path


def refused(target: Target, method: str, path: str, headers: dict[str, str]) -> None:
    body = b"{}" if method in {"POST", "PUT"} else None
    answer = send(method, target.url + filled(path), body, {"content-type": "application/json", **headers})
    assert answer.status == 401, (method, path, answer.status, answer.body)
    assert answer.code == "unauthorized"
    assert b"X-Amz-Signature" not in answer.body


def test_no_route_answers_without_a_token_or_with_a_wrong_one(target: Target) -> None:
    for method, path in ROUTES:
        refused(target, method, path, {})
        refused(target, method, path, {"authorization": "Bearer wrong"})


@pytest.mark.parametrize("value", ["Bearer", "Basic {token}", "{token}", "Bearer {token}x"])
def test_what_looks_nearly_like_the_token_is_none(target: Target, value: str) -> None:
    refused(target, "GET", "/v1/status", {"authorization": value.format(token=target.token)})


def test_api_gateway_asks_the_authorizer_before_every_method(deployed: Deployed) -> None:
    """Also where a function would refuse by itself: what the walk sees could be the function's answer."""
    gateway, api = deployed.emulator.client("apigateway"), deployed.stack["api_id"]
    found: dict[tuple[str, str], Any] = {}
    for page in gateway.get_paginator("get_resources").paginate(restApiId=api, embed=["methods"]):
        for resource in page["items"]:
            for method in resource.get("resourceMethods", {}):
                about = gateway.get_method(restApiId=api, resourceId=resource["id"], httpMethod=method)
                found[method, resource["path"]] = (about["authorizationType"], bool(about.get("authorizerId")))
    asked_by_browsers = {key: found.pop(key) for key in list(found) if key[0] == "OPTIONS"}
    assert sorted(found) == ROUTES
    assert set(found.values()) == {("CUSTOM", True)}
    assert {path for _, path in asked_by_browsers} == {path for _, path in ROUTES}
    assert set(asked_by_browsers.values()) == {("NONE", False)}
