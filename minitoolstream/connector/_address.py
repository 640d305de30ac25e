"""What an address of a gRPC server says: where it is, and whether the way there is safe for a token."""

from __future__ import annotations

from dataclasses import dataclass

from minitoolstream.connector._wires import Options
from minitoolstream.domain.errors import MtsError
from minitoolstream.net.addresses import is_loopback

_PLAIN, _TLS = "grpc://", "grpcs://"


@dataclass(frozen=True, slots=True)
class Target:
    """`token` is empty where none is known for this server."""

    address: str
    tls: bool
    token: str


def target_of(address: str, options: Options) -> Target:
    """`host:port`, `grpc://host:port`, or `grpcs://host:port` for TLS. MtsError when a token would leave this machine
    unencrypted and the address does not say so by `grpc://`."""
    tls = address.startswith(_TLS) or options.credentials is not None
    place = address.removeprefix(_TLS).removeprefix(_PLAIN).rstrip("/")
    host, _, port = place.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal():
        raise MtsError("bad_config", f"{address!r} is not an address such as localhost:50051 or grpcs://host:50051")
    here = is_loopback(host)
    token = options.token_for(f"{_PLAIN}127.0.0.1:{port}" if here else _PLAIN + place)
    if token and not (tls or here or address.startswith(_PLAIN)):
        raise MtsError(
            "bad_config",
            f"the token would travel to {place} unencrypted: write grpcs://{place} for TLS, or grpc://{place} if "
            "nobody can listen in between",
        )
    return Target(place, tls, token)
