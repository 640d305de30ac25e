"""Settings: the only module that reads the environment, `mts.yaml` and the stack's own files.

A value comes from the first of: environment, `mts.yaml`, what `mts up` remembered under `.mts/`, the default.
Secrets are never read from `mts.yaml`.
"""

from __future__ import annotations

import difflib
import errno
import os
import pwd
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from minitoolstream.domain.checks import fits_a_header
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MAX_SINGLE_PUT_BYTES, MIB, MIN_PART_BYTES
from minitoolstream.setting_values import (
    address,
    between,
    boolean,
    bucket_name,
    channels,
    database,
    duration,
    endpoint,
    integer,
    message_life,
    one_of,
    region,
    shard_databases,
    size,
    words,
)


@dataclass(frozen=True, slots=True)
class Option:
    """One setting: its key in `mts.yaml`, how text becomes its value, and a line for the docs."""

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
    Option("pipeline.lease", 900.0, between(duration, "1s", "7d"), "how long a started task is its daemon's"),
    Option("pipeline.files", None, str, "folder or `s3://bucket/prefix` of its files; unset: `pipeline` in the bucket"),
    Option("pipeline.shards", (), shard_databases, "databases of the shards: `0=mysql://user@host:3306/app_0,...`"),
    Option("pipeline.shard_password", None, str, "password of the user of these", secret=True),
    Option("logging.level", "info", one_of("debug", "info", "warning", "error"), "debug, info, warning or error"),
    Option("logging.format", "json", one_of("json", "text"), "json or text"),
)
NO_EFFECT = {
    "subscription.max_wait_time": "commits wake readers, who say themselves how long to wait",
    "vault": "secrets come from the environment or `.mts/`",
    "tarantool.pool_size": "one connection carries all calls of a process",
}
_BY_KEY = {option.key: option for option in OPTIONS}


@dataclass(frozen=True, slots=True)
class Value:
    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, frozen. `settings["server.port"]` is the value, `source("server.port")` where it came from."""

    values: Mapping[str, Value]
    home: Path
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """What was wrong and left out; empty unless `load_settings` was told to go on."""

    def __getitem__(self, key: str) -> Any:
        return self.values[key].value

    def source(self, key: str) -> str:
        return self.values[key].source

    def secret(self, key: str) -> str:
        """A secret that must be there; the error names the variable to set."""
        value = self.values[key].value
        if not value:
            raise MtsError("not_configured", f"{key} is not set: run `mts up`, or set {env_name(key)}")
        return str(value)

    def with_values(self, source: str = "given", **changes: Any) -> Settings:
        """A copy with other values; double underscores stand for dots (`server__port=0`). Text is parsed."""
        merged = dict(self.values)
        for name, value in changes.items():
            key = name.replace("__", ".")
            merged[key] = Value(_BY_KEY[key].parse(value) if isinstance(value, str) else value, source)
        return Settings(merged, self.home, self.warnings, self.problems)


def option_default(key: str) -> Any:
    return _BY_KEY[key].default


def env_name(key: str) -> str:
    return _BY_KEY[key].names[0]


def user_state_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Where the SDK remembers unfinished uploads: a directory of the user, not of a stack."""
    environ = os.environ if environ is None else environ
    base = environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "minitoolstream"


def user_cache_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Where servers and tools that we got ourselves are kept, for all stacks of the user."""
    environ = os.environ if environ is None else environ
    base = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "minitoolstream"


_Report = Callable[[str], None]


def _refuse(problem: str) -> None:
    raise MtsError("bad_config", problem)


def no_permission(error: OSError) -> MtsError | None:
    """The error to show when the system refused access to a file or folder; None for other failures."""
    if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return None
    where = f"{error.filename}: " if error.filename else ""
    return MtsError("no_permission", f"{where}{error.strerror}")


def find_home(environ: Mapping[str, str] | None = None, *, cwd: Path | None = None) -> Path:
    """The stack's folder, which need not exist. One of another user is an MtsError `no_permission`."""
    environ = os.environ if environ is None else environ
    cwd = cwd or Path.cwd()
    try:
        home = (cwd / (environ.get("MTS_HOME") or _find_up(cwd, ".mts") or ".mts")).absolute()
        owner = home.stat().st_uid if home.exists() else os.getuid()
    except PermissionError as error:
        raise no_permission(error) or error from None
    if owner != os.getuid():
        name = _user_name(owner)
        hint = f"run it as {name}, or set MTS_HOME to a folder of yours"
        raise MtsError("no_permission", f"the stack in {home} belongs to {name}", {"hint": hint})
    return home


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def load_settings(
    environ: Mapping[str, str] | None = None,
    *,
    cwd: Path | None = None,
    config_file: Path | None = None,
    go_on: bool = False,
) -> Settings:
    """Read every source once. Wrong values are an MtsError `bad_config` that names key and source.

    With `go_on` they are left out and told in `problems`, for commands that must work nevertheless.
    """
    environ = os.environ if environ is None else environ
    cwd = cwd or Path.cwd()
    home = find_home(environ, cwd=cwd)
    path = config_file or (Path(environ["MTS_CONFIG"]) if environ.get("MTS_CONFIG") else cwd / "mts.yaml")
    problems: list[str] = []
    report = problems.append if go_on else _refuse
    required = config_file is not None or bool(environ.get("MTS_CONFIG"))
    file_values, warnings = _read_yaml(path, report, required=required)
    remembered = {**_read_json(home / "state.json"), **_read_json(home / "secrets.json")}
    sources = ((str(path), file_values), (str(home), remembered))
    values = {option.key: _choose(option, environ, sources, report) for option in OPTIONS}
    return Settings(values, home, warnings, tuple(problems))


def _choose(
    option: Option,
    environ: Mapping[str, str],
    sources: tuple[tuple[str, Mapping[str, Any]], ...],
    report: _Report,
) -> Value:
    candidates = [(name, environ.get(name)) for name in option.names]
    candidates += [(source, values.get(option.key)) for source, values in sources]
    for source, raw in candidates:
        if raw is None or raw == "":
            continue
        try:
            return Value(option.parse(raw), source)
        except ValueError as error:
            report(f"{option.key} (from {source}): {error}")
    return Value(option.default, "default")


def _find_up(start: Path, name: str) -> Path | None:
    for folder in (start, *start.parents):
        if (folder / name).is_dir():
            return folder / name
    return None


def _read_json(path: Path) -> dict[str, Any]:
    """The `settings` map of one of the stack's own files; empty when `mts up` has not run here."""
    try:
        content: dict[str, Any] = msgspec.json.decode(path.read_bytes()).get("settings", {})
    except FileNotFoundError:
        return {}
    except PermissionError as error:
        raise no_permission(error) or error from None
    except (msgspec.DecodeError, AttributeError):
        raise MtsError("bad_config", f"{path} is damaged; remove it and run `mts up`") from None
    return content


def _read_yaml(path: Path, report: _Report, *, required: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    try:
        content = yaml.safe_load(path.read_text("utf-8")) or {}
    except FileNotFoundError:
        if required:
            report(f"{path} does not exist")
        return {}, ()
    except PermissionError as error:
        raise no_permission(error) or error from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        report(f"{path} is not YAML: {error}")
        return {}, ()
    if not isinstance(content, dict):
        report(f"{path} must be a map of sections such as `server:`")
        return {}, ()
    values: dict[str, Any] = {}
    warnings: list[str] = []
    for key, value in _flat(content):
        if key in NO_EFFECT:
            warnings.append(f"{path}: `{key}` has no effect: {NO_EFFECT[key]}")
        elif key not in _BY_KEY:
            report(f"{path}: unknown key `{key}`{_did_you_mean(key)}")
        elif _BY_KEY[key].secret:
            report(f"{path}: `{key}` is a secret; set {env_name(key)} instead")
        else:
            values[key] = value
    return values, tuple(warnings)


def _flat(content: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    """`section.name` and its value; a section that has no effect, or is none, as it is. The specification writes the
    section `grpc` inside of `server`."""
    for section, entries in content.items():
        if section in NO_EFFECT or not isinstance(entries, dict):
            yield str(section), entries
            continue
        for name, value in entries.items():
            if (section, name) == ("server", "grpc") and isinstance(value, dict):
                yield from _flat({"grpc": value})
            else:
                yield f"{section}.{name}", value


def _did_you_mean(key: str) -> str:
    near = difflib.get_close_matches(key, _BY_KEY, 1)
    # A key without its section is no near match of any.
    near = near or [known for known in _BY_KEY if known.endswith(f".{key}")]
    return f"; did you mean {' or '.join(f'`{known}`' for known in near)}?" if near else ""
