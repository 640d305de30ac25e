"""What can be told from an address alone."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """True when nobody but this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
