"""AWS Signature Version 4 in query strings (presigned URLs), path-style, for one bucket.

Our own because a page of 1,000 messages needs 1,000 signatures: with the key of the day and the stamp of
the second kept, one takes some microseconds. A property test holds it against botocore's signer.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, urlsplit

from minitoolstream.domain.errors import MtsError

_HMAC_BLOCK = 64
MAX_EXPIRES = 7 * 24 * 3600
_PLAIN = re.compile(r"[A-Za-z0-9/._~-]*")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Stamp:
    """What all signatures of one second share."""

    second: int
    query: str
    string_head: str
    inner: hashlib._Hash
    outer: hashlib._Hash

    def signature(self, canonical: str) -> str:
        """HMAC-SHA256 with both halves of the key hashed in advance: less than half the time of `hmac.digest`."""
        inner, outer = self.inner.copy(), self.outer.copy()
        inner.update((self.string_head + hashlib.sha256(canonical.encode()).hexdigest()).encode())
        outer.update(inner.digest())
        return outer.hexdigest()


class SigV4:
    """Presigns requests for one endpoint, bucket and pair of keys. `clock` is for tests."""

    def __init__(
        self,
        endpoint: str,
        bucket: str,
        region: str,
        access_key: str,
        secret_key: str,
        *,
        session_token: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        scheme, self.host = _split(endpoint)
        self.origin = f"{scheme}://{self.host}"
        self.bucket = bucket
        self._region = region
        self._access_key = access_key
        self._secret_key = secret_key
        self._token = f"&X-Amz-Security-Token={quote(session_token, safe='')}" if session_token else ""
        self._clock = clock
        self._stamp = self._new_stamp(0)

    def path(self, name: str) -> str:
        """The path of an object, or of the bucket when the name is empty."""
        if not _PLAIN.fullmatch(name):
            name = quote(name, safe="/~")
        return f"/{self.bucket}/{name}" if name else f"/{self.bucket}"

    def stamp(self) -> Stamp:
        second = int(self._clock())
        if second != self._stamp.second:
            self._stamp = self._new_stamp(second)
        return self._stamp

    def presign(
        self,
        method: str,
        name: str,
        *,
        expires_in: int,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """A URL for exactly this request; the headers must be sent as signed."""
        signed = {key.lower(): " ".join(value.split()) for key, value in (headers or {}).items()}
        signed["host"] = self.host
        names = sorted(signed)
        text = "".join([f"{key}:{signed[key]}\n" for key in names])
        encoded = "&".join(f"{escape(key)}={escape(value)}" for key, value in sorted((query or {}).items()))
        return self.url(self.stamp(), method, self.path(name), f"{text}\n{';'.join(names)}", encoded, expires_in)

    def url(  # noqa: PLR0917 - the steps of the signature, in their order; called for each URL of a page
        self, stamp: Stamp, method: str, path: str, headers: str, query: str, expires_in: int
    ) -> str:
        """`headers` are canonical: lines `name:value`, an empty line, the names joined by `;`. `query` is
        canonical too, and holds no name that sorts before `X-Amz-`: S3's own all are lower-case."""
        names = headers[headers.rfind("\n") + 1 :].replace(";", "%3B")
        expires = max(1, min(int(expires_in), MAX_EXPIRES))
        full = f"{stamp.query}{expires}{self._token}&X-Amz-SignedHeaders={names}"
        if query:
            full = f"{full}&{query}"
        canonical = f"{method}\n{path}\n{full}\n{headers}\nUNSIGNED-PAYLOAD"
        return f"{self.origin}{path}?{full}&X-Amz-Signature={stamp.signature(canonical)}"

    def _new_stamp(self, second: int) -> Stamp:
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
        scope = f"{date[:8]}/{self._region}/s3/aws4_request"
        credential = quote(f"{self._access_key}/{scope}", safe="")
        key = self._signing_key(date[:8]).ljust(_HMAC_BLOCK, b"\0")
        return Stamp(
            second,
            f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={date}&X-Amz-Expires=",
            f"AWS4-HMAC-SHA256\n{date}\n{scope}\n",
            hashlib.sha256(bytes(byte ^ 0x36 for byte in key)),
            hashlib.sha256(bytes(byte ^ 0x5C for byte in key)),
        )

    def _signing_key(self, day: str) -> bytes:
        key = f"AWS4{self._secret_key}".encode()
        for step in (day, self._region, "s3", "aws4_request"):
            key = hmac.digest(key, step.encode(), "sha256")
        return key


@lru_cache(maxsize=1024)
def escape(text: str) -> str:
    return quote(text, safe="-_.~")


def endpoint_url(endpoint: str, *, use_ssl: bool) -> str:
    """The endpoint with its scheme; `use_ssl` decides where none is given."""
    return endpoint if "://" in endpoint else f"{'https' if use_ssl else 'http'}://{endpoint}"


def _split(endpoint: str) -> tuple[str, str]:
    """Scheme and host as every client writes it into `Host`: lower-case, without a default port."""
    parts = urlsplit(endpoint)
    try:
        port = parts.port
    except ValueError:
        port = -1
    plain = not (parts.username or parts.query or parts.fragment or parts.path.strip("/"))
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or port == -1 or not plain:
        message = f"the object store's endpoint {endpoint!r} must be host:port or an http(s) URL without a path"
        raise MtsError("bad_config", message)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return parts.scheme, host if port in (None, _DEFAULT_PORTS[parts.scheme]) else f"{host}:{port}"
