"""Settings of the catalog's peers: what is taken, and what is said of what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.test_config import folder as folder  # noqa: PLC0414 - a fixture
from tests.unit.test_config import load, refusal


def test_peers_are_buckets_with_zones_and_weights(folder: Path) -> None:
    given = "eu=http://s3.eu:9000/copies?zone=eu-west, US=https://s3.us/kept?region=us-east-2&weight=2"
    eu, us = load(folder, MTS_CATALOG_PEERS=given)["catalog.peers"]
    assert eu == ("eu", "http://s3.eu:9000", "copies", "eu-west", "us-east-1", 1.0)
    assert us == ("US", "https://s3.us", "kept", "us", "us-east-2", 2.0)


@pytest.mark.parametrize(
    "wrong",
    [
        "http://host:9000/bucket",
        "eu",
        "eu=",
        "eu=host:9000/bucket",
        "eu=host/bucket",
        "eu=s3://bucket",
        "eu=http://host:9000",
        "eu=http://host:9000/Bucket_1",
        "eu=http://host:99999/bucket",
        "eu=http://host/bucket?zone=a b",
        "eu=http://host/bucket?weight=0",
        "eu=http://host/bucket?colour=red",
        "eu=http://me:hidden@host/bucket",
    ],
)
def test_a_wrong_peer_is_told_the_right_form(folder: Path, wrong: str) -> None:
    said = refusal(folder, MTS_CATALOG_PEERS=wrong)
    assert "MTS_CATALOG_PEERS" in said
    assert "write eu=http://host:9000/bucket?zone=eu-west" in said
    assert "hidden" not in said


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("eu=s3://bucket", "an http(s) URL"),
        ("eu=http://me:hidden@host/bucket", "without a password"),
        ("eu=http://host/b", "its bucket"),
        ("eu=http://host/bucket?weight=0", "its weight"),
        ("eu=http://host/bucket?zone=a b", "its zone"),
        ("eu=http://host/bucket?colour=red", "zone, region and weight alone"),
    ],
)
def test_a_wrong_peer_is_told_what_is_wrong(folder: Path, wrong: str, why: str) -> None:
    assert why in refusal(folder, MTS_CATALOG_PEERS=wrong)


def test_two_peers_are_not_one_bucket(folder: Path) -> None:
    said = refusal(folder, MTS_CATALOG_PEERS="eu=http://host:9000/copies,us=http://host:9000/copies?zone=us")
    assert "names a bucket twice" in said
