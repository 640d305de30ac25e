"""Durables as tests of delivery use them, through the API."""

from __future__ import annotations

import json
from typing import Any

from tests.live import Answer, Live


def fill(live: Live, subject: str, *bodies: str, **headers: str) -> list[int]:
    lines = b"\n".join(json.dumps({"data": body, "headers": headers}).encode() for body in bodies)
    kind = {"content-type": "application/x-ndjson"}
    answer = live.api("POST", f"/v1/subjects/{subject}/messages/batch", lines, kind)
    return [result["sequence"] for result in answer.json["results"]]


class Durable:
    def __init__(self, live: Live, subject: str, name: str = "billing") -> None:
        self.live, self.subject, self.name = live, subject, name
        self.path = f"/v1/subjects/{subject}/consumers/{name}"

    def put(self, **body: Any) -> Answer:
        return self.live.api("PUT", self.path, body)

    def post(self, action: str, **body: Any) -> Answer:
        return self.live.api("POST", f"{self.path}/{action}", body)

    @property
    def now(self) -> Any:
        return self.live.api("GET", self.path).json

    def read(self, **query: Any) -> Any:
        return subscribe(self.live, self.subject, durable=self.name, **query).json


def subscribe(live: Live, subject: str, **query: Any) -> Answer:
    return live.api("GET", f"/v1/subjects/{subject}/subscribe?" + "&".join(f"{k}={v}" for k, v in query.items()))


def sequences(page: Any) -> list[int]:
    return [message["sequence"] for message in page["messages"]]
