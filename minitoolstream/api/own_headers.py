"""Request headers of our own. One that a route does not take is refused by its name: a producer whose `X-Mts-Seqno`
were passed over in silence would lose what it asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from minitoolstream.domain.errors import bad_request

HEADER_PREFIX = "x-mts-header-"
ANY_HEADER = f"{HEADER_PREFIX}*"
"""Among what a route takes: all headers that a message may have."""
_OURS = "x-mts-"
_EVERYWHERE = "x-mts-region"  # where the client is, which it says with every request


def check_own_headers(headers: Mapping[str, str], taken: Collection[str], hint: str = "") -> None:
    """`headers`: names in lower case. On the way of every publish, so a name of others costs a comparison."""
    for name in headers:
        if name[:6] == _OURS and name not in taken and name != _EVERYWHERE:
            if ANY_HEADER in taken and name.startswith(HEADER_PREFIX):
                continue
            raise bad_request(f"header {name[:80]!r} has no meaning here{hint}", field=name[:80])
