"""Runs the metadata store in its own thread, because a change waits for the disk.

Calls run in order. Changes of groups and offsets are batched: those that arrive during a write go
into the next one.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeAlias, TypeVar

from horolog.buffers import Buffer
from horolog.errors import StorageFailed
from horolog.groups.rows import GroupChange, Outcomes
from horolog.metadata.group_file import GroupFile
from horolog.metadata.store import MetadataStore
from horolog.metadata.transaction_file import TransactionFile

_LOG = logging.getLogger(__name__)

WARNING_INTERVAL_S: Final = 60.0

P = ParamSpec("P")
R = TypeVar("R")
"""The error or None of each change."""
Gathered: TypeAlias = "list[tuple[Sequence[GroupChange], asyncio.Future[Outcomes]]]"


class MetadataThread:
    """Runs the calls of the store. For the event loop's thread only."""

    def __init__(
        self, store: MetadataStore, groups: GroupFile, transactions: TransactionFile
    ) -> None:
        self._store = store
        self._groups = groups
        self._transactions = transactions
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="horolog-metadata")
        self._gathered: Gathered = []
        self._writing: asyncio.Future[Outcomes] | None = None
        self._next_warning_at = 0.0

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call of the store; it completes even if the caller is cancelled."""
        future = self._loop.run_in_executor(self._executor, lambda: call(*args, **kwargs))
        try:
            return await asyncio.shield(future)
        except StorageFailed as error:
            self._warn(error)
            raise

    def _warn(self, error: StorageFailed) -> None:
        """Log that the disk refuses changes, at most once a minute."""
        now = self._loop.time()
        if now >= self._next_warning_at:
            self._next_warning_at = now + WARNING_INTERVAL_S
            _LOG.error("a change of the metadata is refused: %s", error)

    @property
    def is_ready(self) -> bool:
        """See `GroupStore`: the file of groups needs no preparation."""
        return True

    async def ready(self) -> None:
        """See `GroupStore`."""

    def write_groups(self, changes: Sequence[GroupChange]) -> "asyncio.Future[Outcomes]":
        """Write changes in order; return the error or None of each."""
        done: asyncio.Future[Outcomes] = self._loop.create_future()
        self._gathered.append((changes, done))
        if self._writing is None:
            self._write_gathered()
        return done

    def write_records(self, group_id: str, records: Buffer, count: int, now_ms: int) -> bool:
        """See `GroupStore`: only a thread writes to the file."""
        return False

    def _write_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        self._writing = self._loop.run_in_executor(
            self._executor,
            self._write_groups,
            [change for changes, _ in gathered for change in changes],
        )
        self._writing.add_done_callback(lambda written: self._on_written(gathered, written))

    def _write_groups(self, changes: Sequence[GroupChange]) -> Outcomes:
        refusal = self._store.refusal
        if refusal is not None:
            return [StorageFailed(refusal)] * len(changes)
        return self._groups.write_groups(changes)

    def _on_written(self, gathered: Gathered, written: "asyncio.Future[Outcomes]") -> None:
        self._writing = None
        if self._gathered:
            self._write_gathered()
        outcomes = iter(written.result())
        for changes, done in gathered:
            done.set_result([next(outcomes) for _ in changes])

    async def close(self) -> None:
        """Complete pending calls, then close the files."""
        while self._writing is not None:
            await asyncio.wait((self._writing,))
        for close in (self._groups.close, self._transactions.close, self._store.close):
            try:
                if self._store.refusal is None:  # else the directory may be another's
                    await self.run(close)
            except StorageFailed as error:
                _LOG.error("not closed cleanly, the next start will recover it: %s", error)
        self._executor.shutdown()
