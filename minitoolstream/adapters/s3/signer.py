"""Tickets and download URLs: what a producer or consumer may do with the store, signed for exactly that."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from minitoolstream.adapters.s3.sigv4 import SigV4, endpoint_url, escape
from minitoolstream.config import Settings
from minitoolstream.ports import GetRequest, SignedRequest


class S3Signer:
    """Fulfils `ports.Signer`. Signs for the endpoint that clients reach."""

    def __init__(self, sigv4: SigV4) -> None:
        self._sigv4 = sigv4

    @classmethod
    def from_settings(cls, settings: Settings) -> S3Signer:
        endpoint = settings["minio.public_endpoint"] or settings["minio.endpoint"]
        return cls(sigv4_of(settings, endpoint))

    def put(
        self,
        name: str,
        *,
        size: int,
        content_type: str,
        expires_in: int,
        sha256: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> SignedRequest:
        headers = {"Content-Type": " ".join(content_type.split()), "If-None-Match": "*"}
        if sha256 is not None:
            headers["x-amz-checksum-sha256"] = base64_of_hex(sha256)
        headers.update(metadata_headers(metadata or {}))
        return self._signed_put(name, size, headers, {}, expires_in)

    def put_part(
        self, name: str, *, multipart_id: str, number: int, size: int, expires_in: int, md5: str | None = None
    ) -> SignedRequest:
        headers = {"Content-MD5": base64_of_hex(md5)} if md5 is not None else {}
        query = {"partNumber": str(number), "uploadId": multipart_id}
        return self._signed_put(name, size, headers, query, expires_in)

    def get_many(self, requests: Sequence[GetRequest], *, expires_in: int) -> list[str]:
        sigv4 = self._sigv4
        stamp = sigv4.stamp()
        host = f"host:{sigv4.host}\n"
        whole = f"{host}\nhost"
        urls = []
        for request in requests:
            headers = whole
            if request.byte_range:
                headers = f"{host}range:{range_header(*request.byte_range)}\n\nhost;range"
            query = f"response-content-type={escape(request.content_type)}"
            urls.append(sigv4.url(stamp, "GET", sigv4.path(request.name), headers, query, expires_in))
        return urls

    def _signed_put(
        self, name: str, size: int, headers: dict[str, str], query: dict[str, str], expires_in: int
    ) -> SignedRequest:
        signed = {**headers, "Content-Length": str(size)}
        url = self._sigv4.presign("PUT", name, expires_in=expires_in, query=query, headers=signed)
        return SignedRequest("PUT", url, headers)


def sigv4_of(settings: Settings, endpoint: str) -> SigV4:
    return SigV4(
        endpoint_url(endpoint, use_ssl=settings["minio.use_ssl"]),
        settings["minio.bucket"],
        settings["minio.region"],
        settings.secret("minio.access_key"),
        settings.secret("minio.secret_key"),
        session_token=settings["minio.session_token"],
    )


def range_header(first: int, last: int) -> str:
    return f"bytes={first}-{last}"


def metadata_headers(metadata: Mapping[str, str]) -> dict[str, str]:
    """`x-amz-meta-<name>` headers; the names begin with `mts-`. What is not visible ASCII is percent-encoded:
    browsers refuse to send it, and stores differ in what they make of it."""
    return {f"x-amz-meta-{name}": quote(value, safe="!#$%&'()*+,/:;=?@[]") for name, value in metadata.items()}


def base64_of_hex(digest: str) -> str:
    return base64.b64encode(bytes.fromhex(digest)).decode()
