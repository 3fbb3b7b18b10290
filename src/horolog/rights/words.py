"""Access control entries as people write them: `read topic:clicks`."""

from enum import IntEnum
from typing import TypeVar

from horolog.errors import Misconfigured
from horolog.rights.entries import CLUSTER_NAME, WILDCARD, AclEntry
from horolog.wire.acl import AclOperation, AclPattern, AclPermission, AclResource

__all__ = ["entry_of", "resource_of", "right_of"]

NumberT = TypeVar("NumberT", bound=IntEnum)


def entry_of(
    principal: str,
    operation: str,
    on: str,
    host: str = WILDCARD,
    *,
    deny: bool = False,
    prefixed: bool = False,
) -> AclEntry:
    """Return an entry, as `User:alice`, `read` and `topic:clicks`.

    Raises:
        Misconfigured: there is no such operation, kind of a resource, or principal.
    """
    kind, name = resource_of(on)
    if ":" not in principal:
        raise Misconfigured(f"{principal} is no principal; write User:{principal}")
    return AclEntry(
        kind,
        name,
        AclPattern.PREFIXED if prefixed else AclPattern.LITERAL,
        principal,
        host,
        _number(AclOperation, operation, "operation"),
        AclPermission.DENY if deny else AclPermission.ALLOW,
    )


def right_of(user: str, text: str) -> AclEntry:
    """Return an entry of a user: `read topic:clicks`, `deny read topic:clicks`.

    A name that ends with `*` stands for all that begin so, `*` alone for all.

    Raises:
        Misconfigured: it has another form.
    """
    words = text.split()
    deny = words[:1] == ["deny"]
    words = words[deny:]
    if len(words) != 2:
        raise Misconfigured(f"{text!r} is no right; write one as read topic:clicks")
    operation, on = words
    prefixed = on.endswith("*") and not on.endswith(":*")
    on = on[:-1] if prefixed else on
    return entry_of(f"User:{user}", operation, on, deny=deny, prefixed=prefixed)


def resource_of(text: str) -> tuple[AclResource, str]:
    """Return the kind and the name of a resource, as `topic:clicks` or `cluster`.

    Raises:
        Misconfigured: there is no such kind, or the name is missing.
    """
    kind, colon, name = text.partition(":")
    number = _number(AclResource, kind, "kind of a resource, as in KIND:NAME")
    if number is AclResource.CLUSTER:
        return number, name or CLUSTER_NAME
    if not colon or not name:
        raise Misconfigured(f"{text}: give the name as well, as {kind}:NAME")
    return number, name


def _number(numbers: type[NumberT], text: str, what: str) -> NumberT:
    """Return the member of a name as users write it."""
    name = text.upper().replace("-", "_")
    known = {it.name: it for it in numbers if it.name not in ("UNKNOWN", "ANY", "MATCH")}
    if name not in known:
        names = ", ".join(sorted(it.lower().replace("_", "-") for it in known))
        raise Misconfigured(f"{text} is no {what}; these are: {names}")
    return known[name]
