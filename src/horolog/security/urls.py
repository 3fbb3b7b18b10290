"""Addresses as settings give them: of identity providers, of files in their place, and of hosts."""

import urllib.parse
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from horolog.errors import Misconfigured

__all__ = ["address_of", "checked_url", "is_loopback", "without_secrets"]


def checked_url(url: str, setting: str) -> urllib.parse.SplitResult:
    """Return the parts of a URL of a file, or of http or https with a host.

    Raises:
        Misconfigured: the URL is not usable. Parts that may be secret are not repeated.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        is_complete = parts.scheme == "file" or (
            parts.scheme in {"http", "https"}
            and bool(parts.hostname)
            and parts.port != 0
            and url.isascii()
            and url.isprintable()
            and " " not in url
        )
    except ValueError:  # brackets that do not close, a port beyond 65535
        is_complete = False
    if not is_complete:
        raise Misconfigured(
            f"{setting} is not usable: expected https://host/..., http://host/... or file:///..."
        )
    return parts


def without_secrets(parts: urllib.parse.SplitResult) -> str:
    """Return the URL without user, password and query, for messages."""
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl()


@lru_cache(1024)
def address_of(host: str) -> IPv4Address | IPv6Address | None:
    """Return an IP address without its scope; None for a name."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Return True if only this machine can connect to an address.

    A name other than localhost is not looked up: it may lead elsewhere later.
    """
    address = address_of(host)
    if address is None:
        return host.lower() == "localhost"
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback
