"""LocalStack as object store and queue of a host: what it has without Docker, which its Lambdas need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from localstack_client.session import Session

from minitoolstream.stack import bucket as buckets
from minitoolstream.stack.commands import Update, ignore
from minitoolstream.stack.http import ask
from minitoolstream.stack.minio import Credentials
from minitoolstream.stack.ports import free_port
from minitoolstream.stack.processes import Launch
from minitoolstream.stack.program import Program
from minitoolstream.stack.venvs import private_venv
from tests.servers import UNMEASURED, StoreServer

KEY = "test"
"""The one key whose signatures LocalStack knows how to check."""


def get_localstack(*, update: Update = ignore) -> Program:
    return Program(private_venv("localstack", update=update) / "bin" / "python", "from PyPI, in our cache")


@dataclass
class LocalStack(StoreServer):
    queue_url: str = ""

    def ready(self) -> bool:
        return ask(f"{self.endpoint}/_localstack/health").status == 200

    def stop(self) -> None:
        """It would take its time, and keeps nothing."""
        self.kill()


def start_localstack(folder: Path) -> LocalStack:
    """With a bucket whose events go to a queue."""
    folder.mkdir(parents=True, exist_ok=True)
    address = f"127.0.0.1:{free_port()}"
    launch = Launch(
        "localstack",
        [str(get_localstack().path), "-I", "-B", "-m", "localstack.runtime.main"],
        folder / "localstack.log",
        folder=folder,
        environ={
            "GATEWAY_LISTEN": address,
            "GATEWAY_SERVER": "hypercorn",  # the other one listens on every address, whatever it is told
            "LOCALSTACK_HOST": address,
            "SERVICES": "s3,sqs",
            "STRICT_SERVICE_LOADING": "1",
            "S3_SKIP_SIGNATURE_VALIDATION": "0",
            "FILESYSTEM_ROOT": str(folder),
            "HOME": str(folder),
            "DNS_ADDRESS": "0",
            "DISABLE_EVENTS": "1",
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            **UNMEASURED,
        },
    )
    server = LocalStack(
        launch, endpoint=f"http://{address}", access_key=KEY, secret_key=KEY, root=Credentials(KEY, KEY)
    )
    server.start()
    session = Session(
        aws_access_key_id=KEY, aws_secret_access_key=KEY, region_name=server.region, localstack_host=address
    )
    s3 = session.client("s3")
    buckets.ensure_bucket(s3, server.bucket)
    server.queue_url, _arn = buckets.notify_queue(s3, session.client("sqs"), server.bucket)
    return server
