"""What holds the shape: who needs pyspark, what is sent to a cluster, what EMR is told."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minitoolstream.bootstrap import open_shard
from minitoolstream.options import BY_KEY
from spark_emr import run_step
from spark_emr.reader.options import ReadOptions, option_name
from spark_emr.session import USED, conf_name, session_settings
from spark_emr.steps._step import Step

ROOT = Path(__file__).resolve().parents[2]
STEPS = json.loads((ROOT / "spark_emr" / "steps.json").read_text("utf-8"))
MAY_NEED_SPARK = {"source.py", "session.py", "run_step.py"}


def names(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found


def test_only_the_adapters_need_pyspark() -> None:
    needing = {
        path.relative_to(ROOT / "spark_emr").as_posix()
        for path in (ROOT / "spark_emr").rglob("*.py")
        if "pyspark" in names(path)
    }
    assert needing <= MAY_NEED_SPARK


def test_the_reader_comes_without_pyspark_and_arrow() -> None:
    code = "import sys, spark_emr.reader; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not {"pyspark", "py4j", "pyarrow", "pandas", "numpy"} & set(done.stdout.split())


def test_nothing_that_a_function_needs_knows_of_spark() -> None:
    for folder in ("minitoolstream", "functions"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not {"spark_emr", "pyspark", "pyarrow"} & names(path), path


class CountingConf:
    """Spark's conf, as far as it is asked."""

    def __init__(self, **values: str) -> None:
        self.values = {conf_name(key.replace("__", ".")): value for key, value in values.items()}
        self.asked: list[str] = []

    def get(self, name: str, default: str | None) -> str | None:
        self.asked.append(name)
        return self.values.get(name, default)


def test_settings_of_sparks_conf_go_before_and_only_those_in_use_are_asked_for() -> None:
    conf = CountingConf(minio__secret_key="hidden", server__urls="http://a:1,http://b:2", packs__grace="5m")
    found = session_settings(SimpleNamespace(conf=conf))
    assert found.secret("minio.secret_key") == "hidden"
    assert (list(found["server.urls"]), found["packs.grace"]) == (["http://a:1", "http://b:2"], 300)
    assert len(conf.asked) == len(set(conf.asked)) <= 20  # each is a call into the JVM


def test_every_setting_that_spark_code_reads_may_stand_in_sparks_conf() -> None:
    folders = ("spark_emr", "minitoolstream/pipeline", "minitoolstream/client", "minitoolstream/adapters/s3")
    sources = [path.read_text("utf-8") for folder in folders for path in (ROOT / folder).rglob("*.py")]
    sources.append(inspect.getsource(open_shard))
    read = set(re.findall(r"settings(?:\.secret\(|\[)['\"](\w+\.\w+)['\"]", "".join(sources)))
    assert {"minio.bucket", "pipeline.shards", "client.region", "pipeline.ca_file"} < read
    # What downloads of others are signed for: Spark's own reads go to the endpoint itself.
    assert read - {"minio.public_endpoint"} <= set(USED)


def test_spark_hides_every_secret_that_may_stand_in_its_conf() -> None:
    """In its UI, its logs and its event log: by the names that `spark.redaction.regex` fits unless set otherwise."""
    secrets = {key for key in USED if BY_KEY[key].secret}
    assert {"minio.secret_key", "tarantool.password", "server.token", "pipeline.shard_password"} <= secrets
    assert all(re.search(r"(?i)secret|password|token|access[.]key", conf_name(key)) for key in secrets)


def step_of(name: str) -> Step:
    found: Step = importlib.import_module(f"spark_emr.steps.{name}").STEP
    return found


def submitted() -> list[tuple[str, list[str]]]:
    """Name and arguments of every step that EMR or EMR Serverless is told of."""
    found = [(step["Name"], step["HadoopJarStep"]["Args"]) for step in STEPS["emr"]]
    arguments = [(name, given[given.index("${CODE}/run_step.py") + 1 :]) for name, given in found]
    for job in STEPS["emr_serverless"]:
        arguments.append((job["name"], job["jobDriver"]["sparkSubmit"]["entryPointArguments"]))
    return arguments


@pytest.mark.parametrize(("name", "arguments"), submitted())
def test_the_definitions_for_emr_are_of_steps_that_are_there_and_take_these_arguments(
    name: str, arguments: list[str]
) -> None:
    import argparse

    assert arguments[0] == name
    parser = argparse.ArgumentParser()
    step_of(name).arguments(parser)
    parser.parse_args([re.sub(r"\$\{\w+\}", "x", argument) for argument in arguments[1:]])


def test_emr_is_told_of_every_step() -> None:
    steps = {path.stem for path in (ROOT / "spark_emr" / "steps").glob("[a-z]*.py")}
    assert {"replay_to_parquet", "compact", "event_ingest", "mysql_sender"} < steps
    assert {step["Name"] for step in STEPS["emr"]} == steps
    assert {job["name"] for job in STEPS["emr_serverless"]} == steps


def test_no_definition_carries_a_secret() -> None:
    assert not re.search(r"(?i)secret|password|token|access.?key", json.dumps({**STEPS, "about": ""}))


def test_a_file_to_submit_without_a_step_says_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_step.main([]) == 2
    assert run_step.main(["../etc"]) == 2
    assert "usage" in capsys.readouterr().err


def test_the_archive_is_found_where_spark_unpacks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, sent, beside = tmp_path / "here", tmp_path / "sent", tmp_path / "beside"
    for folder in (here, sent, beside):
        folder.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(run_step, "__file__", str(beside / "run_step.py"))
    with pytest.raises(FileNotFoundError, match="--archives"):
        run_step.find_packages(sent)
    make_archive(beside / "minitoolstream-spark.tar.gz", tmp_path)
    assert (run_step.find_packages(sent) / "spark_emr").is_dir()
    (sent / "mts" / "spark_emr").mkdir(parents=True)
    assert run_step.find_packages(sent) == sent / "mts"
    (here / "mts" / "spark_emr").mkdir(parents=True)
    assert run_step.find_packages(sent) == here / "mts"


def make_archive(path: Path, folder: Path) -> Any:
    import tarfile

    (folder / "content" / "spark_emr").mkdir(parents=True)
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder / "content" / "spark_emr", "spark_emr")


def test_every_option_is_in_the_docs() -> None:
    page = (ROOT / "docs" / "spark.md").read_text("utf-8")
    for field in fields(ReadOptions):
        assert f"`{option_name(field.name)}`" in page, field.name
