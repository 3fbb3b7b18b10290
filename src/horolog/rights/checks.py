"""Checks of entries that are to be made, and of filters, with Kafka's errors and messages."""

from collections.abc import Iterable

from horolog.errors import ErrorCode, RequestRefused, listed, printable
from horolog.rights.entries import CLUSTER_NAME, WILDCARD, AclEntry, AclFilter
from horolog.rights.hosts import is_range, range_error
from horolog.wire.acl import AclOperation, AclPattern, AclPermission, AclResource

__all__ = ["LEVEL_OF_RANGES", "check_entry", "check_filter", "new_ranges"]

LEVEL_OF_RANGES = 32
"""Level of `metadata.version` from which Apache Kafka obeys ranges of addresses: 4.4-IV1."""
_MOST_NAMED = 10
_KINDS = range(AclResource.TOPIC, AclResource.USER + 1)
_OPERATIONS = range(AclOperation.ALL, AclOperation.TWO_PHASE_COMMIT + 1)


def check_entry(entry: AclEntry, metadata_version: int) -> None:
    """Check that an entry may be made.

    Args:
        metadata_version: level of the feature; ranges of addresses need 32.

    Raises:
        RequestRefused: it says nothing, or nothing that could ever apply (42); a range of
            addresses at an earlier level (35).
    """
    kind, name, pattern, principal, host, operation, permission = entry
    if kind not in _KINDS:
        raise _invalid("Invalid resourceType UNKNOWN")
    if pattern not in (AclPattern.LITERAL, AclPattern.PREFIXED):
        raise _invalid("Invalid patternType UNKNOWN")
    if operation not in _OPERATIONS:
        raise _invalid("Invalid operation UNKNOWN")
    if permission not in (AclPermission.DENY, AclPermission.ALLOW):
        raise _invalid("Invalid permissionType UNKNOWN")
    if not name:
        raise _invalid("Resource name should not be empty")
    if kind == AclResource.CLUSTER and name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if ":" not in principal:
        raise _invalid(
            f"Could not parse principal from `{principal}` (no colon is present separating the "
            "principal type from the principal name)"
        )
    _check_host(host, metadata_version)


def _check_host(host: str, metadata_version: int) -> None:
    if not host:
        raise _invalid("Host pattern cannot be null or empty")
    if host == WILDCARD or not is_range(host):
        return
    if metadata_version < LEVEL_OF_RANGES:
        raise RequestRefused(
            ErrorCode.unsupported_version,
            "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.",
        )
    error = range_error(host)
    if error is not None:
        raise _invalid(f"Invalid CIDR notation '{host}': {error}")


def check_filter(entries: AclFilter) -> None:
    """Check that the numbers of a filter are known.

    Raises:
        RequestRefused: one is not (42).
    """
    kinds, patterns = range(1, AclResource.USER + 1), range(1, AclPattern.PREFIXED + 1)
    if entries.resource_type not in kinds or entries.pattern not in patterns:
        raise _invalid("Unknown patternFilter.")
    operations, permissions = range(1, AclOperation.TWO_PHASE_COMMIT + 1), range(1, 4)
    if entries.operation not in operations or entries.permission not in permissions:
        raise _invalid("Unknown entryFilter.")


def _invalid(message: str) -> RequestRefused:
    return RequestRefused(ErrorCode.invalid_request, message)


def new_ranges(entries: Iterable[AclEntry], metadata_version: int | None) -> str | None:
    """Return a sentence about entries with ranges that Apache Kafka has not obeyed; None for none.

    Args:
        metadata_version: level of the feature; None if it is unknown.
    """
    if metadata_version is not None and metadata_version >= LEVEL_OF_RANGES:
        return None
    named = [
        printable(str(entry))
        for entry in sorted(entries)
        if is_range(entry.host) and range_error(entry.host) is None
    ]
    if not named:
        return None
    return (
        f"access control entries with a range of addresses: {len(named)}. horolog obeys them, and "
        f"Apache Kafka did not below metadata.version {LEVEL_OF_RANGES}: "
        f"{listed(named, _MOST_NAMED)}"
    )
