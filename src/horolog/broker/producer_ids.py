"""Allocates producer ids for idempotent producers; an id is never allocated twice.

Ids come from blocks that are reserved on disk before use: a kill loses the rest of a block and
never repeats an id. They are above every id found in adopted logs.

They start far above those of Apache Kafka, which counts from 0. If Kafka opens a log of horolog, it
does not know the ids allocated here; a producer that gets one of them could have its first batch
taken for a duplicate, and lost.
"""

import asyncio
from typing import Final

from horolog.broker.scheduling.metadata_thread import MetadataThread
from horolog.metadata.store import MetadataStore

BLOCK: Final = 1000
FIRST_PRODUCER_ID: Final = 1 << 52  # still exact if a client stores it as a double


class ProducerIds:
    """Current block of producer ids. For the event loop's thread only."""

    def __init__(self, metadata: MetadataThread, store: MetadataStore, at_least: int) -> None:
        self._metadata = metadata
        self._store = store
        self._at_least = max(at_least, FIRST_PRODUCER_ID)
        self._next = self._end = 0
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """Allocate an id.

        Raises:
            StorageFailed: the next block could not be reserved.
        """
        async with self._lock:
            if self._next == self._end:
                self._next = await self._metadata.run(
                    self._store.reserve_producer_ids, BLOCK, self._at_least
                )
                self._end = self._next + BLOCK
            self._next += 1
            return self._next - 1

    async def skip_to(self, at_least: int) -> None:
        """Allocate only ids from this one on, also after a restart.

        Raises:
            StorageFailed: that could not be stored.
        """
        async with self._lock:
            await self._metadata.run(self._store.raise_producer_ids, at_least)
            self._at_least = max(self._at_least, at_least)
            if self._next < at_least:
                self._next = self._end = 0
