"""Settings: the only module that reads the environment, `mts.yaml` and the stack's own files.

A value comes from the first of: environment, `mts.yaml`, what `mts up` remembered under `.mts/`, the default.
Secrets are never read from `mts.yaml`.
"""

from __future__ import annotations

import difflib
import errno
import os
import pwd
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from minitoolstream.domain.errors import MtsError
from minitoolstream.options import BY_KEY, NO_EFFECT, OPTIONS, Option

_ROLE_KEYS = {
    "minio.access_key": "AWS_ACCESS_KEY_ID",
    "minio.secret_key": "AWS_SECRET_ACCESS_KEY",
    "minio.session_token": "AWS_SESSION_TOKEN",  # nosec B105 - the variable's name
    "minio.session_end": "AWS_CREDENTIAL_EXPIRATION",
}


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
    own_urls: tuple[str, ...] = ()
    """Where the stack in `home` has its host and its gRPC servers."""

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

    def token_for(self, urls: Sequence[str]) -> str | None:
        """The token to send to these hosts. That of the stack in `home` is told to its own servers alone."""
        is_the_stacks = self.source("server.token") == str(self.home)
        if is_the_stacks and not set(map(_place, urls)) <= set(map(_place, self.own_urls)):
            return None
        token: str | None = self["server.token"]
        return token

    def with_values(self, source: str = "given", **changes: Any) -> Settings:
        """A copy with other values; double underscores stand for dots (`server__port=0`). Text is parsed."""
        merged = dict(self.values)
        for name, value in changes.items():
            key = name.replace("__", ".")
            merged[key] = Value(BY_KEY[key].parse(value) if isinstance(value, str) else value, source)
        return replace(self, values=merged)


def _place(url: str) -> str:
    """The same for two names of one server on this machine."""
    return url.rstrip("/").replace("://localhost:", "://127.0.0.1:")


def option_default(key: str) -> Any:
    return BY_KEY[key].default


def env_name(key: str) -> str:
    return BY_KEY[key].names[0]


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
    sources = ((str(path), file_values), (str(home), remembered), ("the function's role", _role_keys(environ)))
    values = {option.key: _choose(option, environ, sources, report) for option in OPTIONS}
    ports = (remembered.get(key) for key in ("grpc.ingress_port", "grpc.egress_port"))
    own = (*remembered.get("server.urls", ()), *(f"grpc://127.0.0.1:{port}" for port in ports if port))
    return Settings(values, home, warnings, tuple(problems), own)


def _role_keys(environ: Mapping[str, str]) -> dict[str, Any]:
    """The keys that Lambda gives to a function. Elsewhere, keys for AWS may be meant for something else."""
    if not environ.get("AWS_LAMBDA_FUNCTION_NAME"):
        return {}
    return {key: environ.get(name) for key, name in _ROLE_KEYS.items()}


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
        elif key not in BY_KEY:
            report(f"{path}: unknown key `{key}`{_did_you_mean(key)}")
        elif BY_KEY[key].secret:
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
    near = difflib.get_close_matches(key, BY_KEY, 1)
    # A key without its section is no near match of any.
    near = near or [known for known in BY_KEY if known.endswith(f".{key}")]
    return f"; did you mean {' or '.join(f'`{known}`' for known in near)}?" if near else ""
