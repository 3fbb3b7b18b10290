"""Shards of a coordinator: loaded one after the other, served, and unloaded.

Until its shard is loaded a group, or a transactional id, is answered with
COORDINATOR_LOAD_IN_PROGRESS, which clients retry. A partition that cannot be read is tried again
for as long as it takes; the others do not wait for it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from horolog.broker.coordinators.state_topics import StateTopic
from horolog.errors import ErrorCode, RequestRefused, StorageFailed
from horolog.groups.replay import GroupReplay
from horolog.transactions.replay import TransactionReplay

_LOG = logging.getLogger(__name__)

RETRY_S: Final = 0.1
"""First pause before a retry of a failed read; each further pause is doubled."""
MOST_RETRY_S: Final = 5.0


ReplayedT = TypeVar("ReplayedT", GroupReplay, TransactionReplay)


@dataclass(frozen=True, slots=True)
class Shard:
    """A partition of an internal topic in one leader epoch, whose state a coordinator serves."""

    index: int
    epoch: int


class Shards(Generic[ReplayedT]):
    """The shards of one coordinator. For the event loop's thread only."""

    def __init__(
        self,
        log: StateTopic,
        begin: Callable[[], ReplayedT],
        take_over: Callable[[ReplayedT], Awaitable[None]],
    ) -> None:
        """Use all partitions of a topic as shards that are not loaded yet.

        Args:
            begin: makes what takes the batches of one partition.
            take_over: called with it after the last batch; the shard is served once this ends.
        """
        self._log = log
        self._begin: Callable[[], ReplayedT] = begin
        self._take_over: Callable[[ReplayedT], Awaitable[None]] = take_over
        self.unload()

    def unload(self) -> None:
        """Stop serving all shards. The topic's current partitions have to be loaded."""
        count = self._log.count if self._log.exists else 0
        self._left = {index: Shard(index, self._log.epoch(index)) for index in range(count)}
        self._said: dict[int, str] = {}
        self._tried = asyncio.Event()
        if not self._left:
            self._tried.set()

    @property
    def is_loading(self) -> bool:
        """True if a partition is not loaded yet."""
        return bool(self._left)

    def has(self, key: str) -> bool:
        """True if the partition of a key is not loaded yet."""
        return bool(self._left) and self._log.partition_of(key) in self._left

    def check(self, key: str) -> None:
        """Refuse a key whose partition is not loaded yet with COORDINATOR_LOAD_IN_PROGRESS."""
        if self.has(key):
            raise self.in_progress()

    def check_partition(self, index: int) -> None:
        """Refuse a partition that is not loaded yet with COORDINATOR_LOAD_IN_PROGRESS."""
        if index in self._left:
            raise self.in_progress()

    def check_all(self) -> None:
        """Refuse to answer for all keys while a partition is not loaded, with the same error."""
        if self._left:
            raise self.in_progress()

    def in_progress(self) -> RequestRefused:
        """Return COORDINATOR_LOAD_IN_PROGRESS."""
        return RequestRefused(
            ErrorCode.coordinator_load_in_progress, f"{self._log.name} is being loaded"
        )

    async def tried(self) -> None:
        """Wait until each partition is loaded, or its first load has failed."""
        await self._tried.wait()

    async def run(self) -> None:
        """Load all partitions; a partition that cannot be read is retried without a limit."""
        wait_s = RETRY_S
        while self._left:
            for shard in list(self._left.values()):
                index, replayed = shard.index, self._begin()
                try:
                    await self._log.load(index, replayed.take)
                except StorageFailed as error:
                    self._say(index, error)
                    continue
                now = Shard(index, self._log.epoch(index))
                if now != shard:  # led in another epoch since: it is read again
                    self._left[index] = now
                    continue
                await self._take_over(replayed)  # which reads the values
                if replayed.unreadable:
                    _LOG.error(
                        "%s-%d: %d records cannot be read and are left out; the first: %s",
                        self._log.name,
                        index,
                        replayed.unreadable,
                        replayed.reason,
                    )
                self._left.pop(index, None)
            self._tried.set()
            if self._left:
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, MOST_RETRY_S)

    def _say(self, index: int, error: StorageFailed) -> None:
        reason = str(error)
        if self._said.get(index) != reason:
            self._said[index] = reason
            _LOG.error("%s-%d cannot be loaded yet: %s", self._log.name, index, reason)
