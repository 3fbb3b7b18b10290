"""All access control entries of a cluster, and what they allow (StandardAuthorizer of Kafka).

Order of a decision: a super user may do everything; any entry that denies; any entry that allows;
where no entry of any principal is about the resource, `allow.everyone.if.no.acl.found`; otherwise
it is denied.

Of several entries that allow, Kafka's audit names the last in its order, of those that deny the
first. So entries are kept in that order: the resource's own name, then its prefixes from the
longest on, then the wildcard; of one name by pattern, operation, principal, host and effect.
"""

from bisect import insort
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple
from uuid import UUID

from horolog.errors import CorruptBatch
from horolog.rights.entries import EVERY_PRINCIPAL, WILDCARD, AclEntry, AclFilter
from horolog.rights.hosts import is_in_range, is_range
from horolog.wire.acl import AclOperation, AclPattern, AclPermission, AclResource

__all__ = ["Decision", "Rights"]

_ALL, _ALLOW, _DENY = AclOperation.ALL, AclPermission.ALLOW, AclPermission.DENY
_LITERAL, _PREFIXED = AclPattern.LITERAL, AclPattern.PREFIXED
_ANY_NAME: Final = "hardcode"  # asked for by Kafka before any name of a kind

_IMPLYING: Final = {
    AclOperation.DESCRIBE: frozenset(
        {
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
        }
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset(
        {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}
    ),
}
"""Operations whose permission includes another one; a denial includes nothing."""


class Decision(NamedTuple):
    """Answer to whether somebody may do something."""

    is_allowed: bool
    rule: str
    """Name in Kafka's audit: `SuperUser`, `DefaultAllow`, `DefaultDeny` or `MatchingAcl`."""
    entry: AclEntry | None = None
    """The entry that decided."""

    def __str__(self) -> str:
        return self.rule if self.entry is None else f"{self.rule}(acl={self.entry})"


_SUPER_USER: Final = Decision(True, "SuperUser")
_DEFAULT_ALLOW: Final = Decision(True, "DefaultAllow")
_DEFAULT_DENY: Final = Decision(False, "DefaultDeny")


class Rights:
    """Entries by id, and decisions. For one thread."""

    __slots__ = (
        "_by_id",
        "_default",
        "_lengths",
        "_ordered",
        "_present",
        "generation",
        "super_users",
    )

    def __init__(
        self, super_users: Collection[str] = (), *, allow_without_entries: bool = False
    ) -> None:
        """Begin without entries.

        Args:
            super_users: principals that may do everything (`super.users`).
            allow_without_entries: `allow.everyone.if.no.acl.found`.
        """
        self.super_users = frozenset(super_users)
        self.generation = 0
        """Number of changes. What was decided holds as long as it is the same."""
        self._default = _DEFAULT_ALLOW if allow_without_entries else _DEFAULT_DENY
        self._by_id: dict[UUID, AclEntry] = {}
        self._present: Counter[AclEntry] = Counter()
        self._ordered: dict[tuple[int, int, str], list[tuple[_Order, AclEntry]]] = {}
        """Entries by kind, pattern and name of the resource."""
        self._lengths: dict[int, Counter[int]] = {}
        """Lengths of prefixes by the kind of resource, each with the number of entries."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, entry: AclEntry) -> bool:
        return entry in self._present

    def get(self, entry_id: UUID) -> AclEntry | None:
        """Return the entry of an id; None if there is none."""
        return self._by_id.get(entry_id)

    def add(self, entry_id: UUID, entry: AclEntry) -> None:
        """Add an entry, or replace the one of that id."""
        if entry_id in self._by_id:
            self.remove(entry_id)
        self._by_id[entry_id] = entry
        self._present[entry] += 1
        key = entry.resource_type, entry.pattern, entry.name
        insort(self._ordered.setdefault(key, []), (_order(entry), entry))
        if entry.pattern == _PREFIXED:
            self._lengths.setdefault(entry.resource_type, Counter())[len(entry.name)] += 1
        self.generation += 1

    def remove(self, entry_id: UUID) -> None:
        """Remove an entry.

        Raises:
            CorruptBatch: there is none of that id.
        """
        entry = self._by_id.pop(entry_id, None)
        if entry is None:
            raise CorruptBatch(f"there is no access control entry with the id {entry_id}")
        self._present[entry] -= 1
        if not self._present[entry]:
            del self._present[entry]
        key = entry.resource_type, entry.pattern, entry.name
        entries = self._ordered[key]
        entries.remove((_order(entry), entry))
        if not entries:
            del self._ordered[key]
        if entry.pattern == _PREFIXED:
            lengths = self._lengths[entry.resource_type]
            lengths[len(entry.name)] -= 1
            if not lengths[len(entry.name)]:
                del lengths[len(entry.name)]
        self.generation += 1

    def items(self) -> Iterator[tuple[UUID, AclEntry]]:
        """Yield the entries with their ids, in the order in which they were added."""
        yield from self._by_id.items()

    def found(self, entries: AclFilter) -> Iterator[tuple[UUID, AclEntry]]:
        """Yield the entries that a filter takes, with their ids."""
        return ((entry_id, entry) for entry_id, entry in self.items() if entries.takes(entry))

    def decide(
        self, principal: str, host: str, operation: AclOperation, kind: AclResource, name: str
    ) -> Decision:
        """Decide whether a principal may do something with a resource.

        Args:
            host: the client's address, as `host_text` writes it.
            name: of the resource; never a pattern.
        """
        if principal in self.super_users:
            return _SUPER_USER
        allowing: AclEntry | None = None
        has_entries = False
        for _, entry in self._about(kind, name):
            has_entries = True
            if not _applies(entry, principal, host, operation):
                continue
            if entry.permission != _ALLOW:
                return Decision(False, "MatchingAcl", entry)
            allowing = entry
        if allowing is not None:
            return Decision(True, "MatchingAcl", allowing)
        return _DEFAULT_DENY if has_entries else self._default

    def allows_any(
        self, principal: str, host: str, operation: AclOperation, kind: AclResource
    ) -> bool:
        """Return True if a principal may do something with any resource of a kind.

        A denial of every name ends it. An entry that allows counts unless one that denies the same
        name, or a prefix of it, covers it.
        """
        if self.decide(principal, host, operation, kind, _ANY_NAME).is_allowed:
            return True
        denied: set[tuple[int, str]] = set()
        allowed: list[tuple[int, str]] = []
        for entry in self._by_id.values():
            if (
                entry.resource_type != kind
                or entry.operation not in (operation, _ALL)
                or not _is_about(entry, principal, host)
            ):
                continue
            if entry.permission == _DENY:
                if (entry.pattern, entry.name) == (_LITERAL, WILDCARD):
                    return False
                denied.add((entry.pattern, entry.name))
            else:
                allowed.append((entry.pattern, entry.name))
        return any(not _is_covered(pattern, name, denied) for pattern, name in allowed)

    def _about(self, kind: int, name: str) -> Iterator[tuple["_Order", AclEntry]]:
        """Yield the entries about a resource, in Kafka's order."""
        ordered = self._ordered
        yield from ordered.get((kind, _LITERAL, name), ())
        for length in sorted(self._lengths.get(kind, ()), reverse=True):
            if length <= len(name):
                yield from ordered.get((kind, _PREFIXED, name[:length]), ())
        if name != WILDCARD:
            yield from ordered.get((kind, _LITERAL, WILDCARD), ())


_Order = tuple[int, bytes, bytes, int]


def _order(entry: AclEntry) -> _Order:
    """Return the place of an entry among those of one name: Java compares texts by UTF-16."""
    principal, host = (
        text.encode("utf-16-be", "surrogatepass") for text in (entry.principal, entry.host)
    )
    return entry.operation, principal, host, entry.permission


def _is_about(entry: AclEntry, principal: str, host: str) -> bool:
    return entry.principal in (principal, EVERY_PRINCIPAL) and (
        entry.host in (WILDCARD, host) or (is_range(entry.host) and is_in_range(host, entry.host))
    )


def _applies(entry: AclEntry, principal: str, host: str, operation: AclOperation) -> bool:
    if not _is_about(entry, principal, host):
        return False
    if entry.operation in (operation, _ALL):
        return True
    return entry.permission == _ALLOW and entry.operation in _IMPLYING.get(operation, ())


def _is_covered(pattern: int, name: str, denied: set[tuple[int, str]]) -> bool:
    """Return True if what an entry allows is denied by the same name or a prefix of it."""
    if pattern == _LITERAL and (_LITERAL, name) in denied:
        return True
    return any((_PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
