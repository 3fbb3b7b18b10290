"""Log of changes: who changed rights, users, quotas and settings. It never has a password."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from horolog.broker.dispatch import Request
from horolog.config import Operation, SettingChange, secrets_among
from horolog.errors import ErrorCode, RequestRefused, printable
from horolog.rights.hosts import host_text
from horolog.wire import ResourceType

_CHANGES: Final = logging.getLogger("horolog.broker.changes")
_LONGEST_VALUE: Final = 500
_MOST_CHANGED: Final = 10_000
"""Most entries, quotas or users that a request changes, as in Apache Kafka."""
_VERBS: Final = {Operation.APPEND: "appended to", Operation.SUBTRACT: "subtracted from"}


def check_number(count: int, what: str) -> None:
    """Refuse a request that changes too much at once.

    Raises:
        RequestRefused: it does (44).
    """
    if count > _MOST_CHANGED:
        raise RequestRefused(
            ErrorCode.policy_violation, f"a request may change {_MOST_CHANGED} {what} at most"
        )


async def note_changes(request: Request[Any], lines: Iterable[str]) -> None:
    """Log what a request has changed, a line for each change."""
    who = f"{request.peer.principal} from /{host_text(request.peer.host)}"
    for line in lines:
        # Not `checkpoint`: a client that has gone has changed it all the same.
        await request.pause()
        _CHANGES.info("%s", printable(f"{who} {line}"))


def setting_lines(kind: int, name: str, changes: Sequence[SettingChange]) -> list[str]:
    """Return lines about changed settings of a resource; values of passwords are left out."""
    about = f"{ResourceType(kind).name.lower().replace('_', ' ')} {name or '<default>'}"
    hidden = set(secrets_among(change.name for change in changes))
    lines = []
    for setting, operation, value in changes:
        shown = "a password" if setting in hidden else repr((value or "")[:_LONGEST_VALUE])
        if operation is Operation.DELETE:
            lines.append(f"removed {setting} of {about}")
        elif operation is Operation.SET:
            lines.append(f"set {setting} of {about} to {shown}")
        else:
            lines.append(f"{_VERBS[operation]} {setting} of {about} {shown}")
    return lines
