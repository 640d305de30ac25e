"""ministack as a whole AWS: runs the functions for real, and enforces their roles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localstack_client.session import Session

from minitoolstream.stack import ministack_server
from minitoolstream.stack.http import ask
from minitoolstream.stack.ministack import get_ministack
from minitoolstream.stack.ports import free_port
from minitoolstream.stack.processes import Launch
from tests.servers import UNMEASURED, Server

REGION = "us-east-1"
KEY = "test"


@dataclass
class Emulator(Server):
    port: int = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ready(self) -> bool:
        return ask(self.endpoint + ministack_server.HEALTH).status == 200

    def client(self, service: str) -> Any:
        session = Session(
            aws_access_key_id=KEY,
            aws_secret_access_key=KEY,
            region_name=REGION,
            localstack_host=f"127.0.0.1:{self.port}",
        )
        return session.client(service)


def start_emulator(folder: Path) -> Emulator:
    """Its data ends with it."""
    port = free_port()
    for name in ("tmp", "s3"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    python = [str(get_ministack().path), "-I", "-B"]
    served = ["--bind", f"127.0.0.1:{port}", "--keep-alive", str(ministack_server.KEEP_ALIVE)]
    launch = Launch(
        "ministack",
        [*python, "-m", "hypercorn", "ministack.app:app", "--workers", "0", *served],
        folder / "ministack.log",
        folder=folder,
        environ={
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(port),
            "MINISTACK_HOST": "127.0.0.1",
            "AUTH": "true",
            "S3_PERSIST": "1",
            "S3_DATA_DIR": str(folder / "s3"),
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            "MINISTACK_REGION": REGION,
            "TMPDIR": str(folder / "tmp"),
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": KEY,
            # The functions bring all they need; what is measured here is not what runs there.
            "PYTHONPATH": "",
            **UNMEASURED,
        },
    )
    server = Emulator(launch, port=port)
    server.start()
    return server
