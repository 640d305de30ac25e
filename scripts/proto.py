"""`make proto`: the Python code of the `.proto` files, and their reference page.

What comes out is checked in, so that an install needs no compiler; a test compares it with what comes out now. So is a
description of what was published: a change that would break its users is refused here and by `make check`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts import gen_proto_docs, tools

PROTO = tools.ROOT / "proto"
SOURCES = {
    "minitoolstream/v1/ingress.proto": "ingress_v1",
    "minitoolstream/v1/egress.proto": "egress_v1",
    "minitoolstream/legacy/legacy.proto": "legacy",
}
"""Each source and the name that its Python module gets: they import none of each other, so they may lie anywhere."""
PUBLISHED = Path("proto") / "published.json"
PACKAGE = Path("minitoolstream") / "pb"
PAGE = Path("docs") / "grpc-reference.md"
_NOTE = "# Made by `make proto`: change the .proto file instead.\n"


def generate(root: Path) -> list[Path]:
    """Write everything below `root`; returns what was written, relative to it."""
    written = []
    with tempfile.TemporaryDirectory() as folder:
        descriptors = Path(folder) / "descriptors"
        command = [
            *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PROTO}"),
            *(f"--python_out={folder}", f"--pyi_out={folder}"),
            *(f"--descriptor_set_out={descriptors}", "--include_source_info", "--include_imports"),
            *SOURCES,
        ]
        subprocess.run(command, check=True, cwd=tools.ROOT)
        for source, name in SOURCES.items():
            made = Path(folder) / source.removesuffix(".proto")
            for ending in (".py", ".pyi"):
                target = PACKAGE / f"{name}_pb2{ending}"
                _write(root / target, _NOTE + made.with_name(f"{made.name}_pb2{ending}").read_text("utf-8"))
                written.append(target)
        _write(root / PAGE, gen_proto_docs.page(descriptors.read_bytes(), list(SOURCES)))
    return [*written, PAGE]


def publish(root: Path) -> Path:
    """Write down what is promised from now on; CalledProcessError when that breaks what was promised before."""
    buf = Path(sys.executable).parent / "buf"
    if (tools.ROOT / PUBLISHED).exists():
        subprocess.run([buf, "breaking", "--against", PUBLISHED], check=True, cwd=tools.ROOT)
    (root / PUBLISHED).parent.mkdir(parents=True, exist_ok=True)
    described = subprocess.run(
        [buf, "build", "--exclude-source-info", "--output", "-#format=json"],
        check=True,
        cwd=tools.ROOT,
        stdout=subprocess.PIPE,
    )
    text = json.dumps(json.loads(described.stdout), indent=1, sort_keys=True)
    (root / PUBLISHED).write_text(text + "\n", "utf-8")
    return PUBLISHED


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


if __name__ == "__main__":
    for path in [publish(tools.ROOT), *generate(tools.ROOT)]:
        print(path)
