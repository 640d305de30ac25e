"""What the builders of publishers and subscribers have in common."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from minitoolstream.connector._wires import Options, must_have_grpc
from minitoolstream.domain.errors import MtsError

File = str | os.PathLike[str]


class Builder:
    def __init__(self, server_addr: str) -> None:
        self._address = server_addr
        self._options = Options()
        self._logger: logging.Logger | None = None

    def with_timeout(self, seconds: float) -> Self:
        """How long a call may take, all its tries together."""
        return self._with(timeout=seconds)

    def with_logger(self, logger: logging.Logger) -> Self:
        self._logger = logger
        return self

    def with_grpc_options(self, *options: tuple[str, Any], credentials: Any = None) -> Self:
        """Channel arguments as `("grpc.keepalive_time_ms", 10000)`; `credentials` of a channel with TLS."""
        return self._with(grpc_options=options, credentials=credentials or self._options.credentials)

    def with_tls(self, ca: File | None = None, *, certificate: File | None = None, key: File | None = None) -> Self:
        """TLS, as with an address `grpcs://host:port`. `ca` is who signed the server's certificate, else those whom the
        system trusts. `certificate` and `key` are our own, for a server that asks for them. All are PEM files."""
        must_have_grpc()
        import grpc

        roots, own, secret = (None if file is None else _content(file) for file in (ca, certificate, key))
        return self._with(credentials=grpc.ssl_channel_credentials(roots, secret, own))

    def with_token(self, token: str) -> Self:
        """Else MTS_TOKEN; or the one that `mts up` made here, for its own servers."""
        return self._with(token=token)

    def _with(self, **changes: Any) -> Self:
        self._options = replace(self._options, **changes)
        return self


def _content(file: File) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise MtsError("bad_config", f"cannot read {file}: {error.strerror}") from None
