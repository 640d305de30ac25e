"""The embedded emulator of S3 and SQS: needs nothing, good for trying out, not for data one wants to keep."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from minitoolstream.stack import bucket as buckets
from minitoolstream.stack import ministack_server
from minitoolstream.stack.commands import Update, ignore
from minitoolstream.stack.http import ask
from minitoolstream.stack.minio import Credentials, bucket_policy
from minitoolstream.stack.private_files import private_folder
from minitoolstream.stack.processes import Launch
from minitoolstream.stack.program import Program
from minitoolstream.stack.venvs import private_venv

_USER = "minitoolstream"


def get_ministack(*, update: Update = ignore) -> Program:
    return Program(private_venv("ministack", update=update) / "bin" / "python", "from PyPI, in our cache")


def launch(
    program: Program,
    *,
    port: int,
    data: Path,
    log: Path,
    root: Credentials,
    region: str,
    host: str = "127.0.0.1",
) -> Launch:
    temporary = private_folder(data / "tmp")
    return Launch(
        name="ministack",
        # Isolated, so that neither our modules nor the user's packages shadow the emulator's.
        command=[str(program.path), "-I", "-B", str(Path(ministack_server.__file__))],
        log=log,
        folder=data,
        environ={
            "BIND_HOST": host,
            "GATEWAY_PORT": str(port),
            "AUTH": "true",
            "S3_PERSIST": "1",
            "S3_DATA_DIR": str(data / "s3"),
            "PERSIST_STATE": "1",
            "STATE_DIR": str(data / "state"),
            "SERVICES": "s3,sqs,iam,sts",
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            "MINISTACK_REGION": region,
            "AWS_ACCESS_KEY_ID": root.access_key,
            "AWS_SECRET_ACCESS_KEY": root.secret_key,
            "TMPDIR": str(temporary),
        },
    )


def is_ready(endpoint: str) -> bool:
    return ask(endpoint + ministack_server.HEALTH).status == 200


def takes(endpoint: str, user: Credentials, bucket: str, region: str) -> bool:
    """Whether the emulator still knows the host's user: it forgets it when it is killed."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        buckets.client("s3", endpoint, user, region).head_bucket(Bucket=bucket)
    except (BotoCoreError, ClientError):
        return False
    return True


def new_user(endpoint: str, root: Credentials, bucket: str, queue_arn: str, region: str) -> Credentials:
    """The host's user, limited to its bucket and queue; the emulator chooses the keys."""
    iam = buckets.client("iam", endpoint, root, region)
    with buckets.translated("the host's user"):
        with contextlib.suppress(iam.exceptions.EntityAlreadyExistsException):
            iam.create_user(UserName=_USER)
        for old in iam.list_access_keys(UserName=_USER)["AccessKeyMetadata"]:
            iam.delete_access_key(UserName=_USER, AccessKeyId=old["AccessKeyId"])
        iam.put_user_policy(
            UserName=_USER, PolicyName=_USER, PolicyDocument=json.dumps(_user_policy(bucket, queue_arn))
        )
        key = iam.create_access_key(UserName=_USER)["AccessKey"]
    return Credentials(key["AccessKeyId"], key["SecretAccessKey"])


def _user_policy(bucket: str, queue_arn: str) -> dict[str, Any]:
    policy = bucket_policy(bucket)
    policy["Statement"].append(
        {
            "Effect": "Allow",
            "Action": [
                "sqs:ReceiveMessage",
                "sqs:DeleteMessage",
                "sqs:DeleteMessageBatch",  # AWS asks for the permission above in both cases, the emulator does not
                "sqs:ChangeMessageVisibility",
                "sqs:GetQueueAttributes",
                "sqs:GetQueueUrl",
            ],
            "Resource": [queue_arn],
        }
    )
    return policy
