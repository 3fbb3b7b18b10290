"""Coroutines that a cancelled caller waits for.

A change of the metadata is written by a thread, which no cancellation stops, and takes effect in
memory after that. A caller that left in between would leave both different until a restart.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def uncancelled(
    function: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make a cancellation wait for the end of the function; its result or error is dropped."""

    @wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        task = asyncio.ensure_future(function(*args, **kwargs))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.gather(task, return_exceptions=True)
            raise

    return call
