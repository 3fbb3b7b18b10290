"""Calls in the source that a test lets fail, or notes: of files, clients, logs and other parts."""

import errno
import os
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

import pytest

from horolog.broker import LocalMarkers
from horolog.errors import StorageFailed
from horolog.storage import Files


def failing(
    patch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    error: BaseException,
    *,
    when: Callable[..., bool] = lambda *_, **__: True,
) -> None:
    """Let a method raise an error, in calls for whose arguments `when` is true."""
    plain = getattr(owner, name)

    def fails(*args: Any, **named: Any) -> Any:
        if when(*args, **named):
            raise error
        return plain(*args, **named)

    async def fails_when_awaited(*args: Any, **named: Any) -> Any:
        return await fails(*args, **named)

    patch.setattr(owner, name, fails_when_awaited if iscoroutinefunction(plain) else fails)


def late_markers(patch: pytest.MonkeyPatch) -> None:
    """Let brokers in this process write no markers of transactions for a second or two."""
    refused: list[object] = []

    def is_refused(markers: LocalMarkers, partition: object, ended: object) -> bool:
        refused.append(partition)
        return len(refused) < 9

    failing(patch, LocalMarkers, "end", StorageFailed("the disk is full"), when=is_refused)


def full_disk(patch: pytest.MonkeyPatch, name: str = "os_pwritev") -> None:
    """Let a system call of all files fail for want of space."""
    failing(patch, Files, name, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def noted_calls(
    patch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    note: Callable[..., Any] = lambda *args, **_: args,
) -> list[Any]:
    """Return a list that grows by what `note` gives for the arguments of each call of a method."""
    plain, noted = getattr(owner, name), list[Any]()

    def noting(*args: Any, **named: Any) -> Any:
        noted.append(note(*args, **named))
        return plain(*args, **named)

    patch.setattr(owner, name, noting)
    return noted


def noted_results(
    patch: pytest.MonkeyPatch, owner: Any, name: str, note: Callable[[Any], Any]
) -> list[Any]:
    """Return a list that grows by what `note` gives for the result of each call of a method."""
    plain, noted = getattr(owner, name), list[Any]()

    def noting(*args: Any, **named: Any) -> Any:
        result = plain(*args, **named)
        noted.append(note(result))
        return result

    patch.setattr(owner, name, noting)
    return noted
