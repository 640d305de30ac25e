"""What a month on AWS costs, from how it is used and from prices that are inputs: they change, and differ by region."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MAX_PARTS, MAX_PAYLOAD_BYTES, MIB, PARTS_PER_PAGE

_FILE = Path(__file__).parent / "prices.json"
_HOURS = 730.0
_BATCH = 1000
_BODY = 4 * MIB
"""The most that a request carries: Lambda takes 6 MB, in base64."""
_PART = 16 * MIB
_PAGE = 100
"""Messages in one answer to a reader."""
_PER_EVENT_CALL = 10
_SWEEPS = 60 * _HOURS
_ENDPOINTS = 4  # two services in two zones
_DISK_GB = 100


Price = Annotated[float, msgspec.Meta(ge=0)]


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In dollars, with the date and region they are of."""

    date: str
    region: str
    s3_put_per_1000: Price
    s3_get_per_1000: Price
    s3_storage_gb_month: Price
    lambda_per_million: Price
    lambda_gb_second: Price
    api_gateway_per_million: Price
    sqs_per_million: Price
    transfer_out_gb: Price
    secret_month: Price
    machine_hour: Price
    disk_gb_month: Price
    database_hour: Price
    endpoint_hour: Price
    nat_hour: Price
    note: str = ""

    def shown(self) -> dict[str, Any]:
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built


@dataclass(frozen=True, slots=True)
class Use:
    """A month of it. `call_seconds` and `memory_gb` are those of a function's call, on average."""

    messages: int
    size: int
    way: str
    reads: float
    days: float
    outside: bool = False
    call_seconds: float = 0.03
    memory_gb: float = 0.5


@dataclass(frozen=True, slots=True)
class Line:
    """`fixed`: it costs the same without a single message."""

    what: str
    quantity: str
    dollars: float
    fixed: bool = False


def load_prices(file: Path | None = None) -> Prices:
    path = file or _FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Prices)
    except OSError as error:
        raise MtsError("bad_request", f"{path} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise MtsError("bad_request", f"{path} is no list of prices: {error}") from error


def costs_of(use: Use, prices: Prices) -> list[Line]:
    """Line by line. What nobody counts at such scale is left out: free tiers, logs, metrics, KMS."""
    if not (math.isfinite(use.reads) and math.isfinite(use.days)):
        raise MtsError("bad_request", "reads and days are numbers that can be counted")
    if use.size > MAX_PAYLOAD_BYTES:
        raise MtsError("bad_request", f"an upload carries {MAX_PAYLOAD_BYTES:,} bytes at most")
    if use.way != "ticket" and use.size > _BODY:
        raise MtsError("bad_request", f"{use.size:,} bytes go by ticket alone: a request carries {_BODY:,} at most")
    requests, puts, events = _publishing(use)
    reads = use.messages * use.reads
    requests += reads / _PAGE
    objects_got = reads / _per_batch(use) if use.way == "batch" else reads
    calls = 2 * requests + events / _PER_EVENT_CALL  # an authorizer's call for each request, at the worst
    stored_gb = use.messages * use.size / 1e9 * use.days / 30.4
    out_gb = reads * use.size / 1e9 if use.outside else 0.0
    seconds = (requests + events / _PER_EVENT_CALL) * use.call_seconds
    lines = [
        Line("API Gateway requests", _count(requests), requests / 1e6 * prices.api_gateway_per_million),
        Line("Lambda calls", _count(calls), calls / 1e6 * prices.lambda_per_million),
        Line("Lambda GB-seconds", _count(seconds * use.memory_gb), seconds * use.memory_gb * prices.lambda_gb_second),
        Line("S3 PUTs", _count(puts), puts / 1000 * prices.s3_put_per_1000),
        Line("S3 GETs", _count(objects_got), objects_got / 1000 * prices.s3_get_per_1000),
        Line("S3 storage, GB-months", f"{stored_gb:,.1f}", stored_gb * prices.s3_storage_gb_month),
        Line("SQS requests", _count(2.2 * events), 2.2 * events / 1e6 * prices.sqs_per_million),
    ]
    if use.outside:
        lines.append(Line("transfer out, GB", f"{out_gb:,.1f}", out_gb * prices.transfer_out_gb))
    return lines + _fixed(prices)


def _publishing(use: Use) -> tuple[float, float, float]:
    """Requests to the API, PUTs and events for all messages."""
    if use.way == "ticket":
        requests, puts = _by_ticket(use.size)
        return requests * use.messages, puts * use.messages, float(use.messages)
    if use.way == "inline":  # a function's container serves one at a time, so nothing is packed together
        return float(use.messages), float(use.messages), 0.0
    batches = use.messages / _per_batch(use)
    return batches, batches, 0.0


def _by_ticket(size: int) -> tuple[float, float]:
    """Requests to the API and of the PUT kind: the ticket and the receipt; for parts also their further pages, and
    what begins, lists and completes them."""
    if size <= _PART:
        return 2.0, 1.0
    parts = min(-(-size // _PART), MAX_PARTS)
    pages = -(-parts // PARTS_PER_PAGE)
    return 1.0 + pages, parts + 3.0


def _per_batch(use: Use) -> int:
    return min(_BATCH, _BODY // max(1, use.size))


def _fixed(prices: Prices) -> list[Line]:
    sweeps = _SWEEPS / 1e6 * prices.lambda_per_million + _SWEEPS * 0.5 * prices.lambda_gb_second
    return [
        Line("Tarantool's machine", f"{_HOURS:.0f} h", _HOURS * prices.machine_hour, fixed=True),
        Line("its disk, GB", str(_DISK_GB), _DISK_GB * prices.disk_gb_month, fixed=True),
        Line("MySQL of the pipeline", f"{_HOURS:.0f} h", _HOURS * prices.database_hour, fixed=True),
        Line("endpoints of AWS", str(_ENDPOINTS), _ENDPOINTS * _HOURS * prices.endpoint_hour, fixed=True),
        Line("NAT gateway", f"{_HOURS:.0f} h", _HOURS * prices.nat_hour, fixed=True),
        Line("sweeper, 1 s a minute", _count(_SWEEPS), sweeps, fixed=True),
        Line("secret", "1", prices.secret_month, fixed=True),
    ]


def _count(number: float) -> str:
    return f"{number:,.0f}"
