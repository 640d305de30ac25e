"""What a setting's value may look like: text from the environment or YAML in, the value out, or a ValueError that says
what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w|y)?\Z")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000, None: 1}
_BYTES = re.compile(r"(\d+)\s*(B|KB|MB|GB|KiB|MiB|GiB|TiB)?\Z", re.IGNORECASE)
_FACTOR = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]]+)(?::(\d{1,5}))?\Z")
_BUCKET = re.compile(r"(?!.*\.\.)(?!\d+\.\d+\.\d+\.\d+\Z)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")
_REGION = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")
_LARGEST_PORT = 65535
_SUBJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}\Z")


def duration(value: Any) -> float:
    """Seconds of '24h', '7d', '500ms' or a plain number."""
    match = _DURATION.match(str(value).strip())
    if not match:
        raise ValueError(f"{value!r} is not a duration; write 30s, 15m, 24h or 7d")
    return float(match[1]) * _SECONDS[match[2]]


def moment(value: Any) -> float:
    """Unix seconds of '2026-01-31T12:00:00Z'."""
    try:
        return datetime.fromisoformat(str(value).strip()).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"{value!r} is not a time; write 2026-01-31T12:00:00Z") from None


class Channel(NamedTuple):
    """How long the messages of one subject stay."""

    channel: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.channel}={self.seconds:.0f}s"


def channels(value: Any) -> tuple[Channel, ...]:
    """`[{channel: logs, duration: 7d}]` as the specification writes it, or `logs=7d,metrics=30d`."""
    entries = value if isinstance(value, list | tuple) else words(value)
    found = tuple(_channel(entry) for entry in entries)
    if len({one.channel for one in found}) < len(found):
        raise ValueError(f"{value!r} names a channel twice")
    return found


def _channel(entry: Any) -> Channel:
    if isinstance(entry, dict) and set(entry) == {"channel", "duration"}:
        name, life = entry["channel"], entry["duration"]
    else:
        name, _, life = str(entry).partition("=")
    if not _SUBJECT.match(str(name)) or not life:
        raise ValueError(f"{entry!r} is not a channel; write {{channel: logs, duration: 7d}} or logs=7d")
    return Channel(str(name), message_life(life))


def file_name(value: Any) -> str:
    """A file's name, from here on whole: whoever reads it may run elsewhere."""
    return str(Path(str(value)).expanduser().absolute())


def size(value: Any) -> int:
    """Bytes of '16MiB', '5GB' or a plain number."""
    match = _BYTES.match(str(value).strip())
    if not match:
        raise ValueError(f"{value!r} is not a size; write 512KiB, 16MiB or a number of bytes")
    return int(match[1]) * _FACTOR[(match[2] or "b").lower()]


def boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in {"true", "false", "1", "0", "yes", "no", "on", "off"}:
        raise ValueError(f"{value!r} is neither true nor false")
    return text in {"true", "1", "yes", "on"}


def integer(value: Any) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"-?\d+", str(value).strip()):
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)


def words(value: Any) -> tuple[str, ...]:
    items = value if isinstance(value, list | tuple) else str(value).split(",")
    return tuple(str(item).strip() for item in items if str(item).strip())


def address(value: Any) -> str:
    """`host:port`, `[::1]:port` or a bare host."""
    text = str(value).strip()
    match = _ADDRESS.match(text)
    if not match or int(match[1] or 0) > _LARGEST_PORT:
        raise ValueError(f"{value!r} is not an address; write host:port")
    return text


def endpoint(value: Any) -> str:
    """An address, or an http(s) URL of one."""
    text = str(value).strip()
    if "://" not in text:
        return address(text)
    try:
        parts = urlsplit(text)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # its port is none
        fits = False
    if not fits or parts.path.strip("/") or parts.query or parts.username:
        raise ValueError(f"{value!r} is not an endpoint; write host:port or an http(s) URL without a path")
    return text


def bucket_name(value: Any) -> str:
    """What S3 takes as a name."""
    text = str(value)
    if not _BUCKET.match(text):
        rule = "3 to 63 of a-z 0-9 . -, beginning and ending with a letter or digit, and no IP address"
        raise ValueError(f"{value!r} is no name for a bucket: {rule}")
    return text


def region(value: Any) -> str:
    text = str(value)
    if not _REGION.match(text):
        raise ValueError(f"{value!r} is not a region; write one like us-east-1")
    return text


def between(parse: Callable[[Any], Any], low: Any, high: Any) -> Callable[[Any], Any]:
    """Bounds are written as a user would write them."""
    least, most = parse(low), parse(high)

    def checked(value: Any) -> Any:
        parsed = parse(value)
        if not least <= parsed <= most:
            raise ValueError(f"{value!r} is not between {low} and {high}")
        return parsed

    return checked


def database(value: Any) -> str:
    """`sqlite`, or where a MariaDB or MySQL is."""
    text = str(value).strip()
    return text if text == "sqlite" else _mysql_url(text, "MTS_PIPELINE_PASSWORD")


class ShardDatabase(NamedTuple):
    """Where the rows of one shard go."""

    shard: int
    url: str

    def __str__(self) -> str:
        return f"{self.shard}={self.url}"


def shard_databases(value: Any) -> tuple[ShardDatabase, ...]:
    """`0=mysql://user@host:3306/app_0,1=mysql://...`, or a map of such; for trying things out `0=sqlite:FILE`."""
    entries = [f"{shard}={url}" for shard, url in value.items()] if isinstance(value, dict) else words(value)
    found = tuple(_shard_database(entry) for entry in entries)
    if len({one.shard for one in found}) < len(found):
        raise ValueError(f"{value!r} names a shard twice")
    return found


def _shard_database(entry: str) -> ShardDatabase:
    number, _, url = entry.partition("=")
    if not re.fullmatch(r"[0-9]{1,10}", number.strip()) or not url:
        raise ValueError("one is no shard's database; write 0=mysql://user@host:3306/app_0")
    url = url.strip()
    known = url if re.fullmatch(r"sqlite:.+", url) else _mysql_url(url, "MTS_PIPELINE_SHARD_PASSWORD")
    return ShardDatabase(int(number), known)


def _mysql_url(text: str, password_name: str) -> str:
    """Without its password, which is a secret of its own."""
    try:
        parts = urlsplit(text)
        fits = parts.scheme in {"mysql", "mariadb"} and bool(parts.hostname and parts.username) and parts.port != 0
    except ValueError:  # its port is none
        fits = False
    if fits and parts.password is not None:
        raise ValueError(f"it holds a password; set {password_name} instead")
    rest = f"{parts.path}?{parts.query}#{parts.fragment}"
    if not fits or not re.fullmatch(r"/[A-Za-z0-9_$-]{1,64}\?(tls=true)?#", rest):
        # Not shown: what is written wrong may hold a password.
        raise ValueError("it is no database; write mysql://user@host:3306/pipeline_db")
    return text


def catalog_database(value: Any) -> str:
    """`sqlite`, or where a Cassandra or ScyllaDB is."""
    text = str(value).strip()
    hosts, _, keyspace = text.removeprefix("cql://").partition("/")
    fits = text.startswith("cql://") and bool(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,47}", keyspace))
    try:
        fits = fits and all(address(host) for host in hosts.split(","))
    except ValueError:
        fits = False
    if text != "sqlite" and not fits:
        raise ValueError(f"{value!r} is no database of a catalog; write cql://host:9042,host:9042/keyspace")
    return text


def replication(value: Any) -> str:
    """`datacenter1=3,datacenter2=3` or a map, as CQL writes it."""
    pairs = [f"{name}={count}" for name, count in value.items()] if isinstance(value, dict) else words(value)
    found = [re.fullmatch(r"([A-Za-z0-9_-]{1,100})=([1-9][0-9]?)", pair) for pair in pairs]
    if not found or not all(found):
        raise ValueError(f"{value!r} is no replication; write datacenter1=3,datacenter2=3")
    return ", ".join(f"'{match[1]}': '{match[2]}'" for match in found if match)


class PeerPlace(NamedTuple):
    """An object store that holds copies."""

    id: str
    endpoint: str
    bucket: str
    zone: str
    region: str = "us-east-1"
    weight: float = 1.0

    def __str__(self) -> str:
        return f"{self.id}={self.endpoint}/{self.bucket}?zone={self.zone}&region={self.region}&weight={self.weight:g}"


def peer_places(value: Any) -> tuple[PeerPlace, ...]:
    """`eu=http://host:9000/bucket?zone=eu,us=...`, or a map of such; `region` and `weight` may follow the zone."""
    entries = [f"{name}={url}" for name, url in value.items()] if isinstance(value, dict) else words(value)
    found = tuple(_peer_place(entry) for entry in entries)
    if len({one.id for one in found}) < len(found):
        raise ValueError(f"{value!r} names a peer twice")
    if len({(one.endpoint, one.bucket) for one in found}) < len(found):
        raise ValueError(f"{value!r} names a bucket twice: two copies in it would be one")
    return found


def _peer_place(entry: str) -> PeerPlace:
    name, _, url = (part.strip() for part in entry.partition("="))
    named = bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", name))
    # Not shown: what is written wrong may hold a password.
    form = "eu=http://host:9000/bucket?zone=eu-west&weight=1,us=https://..."
    if not named:
        raise ValueError(f"one is no peer; write {form}")
    why = "it needs an http(s) URL, without a password"
    try:
        url_parts = urlsplit(url)
        where = endpoint(f"{url_parts.scheme}://{url_parts.netloc}")
        why = "its bucket is no name for one: 3 to 63 of a-z 0-9 . -"
        bucket = bucket_name(url_parts.path.strip("/"))
        given = dict(parse_qsl(url_parts.query))
        why = "its weight is no number above 0"
        weight = _weight(given.pop("weight", "1"))
        why = "its zone or region is no word like eu-west"
        zone, in_region = region(given.pop("zone", name.lower())), region(given.pop("region", "us-east-1"))
    except ValueError:
        raise ValueError(f"{name} is no peer, {why}; write {form}") from None
    if given:
        raise ValueError(f"{name} is no peer, behind the ? are zone, region and weight alone; write {form}")
    return PeerPlace(name, where, bucket, zone, in_region, weight)


def _weight(text: str) -> float:
    if not re.fullmatch(r"\d{1,4}(\.\d+)?", text) or not float(text):
        raise ValueError
    return float(text)


def named_secrets(value: Any) -> dict[str, str]:
    """`name=secret,name=secret`. What is wrong with it is not shown."""
    pairs = [part.partition("=") for part in words(value)]
    if not all(name and secret for name, _, secret in pairs) or len({name for name, _, _ in pairs}) < len(pairs):
        raise ValueError("write name=secret,name=secret")
    return {name: secret for name, _, secret in pairs}


message_life = between(duration, "1s", "10y")
"""How long messages may be kept."""


def one_of(*choices: str) -> Callable[[Any], str]:
    def checked(value: Any) -> str:
        chosen = str(value).lower()
        if chosen not in choices:
            raise ValueError(f"{value!r} is not one of {', '.join(choices)}")
        return chosen

    return checked
