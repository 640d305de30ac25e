"""An export in a bucket: any prefix of any bucket that the settings' credentials may write to."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from minitoolstream.client import MtsError
from minitoolstream.config import Settings
from minitoolstream.stack.bucket import client, translated
from minitoolstream.stack.minio import Credentials


class S3Place:
    """Fulfils the client's `Place`. Files are made in a temporary folder first; `close` removes it."""

    def __init__(self, settings: Settings, url: str) -> None:
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        if not bucket or not prefix.strip("/"):
            raise MtsError("bad_request", f"{url} is not of the form s3://bucket/prefix")
        self._bucket = bucket
        self._prefix = prefix.strip("/") + "/"
        if self._prefix.startswith(("m/", "_mts/")):
            raise MtsError("bad_request", f"{self._prefix} is the system's own: take another prefix")
        credentials = Credentials(settings.secret("minio.access_key"), settings.secret("minio.secret_key"))
        self._s3: Any = client("s3", settings["minio.endpoint"], credentials, settings["minio.region"])
        self._folder = Path(tempfile.mkdtemp(prefix="mts-export-"))

    def __str__(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}"

    def scratch(self) -> Path:
        return self._folder

    def names(self) -> list[str]:
        with translated(f"bucket `{self._bucket}`"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
            return sorted(item["Key"].removeprefix(self._prefix) for page in pages for item in page.get("Contents", ()))

    def put(self, name: str, file: Path) -> None:
        with translated(f"bucket `{self._bucket}`"):
            self._s3.upload_file(str(file), self._bucket, self._prefix + name)
        file.unlink()

    def get(self, name: str) -> Path:
        file = self._folder / name
        with translated(f"bucket `{self._bucket}`"):
            self._s3.download_file(self._bucket, self._prefix + name, str(file))
        return file

    def done(self, file: Path) -> None:
        file.unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
