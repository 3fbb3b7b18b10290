"""Entities that quotas are set for, and the values that a quota may have."""

import ipaddress
import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, TypeAlias

from horolog.errors import ErrorCode, RequestRefused

__all__ = [
    "CLIENT_ID",
    "IP",
    "USER",
    "Entity",
    "QuotaKey",
    "check_entity",
    "check_filter",
    "check_quota",
    "is_match",
]

Entity: TypeAlias = "frozenset[tuple[str, str | None]]"
"""Types with names; a name None is the default, for all that have no quota of their own."""

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_TYPES: Final = (USER, CLIENT_ID, IP)
_EXACT, _ANY = 0, 2  # match types; 1 is the default entity
_MOST_LONG: Final = float(1 << 63)
_MOST_INT: Final = float((1 << 31) - 1)
_SMALLEST_FRACTION: Final = 1e-6


class QuotaKey(StrEnum):
    """Kinds of quotas, by Kafka's names."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


_WHOLE: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: ("LONG", _MOST_LONG),
    QuotaKey.CONSUMER_BYTE_RATE: ("LONG", _MOST_LONG),
    QuotaKey.CONNECTION_CREATION_RATE: ("INT", _MOST_INT),
}


def _invalid(message: str) -> RequestRefused:
    return RequestRefused(ErrorCode.invalid_request, message)


def check_entity(parts: Sequence[tuple[str, str | None]]) -> Entity:
    """Return the entity of a request.

    Raises:
        RequestRefused: there is no such entity (42).
    """
    if not parts:
        raise _invalid("Invalid empty client quota entity")
    entity = dict(parts)
    if len(entity) != len(parts):
        raise _invalid("a quota entity has each of its types once")
    for kind, name in parts:
        if kind not in _TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind:.60}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP in entity:
        if len(entity) > 1:
            raise _invalid(
                "Invalid quota entity combination, IP entity should not be combined with User or "
                "ClientId"
            )
        address = entity[IP]
        if address is not None and not _is_address(address):
            raise _invalid(f"{address:.60} is no IP address; names of hosts are not resolved")
    return frozenset(parts)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def check_quota(entity: Entity, key: str, value: float | None) -> None:
    """Check a quota that is to be set, or removed with None.

    Raises:
        RequestRefused: the entity has no quota of this key, or the value is not allowed (42).
    """
    allowed = set(QuotaKey) - {QuotaKey.CONNECTION_CREATION_RATE}
    if any(kind == IP for kind, _ in entity):
        allowed = {QuotaKey.CONNECTION_CREATION_RATE}
    if key not in allowed:
        raise _invalid(f"Invalid configuration key {key:.60}")
    if value is None:
        return
    if not value > 0 or math.isinf(value):
        raise _invalid(f"Quota {key} must be a number greater than 0")
    kind, most = _WHOLE.get(QuotaKey(key), ("", math.inf))
    if value > most:
        raise _invalid(f"Proposed value for {key} is too large for a {kind}.")
    if kind and math.ceil(value) - value > _SMALLEST_FRACTION:
        raise _invalid(f"{key} cannot be a fractional value.")


def check_filter(kind: str, how: int, name: str | None, seen: set[str]) -> None:
    """Check a part of a filter of quotas, and add its type to those seen.

    Raises:
        RequestRefused: there is no such type (35), or the filter is invalid (42).
    """
    if kind not in _TYPES:
        error_code = ErrorCode.unsupported_version if kind else ErrorCode.invalid_request
        raise RequestRefused(error_code, f"there is no entity type {kind!r:.60} of quotas")
    if not _EXACT <= how <= _ANY:
        raise _invalid(f"Unknown match type {how}")
    if (name is not None) != (how == _EXACT):
        raise _invalid(f"a match of type {how} of {kind} has a name iff it is exact")
    if kind in seen or (seen and IP in {kind, *seen}):
        raise _invalid(f"{kind} cannot be combined with {', '.join(sorted(seen))}")
    seen.add(kind)


def is_match(entity: Entity, parts: Sequence[tuple[str, int, str | None]], *, strict: bool) -> bool:
    """Return True if a filter takes an entity; a strict one takes no more types than it names."""
    if strict and len(entity) != len(parts):
        return False
    names = dict(entity)
    return all(kind in names and (how == _ANY or names[kind] == name) for kind, how, name in parts)
