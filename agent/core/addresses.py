"""Addresses of servers."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_on_loopback(url: str) -> bool:
    """Return True if a URL leads to this host itself: ``localhost``, 127.0.0.0/8 or ``::1``."""
    try:
        host = urlsplit(url if "//" in url else f"//{url}").hostname or ""
    except ValueError:  # brackets without an address of IPv6
        return False
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".") == "localhost"
