"""MinIO as a child process: its command, when it is ready, and the user the host works as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from minitoolstream.domain.errors import MtsError
from minitoolstream.stack.http import ask
from minitoolstream.stack.processes import Launch
from minitoolstream.stack.program import Program

VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
WEBHOOK_ID = "MTS"
POLICY = "minitoolstream"

# Above the 7 days of the longest ticket: MinIO must not drop the parts of an upload that may still go on.
_STALE_UPLOADS_EXPIRY = "192h"


class Credentials(msgspec.Struct, frozen=True):
    access_key: str
    secret_key: str


class Webhook(msgspec.Struct, frozen=True):
    url: str
    token: str


def launch(
    program: Program,
    *,
    port: int,
    data: Path,
    log: Path,
    root: Credentials,
    webhook: Webhook | None = None,
    host: str = "127.0.0.1",
    region: str = "us-east-1",
    cors_origins: Sequence[str] = ("*",),
    extra_environ: Mapping[str, str] | None = None,
) -> Launch:
    """The webhook has no queue folder on purpose: with one, a refused event would block all behind it."""
    data.mkdir(parents=True, exist_ok=True)
    own = data.with_name("minio-config")
    environ = {
        **program.environ,
        "MINIO_ROOT_USER": root.access_key,
        "MINIO_ROOT_PASSWORD": root.secret_key,
        "MINIO_REGION": region,
        # With its web console, MinIO would open a second port.
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
        "MINIO_API_SYNC_EVENTS": "on",
        "MINIO_API_STALE_UPLOADS_EXPIRY": _STALE_UPLOADS_EXPIRY,
        "MINIO_API_CORS_ALLOW_ORIGIN": ",".join(cors_origins),
    }
    if webhook:
        environ |= {
            f"MINIO_NOTIFY_WEBHOOK_ENABLE_{WEBHOOK_ID}": "on",
            f"MINIO_NOTIFY_WEBHOOK_ENDPOINT_{WEBHOOK_ID}": webhook.url,
            f"MINIO_NOTIFY_WEBHOOK_AUTH_TOKEN_{WEBHOOK_ID}": webhook.token,
        }
    return Launch(
        name="MinIO",
        command=[
            str(program.path),
            "server",
            "--quiet",
            "--address",
            f"{host}:{port}",
            # Else it makes ~/.minio, and speaks TLS with certificates that somebody left there.
            "--config-dir",
            str(own),
            "--certs-dir",
            str(own / "certs"),
            str(data),
        ],
        log=log,
        folder=data,
        environ={**environ, **(extra_environ or {})},
    )


def webhook_arn(region: str) -> str:
    return f"arn:minio:sqs:{region}:{WEBHOOK_ID}:webhook"


def is_ready(endpoint: str) -> bool:
    return ask(f"{endpoint}/minio/health/ready").status == 200


def ensure_user(endpoint: str, root: Credentials, user: Credentials, bucket: str) -> None:
    """The host's user: may read, write and delete in its bucket, and nothing else. Safe to run again."""
    from minio import MinioAdmin
    from minio.credentials.providers import StaticProvider
    from minio.error import MinioAdminException

    scheme, _, address = endpoint.partition("://")
    admin = MinioAdmin(
        endpoint=address,
        credentials=StaticProvider(root.access_key, root.secret_key),
        secure=scheme == "https",
    )
    try:
        admin.policy_add(POLICY, policy=bucket_policy(bucket))
        admin.user_add(user.access_key, user.secret_key)
        admin.policy_set(POLICY, user=user.access_key)
    except MinioAdminException as error:
        raise MtsError("start_failed", f"MinIO did not create the host's user: {error}") from error


def bucket_policy(bucket: str) -> dict[str, Any]:
    """What the host needs of its bucket, written out."""
    arn = f"arn:aws:s3:::{bucket}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": [
                    "s3:ListBucket",
                    "s3:GetBucketLocation",
                    "s3:ListBucketMultipartUploads",
                    "s3:GetLifecycleConfiguration",
                    "s3:PutLifecycleConfiguration",
                    "s3:GetBucketVersioning",
                    "s3:GetBucketObjectLockConfiguration",
                ],
                "Resource": [arn],
            },
            {
                "Effect": "Allow",
                "Action": [
                    "s3:GetObject",
                    "s3:PutObject",
                    "s3:DeleteObject",
                    "s3:AbortMultipartUpload",
                    "s3:ListMultipartUploadParts",
                ],
                "Resource": [f"{arn}/*"],
            },
            {
                # An unsigned x-amz-copy-source makes MinIO take any presigned PUT for a copy, which ignores the signed
                # If-None-Match and Content-Length: a committed payload could be replaced.
                "Effect": "Deny",
                "Action": ["s3:PutObject"],
                "Resource": [f"{arn}/*"],
                "Condition": {"Null": {"s3:x-amz-copy-source": "false"}},
            },
            {
                # With this value MinIO does not look at a signature in the query, nor at that of an archive to unpack
                # (CVE-2026-41145, CVE-2026-40344): the access key, which stands in every URL, would be enough to write.
                "Effect": "Deny",
                "Action": ["s3:PutObject"],
                "Resource": [f"{arn}/*"],
                "Condition": {"StringEquals": {"s3:x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER"}},
            },
        ],
    }
