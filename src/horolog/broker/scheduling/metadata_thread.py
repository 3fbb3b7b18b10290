"""Runs the metadata store in its own thread, because changes wait for the disk.

Calls run in order.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from horolog.errors import StorageFailed
from horolog.metadata.store import MetadataStore

_LOG = logging.getLogger(__name__)

WARNING_INTERVAL_S: Final = 60.0

P = ParamSpec("P")
R = TypeVar("R")


class MetadataThread:
    """Runs the calls of the store. For the event loop's thread only."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="horolog-metadata")
        self._next_warning_at = 0.0

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call of the store; it completes even if the caller is cancelled."""
        future = self._loop.run_in_executor(self._executor, lambda: call(*args, **kwargs))
        try:
            return await asyncio.shield(future)
        except StorageFailed as error:
            now = self._loop.time()
            if now >= self._next_warning_at:
                self._next_warning_at = now + WARNING_INTERVAL_S
                _LOG.error("a change of the metadata is refused: %s", error)
            raise

    async def close(self) -> None:
        """Complete pending calls, then close the files."""
        try:
            if self._store.refusal is None:  # else the directory may be another's
                await self.run(self._store.close)
        except StorageFailed as error:
            _LOG.error("not closed cleanly, the next start will recover it: %s", error)
        self._executor.shutdown()
