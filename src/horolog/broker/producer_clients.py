"""Client ids of idempotent producers, by producer id.

A log keeps producer ids alone (KIP-98). The broker learns the rest with the first batch that a
producer appends to a partition since the log was opened, and forgets it when it stops.
"""

from typing import Final

from horolog.wire.questions import ProducerClient

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
