"""A process that only streams one payload through gRPC, up and down; it holds no more than a chunk of it.

`python -m bench.grpc_transfer INGRESS EGRESS TOKEN BYTES` prints the seconds of each way as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator

import grpc

from minitoolstream.connector._stubs import Stub
from minitoolstream.pb import egress_v1_pb2 as egress
from minitoolstream.pb import ingress_v1_pb2 as ingress

CHUNK = os.urandom(2**20)


def main(ingress_address: str, egress_address: str, token: str, size: str) -> None:
    metadata = (("authorization", f"Bearer {token}"),)
    total = int(size)

    def requests() -> Iterator[ingress.PublishStreamRequest]:
        upload = ingress.Upload(subject="bench.stream", size=total)
        yield ingress.PublishStreamRequest(upload=upload)
        for first in range(0, total, len(CHUNK)):
            yield ingress.PublishStreamRequest(data=CHUNK[: min(len(CHUNK), total - first)])

    with grpc.insecure_channel(ingress_address) as channel:
        stub = Stub(channel, ingress.DESCRIPTOR.services_by_name["IngressService"])
        begun = time.perf_counter()
        published = stub.PublishStream(requests(), metadata=metadata, timeout=600)
        up = time.perf_counter() - begun
    if published.status_code:
        sys.exit(published.error_message)
    with grpc.insecure_channel(egress_address) as channel:
        stub = Stub(channel, egress.DESCRIPTOR.services_by_name["EgressService"])
        begun = time.perf_counter()
        request = egress.DownloadRequest(sequence=published.sequence)
        came = sum(len(piece.data) for piece in stub.Download(request, metadata=metadata, timeout=600))
        down = time.perf_counter() - begun
    if came != total:
        sys.exit(f"{came} of {total} bytes came back")
    print(json.dumps({"up": up, "down": down}))


if __name__ == "__main__":
    main(*sys.argv[1:])
