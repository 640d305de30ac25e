"""`make spark-archive`: what a cluster is sent, in dist/: an archive with our packages and all they need, and the file
that `spark-submit` starts. For the Python that runs this; the nodes need the same minor version.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from scripts import tools

LOCK = tools.ROOT / "requirements" / "spark.txt"
PACKAGES = ("minitoolstream", "spark_emr")
_PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-compile"]


def build(target: Path) -> tuple[Path, Path]:
    """The archive and the file to submit, in a folder."""
    target.mkdir(parents=True, exist_ok=True)
    archive = target / "minitoolstream-spark.tar.gz"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        subprocess.run([*_PIP, "--require-hashes", "-r", str(LOCK), "--target", str(folder)], check=True)
        for name in PACKAGES:
            shutil.copytree(tools.ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "_bundled"))
        shutil.copytree(tools.ROOT / "db", folder / "minitoolstream" / "_bundled" / "db")  # for mysql_sender
        for useless in (*folder.rglob("__pycache__"), *folder.rglob("tests"), folder / "bin"):
            shutil.rmtree(useless, ignore_errors=True)
        _pack(folder, archive)
    submitted = target / "run_step.py"
    shutil.copyfile(tools.ROOT / "spark_emr" / "run_step.py", submitted)
    return archive, submitted


def _pack(folder: Path, archive: Path) -> None:
    """Without times and owners: the same sources give the same archive."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
        return info

    with (
        archive.open("wb") as file,
        gzip.GzipFile("", "wb", 6, file, 0) as packed,
        tarfile.open(fileobj=packed, mode="w") as opened,
    ):
        for path in sorted(folder.iterdir()):
            opened.add(path, path.name, filter=plain)


if __name__ == "__main__":
    for made in build(tools.ROOT / "dist"):
        print(f"{made.relative_to(tools.ROOT)}  {made.stat().st_size / 2**20:.1f} MiB")
