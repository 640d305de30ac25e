"""The Spark application's session and settings. The only module here, beside the adapters, that needs pyspark."""

from __future__ import annotations

from typing import Any

from minitoolstream.config import Settings, load_settings
from minitoolstream.domain.errors import MtsError

CONF_PREFIX = "spark.minitoolstream."
USED = (
    *("tarantool.address", "tarantool.user", "tarantool.password", "tarantool.timeout"),
    *("minio.endpoint", "minio.use_ssl", "minio.bucket", "minio.region"),
    *("minio.access_key", "minio.secret_key", "minio.session_token"),
    *("server.urls", "server.token", "client.region"),
    *("pipeline.files", "pipeline.shards", "pipeline.shard_password", "pipeline.ca_file"),
    "packs.grace",
)
"""Settings that readers, sinks and steps go by. Others are not looked for in Spark's conf: each is a call into the JVM,
which all together show in a short read."""


def conf_name(key: str) -> str:
    """The name of a setting in Spark's conf. Spark hides values whose name says `secret`, `password`, `token` or
    `access.key` in its UI and logs, so underscores become dots."""
    return CONF_PREFIX + key.replace("_", ".")


def open_session(name: str) -> tuple[Any, bool]:
    """The session of this process, and whether it was started by this call."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active, False
    return SparkSession.builder.appName(name).getOrCreate(), True


def session_settings(spark: Any = None) -> Settings:
    """Settings of the environment and `mts.yaml`; what Spark's conf says of those that are used goes before."""
    settings = load_settings()
    if spark is None:
        return settings
    for key in USED:
        value = spark.conf.get(conf_name(key), None)
        if value:
            settings = _changed(settings, key, value)
    return settings


def _changed(settings: Settings, key: str, value: str) -> Settings:
    name = conf_name(key)
    try:
        return settings.with_values(name, **{key.replace(".", "__"): value})
    except ValueError as error:
        raise MtsError("bad_config", f"{name}: {error}") from None
