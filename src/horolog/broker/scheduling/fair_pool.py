"""A thread pool that serves clients round-robin.

In a single FIFO queue one client with a thousand slow jobs would delay all others. Here each owner
(a connection) has its own queue, and a free thread takes one job of the next owner: a job waits for
at most one job of each other owner, however many they have queued.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from time import perf_counter
from typing import Any, Final, TypeVar

from horolog.network.peer import Peer

T = TypeVar("T")


class FairPool:
    """Pool of threads that takes jobs of each owner in turn.

    `submit` may be called by any thread.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = Lock()
        # In order of their turns; only owners with queued jobs.
        self._queues: OrderedDict[Hashable, deque[_Job]] = OrderedDict()

    def submit(self, owner: Hashable, call: Callable[[], T]) -> "Future[T]":
        """Queue a call behind earlier calls of the same owner."""
        future: Future[T] = Future()
        with self._lock:
            self._queues.setdefault(owner, deque()).append((future, call))
        self._threads.submit(self._do_next)  # as many turns as there are jobs
        return future

    async def run(self, owner: Hashable, call: Callable[[], T]) -> T:
        """Run a call in its owner's turn; return its result or raise its error."""
        return await asyncio.wrap_future(self.submit(owner, call))

    def _do_next(self) -> None:
        with self._lock:
            owner, jobs = self._queues.popitem(last=False)
            future, call = jobs.popleft()
            if jobs:
                self._queues[owner] = jobs
        if not future.set_running_or_notify_cancel():
            return
        began = perf_counter()
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - set on the job's future
            _note_time(owner, began)
            future.set_exception(error)
            # The error has this frame, and the frame the future: else only the collector of
            # garbage would free what the job had in hand.
            del future, call, jobs
        else:
            _note_time(owner, began)
            future.set_result(result)

    def shutdown(self) -> None:
        """Accept no more calls, and return when all have ended."""
        self._threads.shutdown()


def _note_time(owner: Hashable, began: float) -> None:
    """Count the time of a job as used by its client, where that is asked for."""
    if isinstance(owner, Peer) and owner.thread_times is not None:
        owner.thread_times.append(perf_counter() - began)


_Job = tuple[Future[Any], Callable[[], Any]]


QUICK_BYTES: Final = 4 << 20
"""Largest decompressed size of a batch that the quick threads validate."""
_QUICK_THREADS: Final = 2


class Checkers:
    """Threads that validate batches of all partitions, if that takes too long for the event loop.

    A batch of some kilobytes can decompress to a gigabyte, seconds of work. So each is first
    validated as far as QUICK_BYTES go, some 15 ms at worst. The few that are larger begin again in
    a thread of their own, which they share.
    """

    def __init__(self) -> None:
        self.quick = FairPool(_QUICK_THREADS, "horolog-check")
        self.slow = FairPool(1, "horolog-check-large")

    def shutdown(self) -> None:
        """Accept no more batches, and return when all validations have ended."""
        self.quick.shutdown()
        self.slow.shutdown()
