"""Coroutines that start without a task, and get a task only when they have to wait.

    try:
        awaited = begun.send(None)
    except StopIteration as done:
        ...  # done.value is the result
    else:
        task = loop.create_task(rest_of(begun, awaited))

A task costs more than most of what is begun so.
"""

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any, TypeVar, cast

from horolog.network.peer import Peer

T = TypeVar("T")


async def rest_of(begun: Coroutine[Any, Any, T], awaited: Any) -> T:
    """Finish a coroutine as `resumed` does, in a form that a task accepts (Python 3.12)."""
    return await resumed(begun, awaited)


@coroutine
def resumed(begun: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
    """Finish a coroutine that was started and waits for `awaited`."""
    while True:
        step: Callable[[], Any]
        try:
            sent = yield awaited
        except BaseException as error:  # noqa: BLE001 - handed to the coroutine
            step = partial(begun.throw, error)
        else:
            step = partial(begun.send, sent)
        try:
            awaited = step()
        except StopIteration as done:
            return cast(T, done.value)


async def timed(peer: Peer, begun: Coroutine[Any, Any, T]) -> T:
    """Finish a coroutine, and count the time of each of its steps as used by a client."""
    return await _timed(peer, begun)


@coroutine
def _timed(peer: Peer, begun: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    step: Callable[[], Any] = partial(begun.send, None)
    while True:
        peer.begin_step()
        try:
            awaited = step()
        except StopIteration as done:
            return cast(T, done.value)
        finally:
            peer.end_step()
        try:
            sent = yield awaited
        except BaseException as error:  # noqa: BLE001 - handed to the coroutine
            step = partial(begun.throw, error)
        else:
            step = partial(begun.send, sent)
