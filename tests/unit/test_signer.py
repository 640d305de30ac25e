"""Our presigner against botocore's: the same signature for whatever we may ever sign."""

from __future__ import annotations

import base64
import datetime
import hashlib
from unittest.mock import patch
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlsplit

import pytest
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from minitoolstream.adapters.s3.client import S3Payloads
from minitoolstream.adapters.s3.signer import S3Signer
from minitoolstream.adapters.s3.sigv4 import SigV4, endpoint_url
from minitoolstream.config import load_settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.ports import GetRequest, SignedRequest

NOW = 1_700_000_000.0
SECRET = "s3cr3t/with+odd=chars"

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60).filter(
    lambda name: not name.startswith("/")
)
content_types = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=60).filter(
    # botocore takes this one for its own default and leaves it out
    lambda text: text.strip() and text != "application/x-www-form-urlencoded; charset=utf-8"
)
metadata = st.dictionaries(
    st.sampled_from(["mts-producer", "mts-seqno", "mts-count"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)
times = st.integers(0, 4_000_000_000)
lives = st.integers(1, 604_800)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)


def sigv4(now: float = NOW, *, endpoint: str = "http://store.example:9000", token: str | None = None) -> SigV4:
    return SigV4(endpoint, "bucket-1", "eu-north-1", "AKIDEXAMPLE", SECRET, session_token=token, clock=lambda: now)


def params(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query, keep_blank_values=True).items()}


def botocore_signature(method: str, url: str, headers: dict[str, str], now: float, token: str | None = None) -> str:
    """What botocore makes of the same request: our URL without its X-Amz- parameters, signed anew."""
    given = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    operation = "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in given
        if not name.startswith("X-Amz-")
    )
    bare = url.partition("?")[0]
    request = AWSRequest(method, f"{bare}?{operation}" if operation else bare, headers=headers)
    expires = int(dict(given)["X-Amz-Expires"])
    auth = S3SigV4QueryAuth(Credentials("AKIDEXAMPLE", SECRET, token), "s3", "eu-north-1", expires=expires)
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    with patch("botocore.auth.get_current_datetime", return_value=moment):
        auth.add_auth(request)
    return params(request.url)["X-Amz-Signature"]


def as_sent(signed: SignedRequest, size: int) -> dict[str, str]:
    return {**signed.headers, "Content-Length": str(size)}


@settings(deadline=None)
@given(
    name=names,
    content_type=content_types,
    meta=metadata,
    now=times,
    life=lives,
    sha256=st.none() | digests,
    size=st.integers(0, 2**43),
    token=st.none() | st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1),
)
def test_a_put_is_signed_as_botocore_would(
    *,
    name: str,
    content_type: str,
    meta: dict[str, str],
    now: int,
    life: int,
    sha256: str | None,
    size: int,
    token: str | None,
) -> None:
    signer = S3Signer(sigv4(now, token=token))
    signed = signer.put(name, size=size, content_type=content_type, expires_in=life, sha256=sha256, metadata=meta)
    ours = params(signed.url)
    assert ours["X-Amz-Signature"] == botocore_signature("PUT", signed.url, as_sent(signed, size), now, token)
    assert ours["X-Amz-Expires"] == str(life)
    assert unquote(urlsplit(signed.url).path) == f"/bucket-1/{name}"
    expected = {"content-length", "content-type", "host", "if-none-match"}
    expected |= {"x-amz-checksum-sha256"} if sha256 else set()
    expected |= {f"x-amz-meta-{key}" for key in meta}
    assert set(ours["X-Amz-SignedHeaders"].split(";")) == expected
    assert {key.lower() for key in signed.headers} == expected - {"host", "content-length"}


@settings(deadline=None)
@given(
    name=names,
    multipart_id=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1),
    number=st.integers(1, 10_000),
    md5=st.none() | st.binary(min_size=16, max_size=16).map(bytes.hex),
    now=times,
)
def test_a_part_is_signed_as_botocore_would(
    name: str, multipart_id: str, number: int, md5: str | None, now: int
) -> None:
    signed = S3Signer(sigv4(now)).put_part(
        name, multipart_id=multipart_id, number=number, size=7, expires_in=60, md5=md5
    )
    ours = params(signed.url)
    assert ours["X-Amz-Signature"] == botocore_signature("PUT", signed.url, as_sent(signed, 7), now)
    assert (ours["partNumber"], ours["uploadId"]) == (str(number), multipart_id)
    assert signed.headers == ({"Content-MD5": base64.b64encode(bytes.fromhex(md5)).decode()} if md5 else {})


@settings(deadline=None)
@given(
    requests=st.lists(
        st.builds(
            GetRequest,
            names,
            content_types,
            st.none() | st.tuples(st.integers(0, 2**43), st.integers(0, 2**43)),
        ),
        max_size=5,
    ),
    now=times,
    life=lives,
)
def test_a_page_of_downloads_is_signed_as_botocore_would(requests: list[GetRequest], now: int, life: int) -> None:
    urls = S3Signer(sigv4(now)).get_many(requests, expires_in=life)
    assert len(urls) == len(requests)
    for request, url in zip(requests, urls, strict=True):
        headers = {}
        if request.byte_range:
            headers["Range"] = f"bytes={request.byte_range[0]}-{request.byte_range[1]}"
        assert params(url)["X-Amz-Signature"] == botocore_signature("GET", url, headers, now)
        assert params(url)["response-content-type"] == request.content_type
        assert params(url)["X-Amz-SignedHeaders"] == ("host;range" if headers else "host")


def test_the_key_changes_with_the_day() -> None:
    now = NOW
    signer = S3Signer(
        SigV4("http://store.example:9000", "bucket-1", "eu-north-1", "AKIDEXAMPLE", SECRET, clock=lambda: now)
    )
    for now in (NOW, NOW, NOW + 1, NOW + 86_400, NOW):
        [url] = signer.get_many([GetRequest("a", "text/plain")], expires_in=60)
        assert params(url)["X-Amz-Signature"] == botocore_signature("GET", url, {}, now)


def test_the_checksum_is_sent_in_base64() -> None:
    digest = hashlib.sha256(b"hello")
    signed = S3Signer(sigv4()).put("a", size=5, content_type="text/plain", expires_in=60, sha256=digest.hexdigest())
    assert signed.headers["x-amz-checksum-sha256"] == base64.b64encode(digest.digest()).decode()


def test_a_life_beyond_what_s3_allows_is_cut() -> None:
    signer = S3Signer(sigv4())
    for asked, given_life in ((0, "1"), (10**9, "604800")):
        [url] = signer.get_many([GetRequest("a", "text/plain")], expires_in=asked)
        assert params(url)["X-Amz-Expires"] == given_life


@pytest.mark.parametrize(
    ("endpoint", "use_ssl", "origin"),
    [
        ("127.0.0.1:9000", False, "http://127.0.0.1:9000"),
        ("127.0.0.1:9000", True, "https://127.0.0.1:9000"),
        ("http://store.example:80", True, "http://store.example"),
        ("https://Store.Example:443/", False, "https://store.example"),
        ("https://store.example:80", False, "https://store.example:80"),
        ("http://[::1]:9000", False, "http://[::1]:9000"),
    ],
)
def test_the_host_is_signed_as_clients_write_it(endpoint: str, use_ssl: bool, origin: str) -> None:
    it = sigv4(endpoint=endpoint_url(endpoint, use_ssl=use_ssl))
    assert it.origin == origin
    [url] = S3Signer(it).get_many([GetRequest("a", "text/plain")], expires_in=60)
    assert url.startswith(origin + "/bucket-1/a?")
    headers = {"Host": origin.partition("://")[2]}
    assert params(url)["X-Amz-Signature"] == botocore_signature("GET", url, headers, NOW)


@pytest.mark.parametrize(
    "endpoint", ["ftp://a", "http://", "http://a/path", "http://u:p@a", "http://a:99999", "http://a?x=1"]
)
def test_an_endpoint_that_cannot_work_is_named(endpoint: str) -> None:
    with pytest.raises(MtsError) as error:
        sigv4(endpoint=endpoint)
    assert error.value.code == "bad_config"


async def test_clients_get_urls_of_the_public_endpoint(tmp_path: object) -> None:
    configured = load_settings({"MTS_HOME": str(tmp_path)}).with_values(
        minio__endpoint="10.0.0.1:9000",
        minio__public_endpoint="https://files.example",
        minio__access_key="AK",
        minio__secret_key="SK",
    )
    [url] = S3Signer.from_settings(configured).get_many([GetRequest("a", "text/plain")], expires_in=60)
    assert url.startswith("https://files.example/minitoolstream/a?")
    await S3Payloads.from_settings(configured).close()


def test_missing_credentials_are_named(tmp_path: object) -> None:
    with pytest.raises(MtsError, match=r"minio\.access_key") as error:
        S3Signer.from_settings(load_settings({"MTS_HOME": str(tmp_path)}))
    assert error.value.code == "not_configured"
