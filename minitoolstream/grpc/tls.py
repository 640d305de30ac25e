"""TLS of the gRPC servers: certificate and key from files, which may be renewed while they are in use."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError

_log = logging.getLogger("mts.grpc")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """In PEM. With `client_ca`, clients show a certificate that it signed."""

    certificate: Path
    key: Path
    client_ca: Path | None

    def read(self) -> grpc.ServerCertificateConfiguration:
        """MtsError `bad_config` unless they are there and belong together."""
        key, certificate = _content("grpc.key", self.key), _content("grpc.certificate", self.certificate)
        roots = None if self.client_ca is None else _content("grpc.client_ca", self.client_ca)
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate, self.key, password=lambda: "")
            if roots is not None:
                context.load_verify_locations(self.client_ca)
        except OSError as error:
            files = ", ".join(str(file) for file in (self.certificate, self.key, self.client_ca) if file)
            why = "they are not PEM, need a password, or do not belong together"
            raise MtsError("bad_config", f"TLS cannot use {files}: {why} ({error})") from None
        return grpc.ssl_server_certificate_configuration([(key, certificate)], roots)

    def stamp(self) -> tuple[object, ...]:
        """Another one when a file was replaced."""
        found = (file.stat() if file is not None and file.exists() else None for file in (self.certificate, self.key))
        return tuple(stat and (stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in found)


def tls_files(settings: Settings) -> TlsFiles | None:
    """None when the servers speak without TLS; MtsError `bad_config` when only a part is set."""
    certificate, key, client_ca = (settings[f"grpc.{name}"] for name in ("certificate", "key", "client_ca"))
    if certificate and key:
        return TlsFiles(Path(certificate), Path(key), Path(client_ca) if client_ca else None)
    if certificate or key or client_ca:
        raise MtsError("bad_config", "TLS needs both: set grpc.certificate and grpc.key")
    return None


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """What was renewed is used from the next connection on; what cannot be used is logged, and the old one stays."""
    seen = files.stamp()

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal seen
        if files.stamp() == seen:
            return None
        seen = files.stamp()
        try:
            return files.read()
        except MtsError as error:
            _log.warning("the certificate is not renewed: %s", error.message)
            return None

    # None means that nothing has changed, which the type of the library leaves out.
    return grpc.dynamic_ssl_server_credentials(files.read(), renewed, files.client_ca is not None)  # type: ignore[arg-type]


def _content(key: str, file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise MtsError("bad_config", f"{key}: cannot read {file}: {error.strerror}") from None
