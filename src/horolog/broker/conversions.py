"""Reports clients whose records the broker converts, until no client needs it (KIP-32).

Counted under the names of Kafka's metrics (`Traffic`), and logged: the first time and then at most
once a minute for each client and topic. Conversions of formats count, in both
directions; what is compressed again in the same format does not.
"""

import asyncio
import logging
from collections import OrderedDict
from typing import Final, NamedTuple

from horolog.broker.traffic import Traffic
from horolog.wire.api import ApiKey

__all__ = ["Conversions"]

_LOG = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 60.0
_MAX_CLIENTS: Final = 1_000  # names of clients are theirs to choose; the least recent go first

_METRICS: Final = {
    ApiKey.PRODUCE: "ProduceMessageConversionsPerSec",
    ApiKey.FETCH: "FetchMessageConversionsPerSec",
}


class _Client(NamedTuple):
    api_key: ApiKey
    client_id: str
    host: str
    version: int
    topic: str


class _Seen:
    __slots__ = ("records", "told_at")

    def __init__(self) -> None:
        self.records = 0
        self.told_at = float("-inf")


class Conversions:
    """Conversions of one broker. For the event loop's thread only."""

    def __init__(self, traffic: Traffic) -> None:
        self._loop = asyncio.get_running_loop()
        self._clients: OrderedDict[_Client, _Seen] = OrderedDict()
        self._traffic = traffic

    def note(
        self, api_key: ApiKey, version: int, client_id: str, host: str, topic: str, records: int
    ) -> None:
        """Count records of a topic that were converted for a client's request."""
        self._traffic.convert(api_key, version, topic, records)
        client = _Client(api_key, client_id, host, version, topic)
        seen = self._clients.setdefault(client, _Seen())
        self._clients.move_to_end(client)
        if len(self._clients) > _MAX_CLIENTS:
            self._clients.popitem(last=False)
        seen.records += records
        now = self._loop.time()
        if now - seen.told_at < INTERVAL_SECONDS:
            return
        seen.told_at = now
        _LOG.info(
            "client %r at %s sends %s version %d: %d records of %s were converted for it so far "
            "(%s is %d in total); a client of the release in message.format.version needs no "
            "conversion (KIP-32)",
            client.client_id,
            client.host,
            api_key.title,
            client.version,
            seen.records,
            topic,
            _METRICS[api_key],
            self._traffic.converted[api_key].total,
        )
