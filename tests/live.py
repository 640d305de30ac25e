"""A whole private stack for tests: Tarantool, MinIO with its webhook, and one or more hosts."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from minitoolstream.config import Settings, load_settings
from minitoolstream.stack.credentials import new_secret
from minitoolstream.stack.ports import free_port
from minitoolstream.stack.processes import Launch
from tests.servers import Server, StoreServer, TarantoolServer, start_minio, start_tarantool

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The error's code."""
        return str(self.json["error"]["code"])


def send(
    method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, timeout: float = 60
) -> Answer:
    """One request, as any client would send it; every status is an answer."""
    request = urllib.request.Request(url, data=body, method=method, headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return Answer(response.status, {k.lower(): v for k, v in response.headers.items()}, response.read())
    except urllib.error.HTTPError as error:
        return Answer(error.code, {k.lower(): v for k, v in error.headers.items()}, error.read())


def eventually(check: Callable[[], T], within: float = 30.0, pause: float = 0.05) -> T:
    """What `check` returns once it is true, polled until a deadline."""
    deadline = time.monotonic() + within
    while True:
        result = check()
        if result:
            return result
        assert time.monotonic() < deadline, f"not true within {within} s"
        time.sleep(pause)


@dataclass
class HostServer(Server):
    url: str = ""

    def ready(self) -> bool:
        try:
            return send("GET", f"{self.url}/readyz", timeout=2).status == 200
        except OSError:
            return False


class Calls:
    """What tests ask of the API, wherever it runs."""

    token: str

    @property
    def url(self) -> str:
        raise NotImplementedError

    def api(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, timeout: float = 60
    ) -> Answer:
        """A call with the token; a dict becomes JSON, bytes go as they are."""
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {"authorization": f"Bearer {self.token}", "content-type": "application/json", **(headers or {})}
        return send(method, self.url + path, raw, sent, timeout)

    def ticket(self, subject: str, size: int, **more: Any) -> Any:
        answer = self.api("POST", f"/v1/subjects/{subject}/uploads", {"size": size, **more})
        assert answer.status == 201, answer.body
        return answer.json

    def put(self, ticket: Mapping[str, Any], payload: bytes) -> Answer:
        return send(ticket["method"], ticket["url"], payload, ticket["headers"])

    def receipt(self, upload_id: str, wait: float = 20) -> Any:
        return self.api("GET", f"/v1/uploads/{upload_id}?wait={wait}").json

    def publish(self, subject: str, payload: bytes, **headers: str) -> Answer:
        sent = {"content-type": "application/octet-stream", **{k.replace("_", "-"): v for k, v in headers.items()}}
        return self.api("POST", f"/v1/subjects/{subject}/messages", payload, sent)

    def messages(self, subject: str, **query: Any) -> Any:
        """Every message of a subject, page by page."""
        found: list[Any] = []
        start: Any = query.pop("start", 1)
        more = "".join(f"&{name}={value}" for name, value in query.items())
        while True:
            page = self.api("GET", f"/v1/subjects/{subject}/messages?start={start}&limit=1000{more}").json
            found += page["messages"]
            if not page["messages"] or page["next_sequence"] == start:
                return found
            start = page["next_sequence"]

    def payload(self, message: Mapping[str, Any]) -> bytes:
        headers = {"range": message["range"]} if "range" in message else {}
        answer = send("GET", message["url"], headers=headers)
        assert answer.status in {200, 206}, answer.body
        return answer.body

    def reconcile(self) -> Any:
        return self.api("POST", "/v1/reconcile").json


@dataclass
class Live(Calls):
    tarantool: TarantoolServer
    minio: StoreServer
    settings: Settings
    folder: Path
    environ: dict[str, str]
    token: str
    hosts: list[HostServer] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.hosts[0].url

    def add_host(self, port: int | None = None) -> HostServer:
        port = port or free_port()
        environ = {**self.environ, "MTS_SERVER_PORT": str(port), "MTS_HOME": str(self.folder / f"host-{port}")}
        launch = Launch(
            f"host-{port}",
            [sys.executable, "-m", "minitoolstream.cli.main", "serve"],
            self.folder / f"host-{port}.log",
            environ=environ,
        )
        host = HostServer(launch, url=f"http://127.0.0.1:{port}")
        self.hosts.append(host)
        host.start()
        return host

    def stop(self) -> None:
        for host in self.hosts:
            host.stop()
        self.minio.stop()
        self.tarantool.stop()


def start_live(
    folder: Path,
    *,
    webhook: bool = True,
    hosts: int = 1,
    extra_env: Mapping[str, str] | None = None,
    tarantool: TarantoolServer | None = None,
    store: StoreServer | None = None,
) -> Live:
    """`webhook=False`: the store's events go nowhere, as when every notification is lost. `tarantool`, `store`: those
    that the test has started, with hands on them."""
    folder.mkdir(parents=True, exist_ok=True)
    port, token, hook_token = free_port(), new_secret(), new_secret()
    hook = f"http://127.0.0.1:{port}/hooks/object-created" if webhook else None
    tarantool = tarantool or start_tarantool(folder / "tarantool")
    minio = store or start_minio(folder / "minio", hook, hook_token)
    environ = {
        "MTS_TOKEN": token,
        "MTS_WEBHOOK_TOKEN": hook_token,
        "MTS_TARANTOOL_ADDRESS": tarantool.address,
        "MTS_TARANTOOL_USER": tarantool.user,
        "MTS_TARANTOOL_PASSWORD": tarantool.password,
        "MTS_MINIO_ENDPOINT": minio.endpoint,
        "MTS_MINIO_BUCKET": minio.bucket,
        "MTS_MINIO_ACCESS_KEY": minio.access_key,
        "MTS_MINIO_SECRET_KEY": minio.secret_key,
        "MTS_SERVER_WORKERS": "2",
        "MTS_RECONCILE_INTERVAL": "3600s",
        "MTS_TICKS_INTERVAL": "3600s",
        "MTS_UPLOADS_PART_SIZE": "5MiB",
        "MTS_LOGGING_LEVEL": "debug",
        "MTS_TRASH_GRACE": "0s",  # what tests leave must be seen to go
        **(extra_env or {}),
    }
    settings = load_settings({**environ, "MTS_HOME": str(folder / "home")}, cwd=folder)
    live = Live(tarantool, minio, settings, folder, environ, token)
    live.add_host(port)
    for _ in range(hosts - 1):
        live.add_host()
    return live
