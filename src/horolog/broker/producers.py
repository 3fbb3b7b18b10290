"""Producer ids for idempotent producers, and the clients that use them.

Allocates producer ids for idempotent producers; an id is never allocated twice.

Ids come from blocks that are reserved on disk before use: a kill loses the rest of a block and
never repeats an id. They are above every id found in adopted logs.

They start far above those of Apache Kafka, which counts from 0. If Kafka opens a log of horolog, it
does not know the ids allocated here; a producer that gets one of them could have its first batch
taken for a duplicate, and lost.

A log keeps producer ids alone (KIP-98). The broker learns the client id with the first batch that a
producer appends to a partition since the log was opened, and forgets it when it stops.
"""

import asyncio
from typing import Final

from horolog.broker.scheduling.metadata_thread import MetadataThread
from horolog.metadata.store import MetadataStore
from horolog.wire.questions import ProducerClient

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


MOST_PRODUCERS: Final = 10_000
"""Limit of known producers. The earliest are forgotten first."""
MOST_CHARACTERS: Final = 249
"""Length to which a client id is cut."""


class ProducerClients:
    """Client ids of a broker's producers. For the event loop's thread only."""

    def __init__(self) -> None:
        self._clients: dict[int, ProducerClient] = {}

    def note(self, producer_id: int, epoch: int, client_id: str) -> None:
        """Note the client of a producer; of several epochs the newest counts."""
        known = self._clients.get(producer_id)
        if known is not None and known.epoch > epoch:
            return
        if known is None and len(self._clients) >= MOST_PRODUCERS:
            del self._clients[next(iter(self._clients))]
        client_id = client_id[:MOST_CHARACTERS]
        self._clients[producer_id] = ProducerClient(producer_id, epoch, client_id)

    def find(self, producer_id: int) -> ProducerClient | None:
        """Return the client of a producer, if known."""
        return self._clients.get(producer_id)
