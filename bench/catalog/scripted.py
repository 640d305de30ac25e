"""Copies as a script makes them: boto3 in threads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
from botocore.config import Config

from minitoolstream.domain.cid import Cid, cid_of
from minitoolstream.services.copy_content import key_of
from minitoolstream.services.reconcile_copies import AT_ONCE
from tests.servers import MinioServer

TARGET = "scripted"


def copies(source: MinioServer, bucket: str, target: MinioServer, cids: Sequence[Cid]) -> float:
    """As many at once as the reconciler's, each compared with its id as there. Copies a second."""
    reader, writer = _client(source), _client(target)

    def copy(cid: Cid) -> None:
        body = reader.get_object(Bucket=bucket, Key=key_of(cid))["Body"].read()
        assert cid_of(body) == cid
        writer.put_object(Bucket=TARGET, Key=key_of(cid), Body=body)

    copy(cids[0])  # both look for their models and connect
    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        done = sum(1 for _ in threads.map(copy, cids[1:]))
    return done / (time.monotonic() - began)


def clear(server: MinioServer) -> None:
    """What it has copied goes again."""
    client = server.s3()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=TARGET):
        keys = [{"Key": found["Key"]} for found in page.get("Contents", ())]
        if keys:
            client.delete_objects(Bucket=TARGET, Delete={"Objects": keys})


def _client(server: MinioServer) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=server.region,
        aws_access_key_id=server.root.access_key,
        aws_secret_access_key=server.root.secret_key,
        config=Config(max_pool_connections=AT_ONCE, s3={"addressing_style": "path"}),
    )
