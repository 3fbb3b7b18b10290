"""Hosts of clients, as Java writes them, and ranges of addresses (CIDR) in entries.

Apache Kafka compares an entry's host with `InetAddress.getHostAddress()`. From 4.4 on a host with a
slash is a range; with an earlier `metadata.version` it cannot be made, but an entry that 4.3 wrote
and never obeyed counts here, as in 4.4.
"""

import re
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network
from typing import Final, TypeAlias

from horolog.security.urls import address_of

__all__ = ["host_text", "is_in_range", "is_range", "range_error"]

_RANGE_V4: Final = re.compile(r"((?:[0-9]{1,3}\.){3}[0-9]{1,3})/([0-9]{1,2})", re.ASCII)
_PREFIX_V6: Final = re.compile(r"\+?[0-9]{1,9}", re.ASCII)

Network: TypeAlias = IPv4Network | IPv6Network


def host_text(address: str) -> str:
    """Return a client's address as Java writes it: `::1` is `0:0:0:0:0:0:0:1`.

    An IPv4 address that was mapped into IPv6 is written as IPv4. Anything else is returned as it
    is.
    """
    if ":" not in address:
        return address
    plain, percent, scope = address.partition("%")
    try:
        parsed = IPv6Address(plain)
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    parts = (f"{int.from_bytes(parsed.packed[at : at + 2], 'big'):x}" for at in range(0, 16, 2))
    return ":".join(parts) + percent + scope


def is_range(host: str) -> bool:
    """Return True if an entry's host is meant as a range of addresses."""
    return "/" in host


def is_in_range(host: str, addresses: str) -> bool:
    """Return True if a client's address is in a range; False if the range is none."""
    network = _network(addresses)
    if isinstance(network, str):
        return False
    address = address_of(host)
    # An address of the other family is in no range.
    return address is not None and address.version == network.version and address in network


def range_error(addresses: str) -> str | None:
    """Return why a text is no range of IPv4 or IPv6 addresses; None if it is one."""
    network = _network(addresses)
    return network if isinstance(network, str) else None


@lru_cache(1024)
def _network(text: str) -> Network | str:
    """Return the range, or what is wrong with the text."""
    if ":" in text:
        return _network_v6(text)
    match = _RANGE_V4.fullmatch(text)
    if match is None:
        return f"Could not parse [{text}]"
    octets, bits = [int(octet) for octet in match[1].split(".")], int(match[2])
    for value, most in (*((octet, 255) for octet in octets), (bits, 32)):
        if value > most:
            return f"Value [{value}] not in range [0,{most}]"
    return IPv4Network((bytes(octets), bits), strict=False)


def _network_v6(text: str) -> Network | str:
    address, _, prefix = text.partition("/")
    if not _PREFIX_V6.fullmatch(prefix):
        return f"Could not parse [{text}] - invalid prefix length"
    if int(prefix) > 128:
        return f"Could not parse [{text}] - prefix length must be between 0 and 128"
    try:
        parsed = IPv6Address(address.removeprefix("[").removesuffix("]"))
    except ValueError:
        return f"Could not parse [{address}]"
    if parsed.scope_id is not None:
        return f"Could not parse [{address}]"
    if parsed.ipv4_mapped is not None:
        return f"Could not parse [{address}] - not an IPv6 address"
    return IPv6Network((parsed.packed, int(prefix)), strict=False)
