"""The bucket, and how its events reach the host. Everything here is safe to run again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.keys import PAYLOAD_PREFIX
from minitoolstream.stack.minio import Credentials, webhook_arn

_QUEUE = "minitoolstream-events"


def client(service: str, endpoint: str, credentials: Credentials, region: str) -> Any:
    """A boto3 client that asks nobody else for settings, and gives up soon."""
    import boto3
    from botocore.config import Config

    return boto3.session.Session().client(
        service,
        endpoint_url=endpoint,
        aws_access_key_id=credentials.access_key,
        aws_secret_access_key=credentials.secret_key,
        region_name=region,
        config=Config(
            connect_timeout=3,
            read_timeout=15,
            retries={"max_attempts": 3},
            request_checksum_calculation="when_required",  # else with trailers, which the host's user may not send
            s3={"addressing_style": "path"},
        ),
    )


def ensure_bucket(s3: Any, bucket: str) -> None:
    from botocore.exceptions import ClientError

    with translated(f"bucket `{bucket}`"):
        try:
            s3.head_bucket(Bucket=bucket)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
                raise
            _create(s3, bucket)


def _create(s3: Any, bucket: str) -> None:
    region = s3.meta.region_name
    # us-east-1 is the one region that must not be named.
    where = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    try:
        s3.create_bucket(Bucket=bucket, **where)
    except (s3.exceptions.BucketAlreadyOwnedByYou, s3.exceptions.BucketAlreadyExists):
        # Another `mts up` was faster.
        s3.head_bucket(Bucket=bucket)


def notify_webhook(s3: Any, bucket: str, region: str) -> None:
    """Events of payloads go to the webhook that MinIO was started with."""
    with translated(f"notification of bucket `{bucket}`"):
        s3.put_bucket_notification_configuration(
            Bucket=bucket,
            NotificationConfiguration={"QueueConfigurations": [_queue_configuration(webhook_arn(region))]},
        )


def notify_queue(s3: Any, sqs: Any, bucket: str) -> tuple[str, str]:
    """Events of payloads go to an SQS queue; returns its URL and ARN."""
    with translated(f"event queue of bucket `{bucket}`"):
        url: str = sqs.create_queue(QueueName=_QUEUE, Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
        arn: str = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(_queue_policy(arn, bucket))})
        s3.put_bucket_notification_configuration(
            Bucket=bucket, NotificationConfiguration={"QueueConfigurations": [_queue_configuration(arn)]}
        )
    return url, arn


def _queue_policy(arn: str, bucket: str) -> dict[str, Any]:
    """The store itself is the only one that may send, and only for this bucket."""
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "s3.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": f"arn:aws:s3:::{bucket}"}},
    }
    return {"Version": "2012-10-17", "Statement": [statement]}


def allow_browsers(s3: Any, bucket: str, origins: Sequence[str]) -> None:
    """Bucket CORS, where it is a bucket's setting (not on MinIO, where it is the server's)."""
    with translated(f"CORS of bucket `{bucket}`"):
        s3.put_bucket_cors(
            Bucket=bucket,
            CORSConfiguration={
                "CORSRules": [
                    {
                        "AllowedOrigins": list(origins),
                        "AllowedMethods": ["GET", "HEAD", "PUT"],
                        "AllowedHeaders": [
                            "if-none-match",
                            "range",
                            "content-type",
                            "content-md5",
                            "x-amz-meta-*",
                            "x-amz-checksum-*",
                        ],
                        "ExposeHeaders": ["ETag", "Content-Range"],
                        "MaxAgeSeconds": 3600,
                    }
                ]
            },
        )


def _queue_configuration(arn: str) -> dict[str, Any]:
    rules = [{"Name": "prefix", "Value": PAYLOAD_PREFIX}]
    return {"QueueArn": arn, "Events": ["s3:ObjectCreated:*"], "Filter": {"Key": {"FilterRules": rules}}}


@contextmanager
def translated(what: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise MtsError("start_failed", f"{what}: {error}") from error
