"""Counters of answered requests, which no log can reproduce later, and of conversions (KIP-32).

Conversions are also logged: the first time and then at most once a minute for each client and
topic, so that operators see when no client needs them any more. Conversions of formats count, in
both directions. A recompression in the same format does not.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from typing import Final, NamedTuple

from horolog.errors import HorologError, RecordsRejected
from horolog.storage.companion.counts import NONE, BlockTotals
from horolog.wire.api import ApiKey

_LOG = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 60.0
_MAX_CLIENTS: Final = 1_000  # names of clients are theirs to choose; the least recent go first

_METRICS: Final = {
    ApiKey.PRODUCE: "ProduceMessageConversionsPerSec",
    ApiKey.FETCH: "FetchMessageConversionsPerSec",
}


class ByTopic:
    """Counts by topic, and for all topics together, deleted ones included."""

    def __init__(self) -> None:
        self.total = 0
        self.topics: Counter[str] = Counter()

    def add(self, topic: str | None, count: int) -> None:
        """Count for a topic; None for a topic that does not exist."""
        self.total += count
        if topic is not None:
            self.topics[topic] += count


class Traffic:
    """Counters of one broker since its start. For the event loop's thread only."""

    def __init__(self) -> None:
        self.bytes_out = ByTopic()
        self.failed_produce = ByTopic()
        self.refused: Counter[tuple[str, str, str]] = Counter()
        """Records for which a batch was refused, by topic, reason and unit (`RecordsRejected`)."""
        self.expired_on_arrival = ByTopic()
        """Records that were older than `retention.ms` when they were appended."""
        self.deleted_bytes: Counter[tuple[str, str]] = Counter()
        """Bytes that retention deleted, by topic and reason (`Because`)."""
        self.converted = {ApiKey.PRODUCE: ByTopic(), ApiKey.FETCH: ByTopic()}
        """Records that were converted to another format (KIP-32)."""
        self.converted_for: Counter[tuple[ApiKey, int]] = Counter()
        """Converted records by API and version of the request."""
        self.deleted = NONE
        """Counts of appends to partitions that were deleted since."""
        self.deleted_replicated_bytes = 0
        """Bytes that replicas of deleted partitions have appended."""
        self.replication_bytes_out = 0
        """Bytes of records in responses to replicas."""

    def refuse(self, topic: str | None, error: HorologError) -> None:
        """Count a refused batch; the topic is None if it does not exist."""
        self.failed_produce.add(topic, 1)
        if topic is not None and isinstance(error, RecordsRejected):
            for kind in error.kinds:
                self.refused[topic, *kind] += 1

    def convert(self, api: ApiKey, version: int, topic: str, records: int) -> None:
        """Count records that were converted for a request."""
        self.converted[api].add(topic, records)
        self.converted_for[api, version] += records

    def forget(self, topic: str, appended: BlockTotals) -> None:
        """Drop the counts of a deleted topic; `appended` goes to the total."""
        self.deleted = self.deleted.plus(appended)
        for counter in (
            self.bytes_out,
            self.failed_produce,
            self.expired_on_arrival,
            *self.converted.values(),
        ):
            counter.topics.pop(topic, None)
        for refused in [key for key in self.refused if key[0] == topic]:
            del self.refused[refused]
        for deleted in [key for key in self.deleted_bytes if key[0] == topic]:
            del self.deleted_bytes[deleted]


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
