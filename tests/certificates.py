"""Certificates for tests, made by the openssl of this machine."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    """Signed by itself: `file` is also what a peer must trust."""

    file: Path
    key: Path

    def install(self, other: Certificate) -> None:
        """Put another one in its place."""
        for mine, new in ((self.file, other.file), (self.key, other.key)):
            fresh = mine.with_suffix(".new")
            fresh.write_bytes(new.read_bytes())
            fresh.replace(mine)


def certificate(folder: Path, name: str) -> Certificate:
    """For localhost."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = f"-subj /CN={name} -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
    files = ("-keyout", str(made.key), "-out", str(made.file))
    subprocess.run([*command.split(), *names.split(), *files], check=True, capture_output=True)
    return made
