"""The bucket's lifecycle on MinIO and on LocalStack (rule 26); payloads in versioned and locked buckets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from minitoolstream.bootstrap import open_core
from minitoolstream.domain.pack import InlineMessage
from minitoolstream.services.core import Core
from minitoolstream.services.keep_lifecycle import apply_lifecycle, get_lifecycle
from minitoolstream.services.manage_retention import apply_settings
from minitoolstream.services.publish_inline import publish_inline
from minitoolstream.services.sweep_expired import sweep
from minitoolstream.stack import bucket as buckets
from minitoolstream.stack import minio
from minitoolstream.stack.minio import Credentials
from tests.live import Live, eventually, start_live
from tests.localstack import start_localstack
from tests.servers import MinioServer

SPECS_OWN = [
    {"ID": "default-ttl", "Filter": {"Prefix": ""}, "Status": "Enabled", "Expiration": {"Days": 1}},
    {"ID": "channel-old-ttl", "Filter": {"Prefix": "old_"}, "Status": "Enabled", "Expiration": {"Days": 7}},
]
THEIRS = {
    "ID": "archive",
    "Filter": {"And": {"Prefix": "backups/", "Tags": [{"Key": "kind", "Value": "old"}]}},
    "Status": "Enabled",
    "Expiration": {"Days": 30},
}


def rules_of(live: Live, bucket: str) -> dict[str, Any]:
    found = live.minio.s3().get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    return {rule["ID"]: rule for rule in found}


def write_rules(live: Live, bucket: str, rules: list[Any]) -> None:
    live.minio.s3().put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": rules})


@pytest.fixture(
    scope="module", params=["minio", pytest.param("localstack", marks=pytest.mark.xdist_group("localstack"))]
)
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("lifecycle")
    store = start_localstack(folder / "localstack") if request.param == "localstack" else None
    # Of two workers, the one that starts later would read the rules of a test and write them back into the next one.
    live = start_live(folder, store=store, extra_env={"MTS_TTL_CHANNELS": "logs=7d", "MTS_SERVER_WORKERS": "1"})
    eventually(lambda: in_place(live))
    yield live
    live.stop()


def test_a_host_puts_the_lifecycle_in_step_when_it_starts(stack: Live) -> None:
    rules = in_place(stack)
    assert rules["channel-logs-ttl"]["Filter"] == {"Prefix": "m/logs/"}
    for rule in rules.values():
        assert set(rule["Expiration"]) == {"ExpiredObjectDeleteMarker"}, "it would delete current objects"
        assert rule["NoncurrentVersionExpiration"] == {"NoncurrentDays": 1}


def in_place(live: Live) -> dict[str, Any]:
    try:
        rules = rules_of(live, live.minio.bucket)
    except live.minio.s3().exceptions.ClientError:
        return {}
    return rules if set(rules) == {"default-ttl", "channel-logs-ttl"} else {}


def test_applying_it_takes_away_rules_that_delete_by_age_and_keeps_those_of_others(stack: Live) -> None:
    write_rules(stack, stack.minio.bucket, [*SPECS_OWN, THEIRS])

    before = stack.api("GET", "/v1/lifecycle").json
    applied = stack.api("POST", "/v1/lifecycle").json

    assert (before["in_step"], applied["in_step"], applied["changed"]) == (False, True, True)
    rules = rules_of(stack, stack.minio.bucket)
    assert set(rules) == {"default-ttl", "channel-logs-ttl", "archive"}
    assert rules["archive"] == THEIRS
    assert "Days" not in rules["default-ttl"]["Expiration"]
    assert not stack.api("POST", "/v1/lifecycle").json["changed"]
    stack.minio.s3().delete_bucket_lifecycle(Bucket=stack.minio.bucket)


def test_a_rule_of_others_that_would_delete_payloads_is_told(stack: Live) -> None:
    write_rules(stack, stack.minio.bucket, [{**SPECS_OWN[0], "ID": "theirs"}])
    told = stack.api("POST", "/v1/lifecycle").json
    assert [rule["id"] for rule in told["rules"] if rule.get("dangerous")] == ["theirs"]
    assert "theirs" in rules_of(stack, stack.minio.bucket), "it is not ours to remove"
    stack.minio.s3().delete_bucket_lifecycle(Bucket=stack.minio.bucket)


def make_bucket(live: Live, kind: str) -> str:
    """A bucket for which the host's user may do what it may in the usual one."""
    s3, name = live.minio.s3(), f"bucket-{kind}"
    s3.create_bucket(Bucket=name, ObjectLockEnabledForBucket=kind == "locked")
    if kind == "versioned":
        s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    if kind == "locked":
        retention = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
        s3.put_object_lock_configuration(
            Bucket=name, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": retention}
        )
    return name


@pytest.fixture(params=["versioned", "locked"])
async def other_core(request: pytest.FixtureRequest, stack: Live) -> AsyncIterator[tuple[Core, str, str]]:
    bucket = make_bucket(stack, request.param)
    let_user_in(stack, bucket)
    core = await open_core(stack.settings.with_values(minio__bucket=bucket, trash__grace=0.0))
    yield core, bucket, request.param
    await core.close()
    let_user_in(stack, stack.minio.bucket)


def let_user_in(live: Live, bucket: str) -> None:
    if isinstance(live.minio, MinioServer):  # LocalStack lets in whoever signs
        user = Credentials(live.minio.access_key, live.minio.secret_key)
        minio.ensure_user(live.minio.endpoint, live.minio.root, user, bucket)


async def test_in_a_versioned_or_locked_bucket_a_payload_is_gone_for_readers_and_its_version_is_left_to_the_lifecycle(
    other_core: tuple[Core, str, str], stack: Live, subject: str
) -> None:
    core, bucket, kind = other_core
    await apply_settings(core)
    applied = await apply_lifecycle(core)
    assert (applied.bucket.versioning, applied.bucket.object_lock) == ("enabled", kind == "locked")
    assert (await get_lifecycle(core)).in_step
    await core.subjects.put(subject, {"ttl": 1})
    published = await publish_inline(core, InlineMessage(subject, b"payload", "text/plain"))
    assert published.receipt is not None

    (extent,) = (await core.metadata.get_messages(subject, 1, 10)).extents
    async with asyncio.timeout(60):
        while await core.payloads.find(extent.object_name) is not None:
            await sweep(core, 10)

    assert (await sweep(core, 10)).finished, "nothing of it stays in the trash for ever"
    versions = buckets.client("s3", stack.minio.endpoint, stack.minio.root, stack.minio.region).list_object_versions(
        Bucket=bucket, Prefix=extent.object_name
    )
    assert [version["IsLatest"] for version in versions["Versions"]] == [False]
    assert len(versions["DeleteMarkers"]) == 1
    assert set(rules_of(stack, bucket)) == {"default-ttl", "channel-logs-ttl"}
    page = await core.metadata.get_messages(subject, 1, 10)
    assert page.extents == []
    again = await publish_inline(core, InlineMessage(subject, b"more", "text/plain"))
    assert again.receipt is not None, "and the bucket goes on being used"
