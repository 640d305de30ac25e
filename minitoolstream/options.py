"""Every setting: its key in `mts.yaml`, its default, how text becomes its value, and a line for the docs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minitoolstream.domain.checks import fits_a_header
from minitoolstream.domain.limits import MAX_SINGLE_PUT_BYTES, MIB, MIN_PART_BYTES
from minitoolstream.domain.pin import OWNER
from minitoolstream.setting_values import (
    address,
    between,
    boolean,
    bucket_name,
    catalog_database,
    channels,
    database,
    duration,
    endpoint,
    file_name,
    integer,
    message_life,
    moment,
    named_secrets,
    one_of,
    peer_places,
    region,
    replication,
    shard_databases,
    size,
    words,
)


@dataclass(frozen=True, slots=True)
class Option:
    """One setting. `parse` raises ValueError for what it cannot be."""

    key: str
    default: Any
    parse: Callable[[Any], Any]
    about: str
    secret: bool = False
    short: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Environment variables that set it; the first is the one that docs and messages use."""
        full = "MTS_" + self.key.upper().replace(".", "_")
        return (self.short, full) if self.short else (full,)


def _token(value: Any) -> str:
    """The value itself is not told: it is a secret."""
    text = str(value)
    if not fits_a_header(text):
        raise ValueError("it has a line break or another character that no token can have")
    return text


STORE_KINDS = ("auto", "minio", "ministack")
_part_size = between(size, f"{MIN_PART_BYTES // MIB}MiB", f"{MAX_SINGLE_PUT_BYTES // MIB}MiB")
_body_limit = between(size, "1KiB", "1GiB")
_memory = between(size, "32MiB", "1TiB")
_signature_life = between(duration, "1s", "7d")  # of what S3 signs
_grace = between(duration, "0s", "7d")
_port = between(integer, 0, 65535)
_trash_grace = between(duration, "0s", "30d")


def _owner_tokens(value: Any) -> dict[str, str]:
    """Of owners of pins. `api` is whoever has the host's own token, who may act for everybody."""
    found = named_secrets(value)
    for owner in found:
        if owner == "api" or not OWNER.match(owner):
            raise ValueError(f"{owner!r} cannot be the name of an owner")
    return found


OPTIONS: tuple[Option, ...] = (
    Option("server.host", "127.0.0.1", str, "address the host listens on"),
    Option("server.port", 0, _port, "port of the host; 0: a free one, remembered under `.mts/`"),
    Option("server.workers", 0, between(integer, 0, 256), "worker processes of the host; 0: one for two cores"),
    Option("server.urls", (), words, "addresses of hosts, for CLI and SDK, tried in turn", short="MTS_URL"),
    Option("server.cors_origins", (), words, "web origins that may call the API from a browser"),
    Option("server.inline_limit", 4 * MIB, _body_limit, "largest body of an inline publish"),
    Option("server.batch_limit", 16 * MIB, _body_limit, "largest body of a batch publish"),
    Option("server.token", None, _token, "bearer token of the API", secret=True, short="MTS_TOKEN"),
    Option("server.webhook_token", None, _token, "token of the store's events", secret=True, short="MTS_WEBHOOK_TOKEN"),
    Option("tarantool.address", "127.0.0.1:3301", address, "host:port of Tarantool; port 0 with `mts up`: a free one"),
    Option("tarantool.user", "mts", str, "the application's user"),
    Option("tarantool.password", None, str, "its password", secret=True),
    Option("tarantool.timeout", 5.0, between(duration, "10ms", "1h"), "how long a call may take"),
    Option("tarantool.memory", 256 * MIB, _memory, "memory for metadata (`memtx_memory`), with `mts up`"),
    Option("tarantool.wal_mode", "write", one_of("write", "fsync"), "`fsync` survives a power loss, with `mts up`"),
    Option("tarantool.binary", None, str, "the tarantool to run, with `mts up`", short="MTS_TARANTOOL"),
    Option("minio.endpoint", "127.0.0.1:9000", endpoint, "host:port or URL of the object store (S3 API)"),
    Option("minio.public_endpoint", None, endpoint, "the same as clients reach it, when that differs"),
    Option("minio.use_ssl", False, boolean, "https when the endpoint is given without a scheme"),
    Option("minio.bucket", "minitoolstream", bucket_name, "bucket for payloads"),
    Option("minio.region", "us-east-1", region, "region that requests are signed for"),
    Option("minio.access_key", None, str, "access key of the object store", secret=True),
    Option("minio.secret_key", None, str, "secret key of the object store", secret=True),
    Option("minio.session_token", None, str, "what belongs to keys that end, as a role's do", secret=True),
    Option("minio.session_end", None, moment, "when such keys end: no URL is told to live longer"),
    Option("minio.cors_origins", ("*",), words, "web origins that may use presigned URLs, with `mts up`"),
    Option("object_store.kind", "auto", one_of(*STORE_KINDS), "which one, with `mts up`", short="MTS_OBJECT_STORE"),
    Option("object_store.queue_url", None, str, "SQS queue with the bucket's events, instead of the webhook"),
    Option("uploads.part_size", 16 * MIB, _part_size, "payloads above it are uploaded in parts of it"),
    Option("uploads.ticket_life", 3600.0, _signature_life, "life of a ticket"),
    Option("uploads.producer_ticket_life", 900.0, _signature_life, "life of a named producer's ticket"),
    Option("uploads.max_life", 604800.0, _signature_life, "longest life of a ticket that arriving parts extend"),
    Option("uploads.put_grace", 900.0, _grace, "how long a PUT begun in time may still take"),
    Option("uploads.first_look", 30.0, _grace, "age at which the reconciler first looks for an open upload"),
    Option("packs.grace", 3600.0, between(duration, "1s", "7d"), "age at which an uncommitted pack is deleted"),
    Option("downloads.url_life", 3600.0, _signature_life, "life of a presigned download URL"),
    Option("ttl.enabled", True, boolean, "whether messages expire at all"),
    Option("ttl.default", 86400.0, message_life, "how long messages stay, from 1s to 10y"),
    Option("ttl.channels", (), channels, "the same for single subjects: `{channel: logs, duration: 7d}`, or `logs=7d`"),
    Option("ttl.check_interval", 60.0, between(duration, "10ms", "7d"), "pause between two looks for what has expired"),
    Option(
        "trash.grace",
        None,
        _trash_grace,
        "how long a payload outlives its message; unset: the longer of `downloads.url_life` and `backup.interval`",
    ),
    Option("reconcile.interval", 10.0, between(duration, "10ms", "1d"), "pause between two runs of the reconciler"),
    Option("ticks.interval", 5.0, between(duration, "10ms", "1d"), "pause between two looks at what is due"),
    Option("journal.interval", 5.0, between(duration, "10ms", "5m"), "pause between two writes of the journal"),
    Option("backup.interval", 86400.0, between(duration, "0s", "1y"), "time between two backups by the host; 0: none"),
    Option("backup.keep", 7, between(integer, 1, 1000), "backups of the host that are kept in the bucket"),
    Option("grpc.enabled", True, boolean, "whether `mts up` starts the gRPC servers"),
    Option("grpc.ingress_port", 50051, _port, "port of `IngressService`; unset: this or a free one; 0: a free one"),
    Option("grpc.egress_port", 50052, _port, "port of `EgressService`, likewise"),
    Option("grpc.max_concurrent_streams", 1000, between(integer, 1, 100_000), "gRPC calls at once on one connection"),
    Option("grpc.max_connection_idle", 300.0, between(duration, "1s", "1d"), "when an unused connection is closed"),
    Option("grpc.keepalive", 30.0, between(duration, "1s", "1h"), "pause between pings on a silent connection"),
    Option("grpc.message_limit", 4 * MIB, between(size, "64KiB", "64MiB"), "largest answer; most clients take 4 MiB"),
    Option("grpc.certificate", None, file_name, "PEM file of the gRPC servers' certificate; with it they speak TLS"),
    Option("grpc.key", None, file_name, "PEM file of its private key, without a password"),
    Option("grpc.client_ca", None, file_name, "PEM file of those who must have signed clients' certificates"),
    Option("grpc.metrics_port", 0, _port, "port of the gRPC servers' `/metrics`; 0: none"),
    Option("grpc.legacy_open", False, boolean, "let clients of the older interface in without a token"),
    Option("subscription.batch_size", 10, between(integer, 1, 1000), "messages for a gRPC call that names no number"),
    Option(
        "subscription.check_interval",
        1.0,
        between(duration, "10ms", "1h"),
        "how soon a reader of the older interface that is behind is told again",
    ),
    Option(
        "pipeline.database",
        "sqlite",
        database,
        "of the tracked pipeline: `sqlite` (a file under `.mts/`) or `mysql://user@host:3306/pipeline_db`",
    ),
    Option("pipeline.password", None, str, "password of that database's user", secret=True),
    Option("pipeline.ca_file", None, file_name, "PEM file of those who signed its certificate; unset: the system's"),
    Option("pipeline.lease", 900.0, between(duration, "1s", "7d"), "how long a started task is its daemon's"),
    Option("pipeline.files", None, str, "folder or `s3://bucket/prefix` of its files; unset: `pipeline` in the bucket"),
    Option("pipeline.shards", (), shard_databases, "databases of the shards: `0=mysql://user@host:3306/app_0,...`"),
    Option("pipeline.shard_password", None, str, "password of the user of these", secret=True),
    Option(
        "catalog.database",
        "sqlite",
        catalog_database,
        "of the content catalog: `sqlite` (a file under `.mts/`) or `cql://host:9042,host:9042/keyspace`",
    ),
    Option("catalog.user", None, str, "user of that database"),
    Option("catalog.password", None, str, "its password", secret=True),
    Option("catalog.datacenter", "datacenter1", str, "the datacenter of the database that this host is in"),
    Option("catalog.home", None, str, "the datacenter that decides conditional writes; unset: this host's"),
    Option("catalog.replication", "'datacenter1': '1'", replication, "copies of rows: `datacenter1=3,datacenter2=3`"),
    Option("catalog.timeout", 5.0, between(duration, "10ms", "1h"), "how long a statement may take"),
    Option("catalog.rf", 1, between(integer, 1, 16), "copies of a pin that names no number"),
    Option("catalog.peers", (), peer_places, "stores of copies: `eu=http://host:9000/bucket?zone=eu,...`"),
    Option("catalog.peer_keys", None, named_secrets, "their credentials: `eu=ACCESS:SECRET,...`", secret=True),
    Option("catalog.tokens", None, _owner_tokens, "tokens of owners of pins: `alice=TOKEN,...`", secret=True),
    Option("catalog.zone", None, region, "the zone of the messages' own bucket: readers there need no copy"),
    Option("client.region", None, region, "where CLI and SDK are: they read the nearest copy", short="MTS_REGION"),
    Option("catalog.interval", 10.0, between(duration, "10ms", "1d"), "pause between two looks at copies that drift"),
    Option("catalog.lost_after", 900.0, between(duration, "1s", "30d"), "when a peer that does not answer is lost"),
    Option("aws.secret", None, str, "secret in Secrets Manager that holds secrets of this table, as a JSON map"),
    Option("aws.endpoint", None, endpoint, "where AWS is, when it is emulated", short="AWS_ENDPOINT_URL"),
    Option("aws.dead_letters", None, str, "URL of the SQS queue for events that can never work"),
    Option("logging.level", "info", one_of("debug", "info", "warning", "error"), "debug, info, warning or error"),
    Option("logging.format", "json", one_of("json", "text"), "json or text"),
)
NO_EFFECT = {
    "subscription.max_wait_time": "commits wake readers, who say themselves how long to wait",
    "vault": "secrets come from the environment or `.mts/`",
    "tarantool.pool_size": "one connection carries all calls of a process",
}
BY_KEY = {option.key: option for option in OPTIONS}
