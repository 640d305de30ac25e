"""Cassandra from Maven Central: its makers publish every jar there, which is all a server is."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from minitoolstream.domain.errors import MtsError
from minitoolstream.stack.apt import get_program
from minitoolstream.stack.commands import Update, ignore, output, run
from minitoolstream.stack.get_java import get_java, java_of_pypi
from minitoolstream.stack.lock import locked
from minitoolstream.stack.program import Program, cache_folder

VERSION = "5.0.5"
FILES = Path(__file__).parent / "cassandra_files"
_JAVA = 17  # 5.0 runs on 11 and 17, and on nothing newer
_JARS = "cassandra-all-*.jar"


def find_cassandra() -> Path | None:
    """The folder with its jars, when it is here already."""
    folder = _folder()
    return folder if any(folder.glob(_JARS)) else None


def get_cassandra(*, update: Update = ignore) -> Program:
    """Java 17, with the jars' folder as `CASSANDRA_JARS`; what is missing is downloaded once."""
    java = _java(update)
    lock = _folder().with_suffix(".lock")
    with locked(lock, waiting=lambda: update("waiting for another mts to get Cassandra")):
        jars = find_cassandra() or _download(java, update)
    return Program(java.path, "from Maven Central, in our cache", {**java.environ, "CASSANDRA_JARS": str(jars)})


def _folder() -> Path:
    return cache_folder() / f"cassandra-{VERSION}"


def _java(update: Update) -> Program:
    found = get_java(update=update)
    return found if java_version(output([str(found.path), "--version"])) == _JAVA else java_of_pypi(update)


def java_version(said: str | None) -> int | None:
    """17 of `openjdk 17.0.15 2025-04-15`."""
    match = re.match(r"\w+ (\d+)", said or "")
    return int(match[1]) if match else None


def _download(java: Program, update: Update) -> Path:
    target = _folder()
    maven = get_program("mvn", "maven", folder="share/maven/bin", update=update)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        folder = Path(temporary)
        shutil.copy(FILES / "pom.xml", folder / "pom.xml")
        update(f"downloading Cassandra {VERSION}, 66 MB")
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder / 'jars'}"]
        log = cache_folder() / "logs" / "cassandra-download.log"
        # Maven's own cache would keep everything a second time.
        local = f"-Dmaven.repo.local={folder / 'repository'}"
        environ = {**java.environ, **maven.environ}
        run([str(maven.path), "-B", "-f", str(folder / "pom.xml"), local, *copy], log=log, environ=environ)
        if not any((folder / "jars").glob(_JARS)):
            raise MtsError("dependency_missing", "Maven brought no Cassandra", {"log": str(log)})
        (folder / "jars").rename(target)
    return target
