"""Broker that runs on a thread of its own."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from horolog.broker.faults import Faults
from horolog.broker.service import Service
from horolog.clock import ManualClock
from horolog.config import Endpoint, Settings
from horolog.testing.failures import Failures

T = TypeVar("T")

TIMEOUT_S: Final = 60.0
"""Longest time of a call."""


class ServiceThread:
    """Thread with a running broker, from its creation until `end`."""

    def __init__(self, settings: Settings, clock: ManualClock, faults: Faults) -> None:
        """Start the broker, and wait until it accepts connections.

        Raises:
            Misconfigured: a directory, a port or a setting that cannot be used.
            StorageFailed: the disk refused.
        """
        self._settings = settings
        self._clock = clock
        self._faults = faults
        self._bound: Future[Endpoint] = Future()
        self._ended: Future[None] = Future()
        self._clean = True
        # A daemon: a test that forgets to stop its broker does not keep the process.
        self._thread = threading.Thread(target=self._run, name="horolog-broker", daemon=True)
        self._thread.start()
        try:
            self.endpoint = self._bound.result()
        except Exception:
            self._thread.join()
            raise
        clock.watch(self._catch_up)

    def call(self, make: Callable[[Service], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the broker's thread, and return its result.

        Raises:
            TimeoutError: it took longer.
        """
        return asyncio.run_coroutine_threadsafe(make(self._service), self._loop).result(TIMEOUT_S)

    def take_failures(self) -> str | None:
        """Return the bugs logged since the last call; None without any."""
        return self._failures.take()

    def end(self, *, clean: bool) -> None:
        """Stop or kill the broker, and wait for the end of the thread."""
        self._clock.unwatch(self._catch_up)
        self._clean = clean
        with suppress(RuntimeError):  # the loop is closed: it has ended by itself, in an error
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()
        self._ended.result()

    def _catch_up(self) -> None:
        """Run the work that is due since a test moved the clock."""
        if threading.current_thread() is not self._thread:
            with suppress(CancelledError):  # it is stopped meanwhile
                self.call(lambda service: service.background_tasks.catch_up())

    def _run(self) -> None:
        self._failures = Failures()
        logger = logging.getLogger("horolog")
        logger.addHandler(self._failures)
        try:
            with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
                runner.run(self._serve())
            self._ended.set_result(None)
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            (self._ended if self._bound.done() else self._bound).set_exception(error)
        finally:
            logger.removeHandler(self._failures)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._failures.on_loop_error)
        self._ending = asyncio.Event()
        # Loading numba would compete with the test for a second. Small data need no kernels.
        self._service = await Service.start(
            self._settings, self._clock, load_kernels=False, faults=self._faults
        )
        self._bound.set_result(self._service.bound[0])
        await self._ending.wait()
        await (self._service.stop() if self._clean else self._service.kill())
