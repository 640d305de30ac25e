"""One contract for the places where the pipeline and Spark steps keep files: a folder, and a prefix in MinIO."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from minitoolstream.config import load_settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MIB
from minitoolstream.pipeline.files import lines_of
from minitoolstream.pipeline.places import Place, place_of
from tests.servers import MinioServer

LARGE = [bytes([n]) * MIB for n in range(20)]


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return place_of(str(tmp_path / "files"), load_settings({"MTS_HOME": str(tmp_path)}, cwd=tmp_path))
    server: MinioServer = request.getfixturevalue("minio_server")
    environ = {
        "MTS_HOME": str(tmp_path),
        "MTS_MINIO_ENDPOINT": server.endpoint,
        "MTS_MINIO_BUCKET": server.bucket,
        "MTS_MINIO_ACCESS_KEY": server.root.access_key,
        "MTS_MINIO_SECRET_KEY": server.root.secret_key,
    }
    return place_of(f"s3://{server.bucket}/files/{uuid.uuid4().hex}", load_settings(environ, cwd=tmp_path))


@pytest.mark.parametrize("pieces", [[], [b""], [b"a", b"", b"b"], LARGE, LARGE[:8], LARGE[:16]])
def test_a_file_comes_back_as_it_was(place: Place, pieces: list[bytes]) -> None:
    place.put_pieces("a.txt", iter(pieces))
    assert b"".join(place.blocks("a.txt")) == place.get("a.txt") == b"".join(pieces)
    assert place.names() == ["a.txt"]


@pytest.mark.parametrize("pieces", [[b"second"], LARGE])
def test_a_file_is_never_written_over(place: Place, pieces: list[bytes]) -> None:
    place.put_new("a.txt", b"first")
    with pytest.raises(MtsError) as caught:
        place.put_pieces("a.txt", pieces)
    assert (caught.value.code, place.get("a.txt")) == ("already_exists", b"first")


@pytest.mark.parametrize("before", [LARGE[:1], LARGE])
def test_who_fails_in_the_middle_leaves_nothing(
    place: Place, before: list[bytes], request: pytest.FixtureRequest
) -> None:
    def failing() -> Iterator[bytes]:
        yield from before
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        place.put_pieces("a.txt", failing())
    assert place.names() == []
    if place.url().startswith("s3:"):
        server: MinioServer = request.getfixturevalue("minio_server")
        key = place.url("a.txt").removeprefix(f"s3://{server.bucket}/")
        assert "Uploads" not in server.s3().list_multipart_uploads(Bucket=server.bucket, Prefix=key)


def test_a_file_that_is_not_there_is_told(place: Place) -> None:
    with pytest.raises(MtsError) as caught:
        place.get("nothing")
    assert caught.value.code == "payload_missing"
    with pytest.raises(MtsError, match="is missing"):
        list(lines_of(place, "nothing"))


def test_lines_come_whole_wherever_blocks_end(place: Place) -> None:
    lines = [b"%d" % n * (n % 40_000) for n in range(1, 400, 7)]
    place.put_new("lines", b"".join(line + b"\n" for line in lines))
    place.put_new("unended", b"a\n\nb")
    assert list(lines_of(place, "lines")) == lines
    assert list(lines_of(place, "unended")) == [b"a", b"", b"b"]
