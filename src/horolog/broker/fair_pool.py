"""Threads that take turns among the clients whose work they do.

A queue that is served in order of arrival lets one client with a thousand slow jobs hold up
everybody. Here each owner (a connection) has a queue of its own, and a free thread takes one job
of the owner whose turn it is: whoever asks for little waits for one job of each other owner at
most, however much they have asked for.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")


class FairPool:
    """A pool of threads; `submit` and the threads may meet, all else is the event loop's."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = Lock()
        # First is whose turn it is; nobody is in it without a job.
        self._queues: OrderedDict[Hashable, deque[_Job]] = OrderedDict()

    def submit(self, owner: Hashable, call: Callable[[], T]) -> "Future[T]":
        """Have a call made, after what the same owner has asked for before."""
        future: Future[T] = Future()
        with self._lock:
            self._queues.setdefault(owner, deque()).append((future, call))
        self._threads.submit(self._do_next)  # as many turns as there are jobs
        return future

    async def run(self, owner: Hashable, call: Callable[[], T]) -> T:
        """What a call returns that was made in its turn; raises what it raises."""
        return await asyncio.wrap_future(self.submit(owner, call))

    def _do_next(self) -> None:
        with self._lock:
            owner, jobs = self._queues.popitem(last=False)
            future, call = jobs.popleft()
            if jobs:
                self._queues[owner] = jobs
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - handed to who asked for the job
            future.set_exception(error)
            # The error has this frame, and the frame the future: else only the collector of
            # garbage would free what the job had in hand.
            del future, call, jobs
        else:
            future.set_result(result)

    def shutdown(self) -> None:
        """Take no more, and return when all is done."""
        self._threads.shutdown()


_Job = tuple[Future[Any], Callable[[], Any]]
