"""What `mts status` tells: what runs where, whether it is ready, and what an operator should see."""

from __future__ import annotations

from typing import Any

from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.net.addresses import is_http_url
from minitoolstream.stack.http import Answer, ask
from minitoolstream.stack.places import Place, given
from minitoolstream.stack.state import (
    CATALOG,
    GRPC,
    GRPC_PORTS,
    HOST,
    OBJECT_STORE,
    PARTS,
    TARANTOOL,
    State,
    load_state,
    log_file,
)

_PART_OF = {
    TARANTOOL: "tarantool.address",
    OBJECT_STORE: "minio.endpoint",
    HOST: "server.port",
    GRPC: "grpc.ingress_port",
    CATALOG: "catalog.database",
}


def status(settings: Settings) -> dict[str, Any]:
    """The stack of this folder, in the shape of `mts status --json`; `state` is running, partial or stopped."""
    state = load_state(settings.home)
    processes = {part: _process(settings, state, part) for part in PARTS if _is_ours(state, part)}
    url: str | None = next(iter(state.settings.get("server.urls", [])), None)
    running = [part for part, about in processes.items() if about["state"] == "running"]
    readiness = ask(f"{url}/readyz") if url and HOST in running else None
    ready = readiness is not None and readiness.status == 200
    report: dict[str, Any] = {
        "state": _overall(len(running), len(processes), ready=ready),
        "http": url,
        "token_file": str(settings.home / "token"),
        "object_store": {
            "kind": "external"
            if given(settings, "minio.endpoint") and OBJECT_STORE not in processes
            else state.settings.get("object_store.kind"),
            "endpoint": settings["minio.endpoint"],
            "bucket": settings["minio.bucket"],
        },
        "grpc": _grpc(settings, state),
        "catalog": {"database": settings["catalog.database"]},
        "tarantool": {"address": settings["tarantool.address"]},
        "processes": processes,
    }
    if url and readiness is not None:
        report["ready"] = ready
        if not ready:
            report["readiness"] = readiness.body
        report |= _seen_by_host(url, settings)
    return report


def status_elsewhere(settings: Settings) -> dict[str, Any] | None:
    """The host that MTS_URL or `mts.yaml` names, as other commands would use it; None when it is this folder's own.

    `state` is running, partial or unreachable.
    """
    urls = [url.rstrip("/") for url in settings["server.urls"]]
    ours = load_state(settings.home).settings.get("server.urls", [])
    if not urls or not given(settings, "server.urls") or set(urls) & set(ours):
        return None
    for url in urls:
        if not is_http_url(url):
            source = settings.source("server.urls")
            raise MtsError("bad_config", f"{url!r} (from {source}) is not an address such as http://127.0.0.1:8080")
    asked = ((url, ask(f"{url}/readyz")) for url in urls)
    url, readiness = next(((url, answer) for url, answer in asked if answer.status), (urls[0], Answer(0)))
    report: dict[str, Any] = {"state": "unreachable", "http": url, "given_by": settings.source("server.urls")}
    if readiness.status:
        ready = readiness.status == 200
        report |= {"state": "running" if ready else "partial", "ready": ready}
        if not ready:
            report["readiness"] = readiness.body
        report |= _seen_by_host(url, settings)
    return report


def _overall(running: int, expected: int, *, ready: bool) -> str:
    if not running:
        return "stopped"
    return "running" if running == expected and ready else "partial"


def _is_ours(state: State, part: str) -> bool:
    return part in state.processes or _PART_OF[part] in state.settings


def _grpc(settings: Settings, state: State) -> dict[str, str] | None:
    """Where the gRPC servers are; None without them."""
    if not _is_ours(state, GRPC):
        return None
    ports = (state.settings.get(key, settings[key]) for key in GRPC_PORTS)
    ingress, egress = (Place(settings["server.host"], port, managed=True).address for port in ports)
    return {"ingress": ingress, "egress": egress}


def _process(settings: Settings, state: State, part: str) -> dict[str, Any]:
    running = state.alive(part)
    about: dict[str, Any] = {
        "state": "running" if running else "stopped",
        "log": str(log_file(settings.home, part)),
    }
    if running:
        about["pid"] = running.process.pid
    elif part in state.processes:
        about["state"] = "crashed"
    return about


def _seen_by_host(url: str, settings: Settings) -> dict[str, Any]:
    """What the host itself reports (rejected events, uploads, the journal ...), and whether it took the token."""
    token = settings.token_for([url])
    answer = ask(f"{url}/v1/status", token=token)
    if answer.status == 401:
        return {"token_refused": settings.source("server.token")}
    if answer.status != 200 or not isinstance(answer.body, dict):
        return {}
    shown = ("rejected_events", "uploads", "missing", "retention", "recovery")
    seen = {name: answer.body[name] for name in shown if answer.body.get(name) is not None}
    if journal := answer.body.get("journal"):
        seen["journal"] = {name: journal[name] for name in ("behind", "seconds")}
    peers = ask(f"{url}/v1/catalog/peers", token=token)
    if peers.status == 200 and isinstance(peers.body, dict) and peers.body.get("peers"):
        seen["peers"] = peers.body["peers"]
    if peers.status >= 500 and isinstance(peers.body, dict):
        seen["catalog_problem"] = peers.body.get("error", {}).get("message", "it does not answer")
    return seen
