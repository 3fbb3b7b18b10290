"""Ids for producers that want to be idempotent: each given once, ever.

They come from blocks that are reserved on disk before the first id of one is given, so
a kill loses the rest of a block and never repeats an id; and they lie above every id
that is found in adopted logs.

They begin far above those of any Apache Kafka, which counts from 0: when it opens a log
of ours it does not know which ids were given here, and a producer that it gave one of
them would have a first batch taken for a repeated one, and lost.
"""

import asyncio
from typing import Final

from horolog.broker.metadata_thread import MetadataThread
from horolog.metadata.store import MetadataStore

BLOCK: Final = 1000
FIRST: Final = 1 << 52  # and still a whole number where a client keeps it as a double


class ProducerIds:
    """The block in use. For the event loop's thread only."""

    def __init__(self, metadata: MetadataThread, store: MetadataStore, at_least: int) -> None:
        self._metadata = metadata
        self._store = store
        self._at_least = max(at_least, FIRST)
        self._next = self._end = 0
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """An id that nobody has had.

        Raises:
            StorageFailed: no block could be reserved.
        """
        async with self._lock:
            if self._next == self._end:
                self._next = await self._metadata.run(
                    self._store.reserve_producer_ids, BLOCK, self._at_least
                )
                self._end = self._next + BLOCK
            self._next += 1
            return self._next - 1
