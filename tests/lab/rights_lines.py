"""Answers of our model of rights to the lines of tools/golden/rights.py."""

from collections.abc import Iterable, Iterator
from uuid import UUID

from horolog.rights import AclEntry, Rights, host_text
from horolog.wire import AclOperation, AclResource


def answers(lines: Iterable[str]) -> Iterator[str]:
    """Yield an answer to each line, in the words of Kafka."""
    rights = Rights()
    for line in lines:
        told, fields = "ok", line.split("\t")
        match fields:
            case ["new", users, everybody]:
                rights = Rights(users.split(";"), allow_without_entries=everybody == "true")
            case ["add", number, kind, name, pattern, principal, host, operation, permission]:
                entry = AclEntry(
                    *(int(kind), name, int(pattern), principal, host),
                    *(int(operation), int(permission)),
                )
                rights.add(UUID(int=int(number)), entry)
            case ["remove", number]:
                rights.remove(UUID(int=int(number)))
            case ["decide", principal, host, operation, kind, name]:
                asked = AclOperation(int(operation)), AclResource(int(kind))
                told = str(rights.decide(principal, host_text(host), *asked, name))
            case ["any", principal, host, operation, kind]:
                asked = AclOperation(int(operation)), AclResource(int(kind))
                is_allowed = rights.allows_any(principal, host_text(host), *asked)
                told = "ALLOWED" if is_allowed else "DENIED"
            case _:
                raise AssertionError(line)
        yield told
