from __future__ import annotations

import pytest

from minitoolstream.net.addresses import is_http_url, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_an_address_that_only_this_machine_reaches_is_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.5", "::", "h", "127.example.com", "127.0.0.1.example.com", ""])
def test_every_other_address_is_not_loopback_whatever_it_begins_with(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("url", ["http://h", "https://h:65535/below", "http://[::1]:8080"])
def test_a_host_can_be_asked_at_an_http_address(url: str) -> None:
    assert is_http_url(url)


@pytest.mark.parametrize(
    "url", ["", "h", "h:80", "ftp://h", "http://", "http://h:0", "http://h:65536", "http://h:x", "http://[::1"]
)
def test_nothing_else_is_an_http_address(url: str) -> None:
    assert not is_http_url(url)
