"""Thread for blocking network calls, which a stop of the broker does not wait for.

A pool's threads are joined when the interpreter exits: a connect without an answer would hold it
up. This one is a daemon.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from horolog.broker.scheduling.jobs import Failure, Job

T = TypeVar("T")


class BlockingThread:
    """Runs calls one after the other. Created and used on an event loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Run a call; cancelling the future leaves the call running."""
        done: asyncio.Future[T] = self._loop.create_future()
        self._calls.put(Job(call, done))
        return done

    def end(self) -> None:
        """End the thread after the call that runs; later ones never begin."""
        self._calls.put(None)

    def _work(self) -> None:
        while (job := self._calls.get()) is not None:
            outcome: Any
            try:
                outcome = job.call()
            except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
                outcome = Failure(error)
            with suppress(RuntimeError):  # the loop is closed: no caller waits
                self._loop.call_soon_threadsafe(job.settle, outcome)
            del job, outcome  # or the thread would hold them while it waits
