"""Settings of the pipeline's databases: what is taken, and that no password is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.test_config import folder as folder  # noqa: PLC0414 - a fixture
from tests.unit.test_config import load, refusal


def test_databases_of_the_pipeline_come_without_their_passwords(folder: Path) -> None:
    assert load(folder)["pipeline.database"] == "sqlite"
    url = "mysql://mts@db.example:3307/pipeline_db"
    for given in (url, f"{url}?tls=true"):
        assert load(folder, MTS_PIPELINE_DATABASE=given)["pipeline.database"] == given
    shards = load(folder, MTS_PIPELINE_SHARDS=f"0={url}, 7=sqlite:x.db")["pipeline.shards"]
    assert shards == ((0, url), (7, "sqlite:x.db"))
    assert ",".join(map(str, shards)) == f"0={url},7=sqlite:x.db"
    assert load(folder, f"pipeline: {{shards: {{0: '{url}'}}}}")["pipeline.shards"] == ((0, url),)


@pytest.mark.parametrize(
    "wrong",
    [
        "postgres://a@b/c",
        "mysql://db/x",
        "mysql://a@db",
        "mysql://a@db/x?y=1",
        "mysql://a@db:0/x",
        "mysql://a@db:no/x",
        "mysql://a@db/x/y",
        "sqlite3",
    ],
)
def test_what_is_no_database_is_refused(folder: Path, wrong: str) -> None:
    assert "write mysql://" in refusal(folder, MTS_PIPELINE_DATABASE=wrong)
    assert "write mysql://" in refusal(folder, MTS_PIPELINE_SHARDS=f"0={wrong}")


def test_a_password_in_a_databases_url_is_refused_and_not_told(folder: Path) -> None:
    url = "mysql://mts:secret-of-the-test@db/x"
    assert "MTS_PIPELINE_PASSWORD" in refusal(folder, MTS_PIPELINE_DATABASE=url)
    assert "MTS_PIPELINE_SHARD_PASSWORD" in refusal(folder, MTS_PIPELINE_SHARDS=f"0={url}")
    for wrong in (url, f"{url}/y", "mysql://mts:secret-of-the-test@db"):
        told = refusal(folder, MTS_PIPELINE_DATABASE=wrong) + refusal(folder, MTS_PIPELINE_SHARDS=f"0={wrong},1")
        assert "secret-of-the-test" not in told


@pytest.mark.parametrize("wrong", ["mysql://a@b/c", "x=mysql://a@b/c", "0=", "0=sqlite:", "1=sqlite:a,1=sqlite:b"])
def test_what_is_no_map_of_shards_is_refused(folder: Path, wrong: str) -> None:
    refusal(folder, MTS_PIPELINE_SHARDS=wrong)
