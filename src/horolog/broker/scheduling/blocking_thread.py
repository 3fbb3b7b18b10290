"""A thread for blocking calls over the network, which a stop of the broker does not wait for.

A pool's threads are joined when the interpreter exits: a connect that nobody answers would hold it
up. This one is a daemon.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class BlockingThread:
    """Runs calls one after the other. Made and used on an event loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None]
        self._calls = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Run a call; cancelling the future leaves the call running."""
        done: asyncio.Future[T] = self._loop.create_future()
        self._calls.put((call, done))
        return done

    def end(self) -> None:
        """End the thread after the call that runs; later ones never begin."""
        self._calls.put(None)

    def _work(self) -> None:
        while (job := self._calls.get()) is not None:
            call, done = job
            result: Any = None
            error: BaseException | None = None
            try:
                result = call()
            except BaseException as failure:  # noqa: BLE001 - raised where the future is awaited
                error = failure
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(_settle, done, result, error)
            del call, done, result, error, job  # or the thread would hold them while it waits


def _settle(done: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
