"""How a publisher and a subscriber reach the servers: by gRPC or by HTTP, as the address says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, Protocol

from minitoolstream.config import load_settings
from minitoolstream.connector._types import Message, Prepared, PublishResult, SubscriptionStatus
from minitoolstream.domain.errors import MtsError

Handle = Callable[[Message], bool]
"""Whether the message was handled; False when a stop came before that, and it is to come again."""


@dataclass(frozen=True, slots=True)
class Options:
    """`token` None: as the settings say for the server. `grpc_options` are channel arguments, `credentials` those of a
    channel with TLS."""

    token: str | None = None
    timeout: float = 30.0
    grpc_options: Sequence[tuple[str, Any]] = ()
    credentials: Any = None

    def token_for(self, url: str) -> str:
        return self.token if self.token is not None else load_settings().token_for([url]) or ""


class IngressWire(Protocol):
    def publish(self, message: Prepared) -> PublishResult:
        """MtsError when it is not published."""

    def publish_all(self, messages: Sequence[Prepared]) -> list[PublishResult]: ...

    def close(self) -> None: ...


class EgressWire(Protocol):
    def follow(self, subject: str, durable: str, batch_size: int, handle: Handle, stop: Event) -> None:
        """Hand over the messages of a subject behind the durable's position, and move it, until `stop` is set.
        Comes back on its own only by an MtsError that trying again does not mend."""

    def wake(self) -> None:
        """`stop` was set: whoever waits for messages shall look."""

    def status(self, subject: str, durable: str) -> SubscriptionStatus: ...

    def close(self) -> None: ...


def is_http(address: str) -> bool:
    return address.startswith(("http://", "https://"))


def ingress_wire(address: str, options: Options, presigned_above: int) -> IngressWire:
    if is_http(address):
        from minitoolstream.connector._http import HttpIngress

        return HttpIngress(address, options, presigned_above)
    must_have_grpc()
    from minitoolstream.connector._grpc_ingress import GrpcIngress

    return GrpcIngress(address, options, presigned_above)


def egress_wire(address: str, options: Options, pause: float) -> EgressWire:
    if is_http(address):
        from minitoolstream.connector._http import HttpEgress

        return HttpEgress(address, options)
    must_have_grpc()
    from minitoolstream.connector._grpc_egress import GrpcEgress

    return GrpcEgress(address, options, pause)


def must_have_grpc() -> None:
    try:
        import grpc  # noqa: F401
    except ImportError:
        raise MtsError(
            "not_configured", "gRPC is not installed: pip install 'minitoolstream[grpc]', or give an http:// address"
        ) from None


def results_of(outcomes: Iterable[PublishResult | MtsError]) -> list[PublishResult]:
    return [PublishResult(error=one) if isinstance(one, MtsError) else one for one in outcomes]
