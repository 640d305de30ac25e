"""What `mts status` tells: what runs where, whether it is ready, and what an operator should see."""

from __future__ import annotations

from typing import Any

from minitoolstream.config import Settings
from minitoolstream.stack.http import ask
from minitoolstream.stack.places import given
from minitoolstream.stack.state import HOST, OBJECT_STORE, PARTS, TARANTOOL, State, load_state, log_file

_PART_OF = {TARANTOOL: "tarantool.address", OBJECT_STORE: "minio.endpoint", HOST: "server.port"}


def status(settings: Settings) -> dict[str, Any]:
    """The shape of `mts status --json`; `state` is running, partial or stopped."""
    state = load_state(settings.home)
    processes = {part: _process(settings, state, part) for part in PARTS if _is_ours(state, part)}
    url = next(iter(state.settings.get("server.urls", [])), None)
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
        "tarantool": {"address": settings["tarantool.address"]},
        "processes": processes,
    }
    if readiness is not None:
        report["ready"] = ready
        if not ready:
            report["readiness"] = readiness.body
        report |= _seen_by_host(f"{url}/v1/status", settings["server.token"])
    return report


def _overall(running: int, expected: int, *, ready: bool) -> str:
    if not running:
        return "stopped"
    return "running" if running == expected and ready else "partial"


def _is_ours(state: State, part: str) -> bool:
    return part in state.processes or _PART_OF[part] in state.settings


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


def _seen_by_host(url: str, token: str | None) -> dict[str, Any]:
    """What the host itself reports (rejected events, uploads by state), when it does."""
    answer = ask(url, token=token)
    if answer.status != 200 or not isinstance(answer.body, dict):
        return {}
    return {name: answer.body[name] for name in ("rejected_events", "uploads") if name in answer.body}
