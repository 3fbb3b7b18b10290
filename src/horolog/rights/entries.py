"""Access control entries, and filters of them, with Kafka's numbers (`horolog.wire.acl`)."""

from enum import IntEnum
from typing import Final, NamedTuple

from horolog.wire.acl import AclOperation, AclPattern, AclPermission, AclResource

__all__ = ["CLUSTER_NAME", "EVERY_PRINCIPAL", "WILDCARD", "AclEntry", "AclFilter"]

WILDCARD: Final = "*"
"""Every name of a literal entry, or every host."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a resource of the kind CLUSTER."""
EVERY_PRINCIPAL: Final = "User:*"
"""Principal of entries for everybody, also of another type. `Type:*` of others is a name."""


class AclEntry(NamedTuple):
    """An access control entry. Two that are equal count once."""

    resource_type: int
    """An `AclResource`; another product's log may have numbers that are not known here."""
    name: str
    pattern: int
    principal: str
    """`Type:name`, compared exactly."""
    host: str
    """`*`, an address as Java writes it, or a range of addresses."""
    operation: int
    permission: int

    @property
    def is_denial(self) -> bool:
        """True if it takes a right away."""
        return self.permission == AclPermission.DENY

    def __str__(self) -> str:
        return (
            f"StandardAcl[resourceType={_name(AclResource, self.resource_type)}, "
            f"resourceName={self.name}, patternType={_name(AclPattern, self.pattern)}, "
            f"principal={self.principal}, host={self.host}, "
            f"operation={_name(AclOperation, self.operation)}, "
            f"permissionType={_name(AclPermission, self.permission)}]"
        )


class AclFilter(NamedTuple):
    """Filter of entries. A text that is None, or a number that is ANY, takes all."""

    resource_type: int = AclResource.ANY
    name: str | None = None
    pattern: int = AclPattern.ANY
    """ANY takes both patterns of the name, MATCH all entries that apply to it."""
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission: int = AclPermission.ANY

    def takes(self, entry: AclEntry) -> bool:
        """Return True if the filter takes an entry."""
        return (
            self.resource_type in (AclResource.ANY, entry.resource_type)
            and self._takes_name(entry)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermission.ANY, entry.permission)
        )

    def _takes_name(self, entry: AclEntry) -> bool:
        if self.pattern not in (AclPattern.ANY, AclPattern.MATCH, entry.pattern):
            return False
        if self.name is None or self.name == entry.name:
            return True
        if self.pattern != AclPattern.MATCH:
            return False
        if entry.pattern == AclPattern.PREFIXED:
            return self.name.startswith(entry.name)
        return entry.name == WILDCARD


def _name(numbers: type[IntEnum], number: int) -> str:
    try:
        return numbers(number).name
    except ValueError:
        return "UNKNOWN"
