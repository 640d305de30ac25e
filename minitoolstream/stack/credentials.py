"""Generated credentials, kept in `.mts/secrets.json` (0600). There is no default password anywhere."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import msgspec

from minitoolstream.domain.errors import MtsError
from minitoolstream.stack.private_files import write_private


class Secrets(msgspec.Struct):
    """`settings` are read by `load_settings`; the store's root credentials are for the stack alone."""

    settings: dict[str, str]
    store_root: dict[str, str]


def new_access_key() -> str:
    return "MTS" + secrets.token_hex(8).upper()


def new_secret() -> str:
    # Hex: nothing that a command takes for an option or that a double click does not select.
    return secrets.token_hex(20)


def generate() -> Secrets:
    return Secrets(
        settings={
            "server.token": new_secret(),
            "server.webhook_token": new_secret(),
            "tarantool.password": new_secret(),
            "minio.access_key": new_access_key(),
            "minio.secret_key": new_secret(),
            "catalog.password": new_secret(),
        },
        store_root={"access_key": new_access_key(), "secret_key": new_secret()},
    )


def load_or_generate(home: Path) -> Secrets:
    """The kept credentials; what is missing is generated and written."""
    path = home / "secrets.json"
    fresh = generate()
    kept: dict[str, Any] = {}
    if path.exists():
        try:
            kept = msgspec.to_builtins(msgspec.json.decode(path.read_bytes(), type=Secrets))
        except msgspec.MsgspecError as error:
            raise MtsError("bad_config", f"{path} is damaged ({error}); restore it, or `mts down --purge`") from None
    merged = Secrets(
        settings={**fresh.settings, **kept.get("settings", {})},
        store_root={**fresh.store_root, **kept.get("store_root", {})},
    )
    if msgspec.to_builtins(merged) != kept:
        save_secrets(home, merged)
    return merged


def save_secrets(home: Path, secrets: Secrets) -> None:
    write_private(home / "secrets.json", msgspec.json.format(msgspec.json.encode(secrets)))
