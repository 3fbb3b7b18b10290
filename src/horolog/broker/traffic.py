"""Counters of answered requests, which no log can reproduce later."""

from collections import Counter

from horolog.errors import HorologError, RecordsRejected
from horolog.storage.companion.counts import NONE, BlockTotals
from horolog.wire.api import ApiKey


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
        self.converted = {ApiKey.PRODUCE: ByTopic(), ApiKey.FETCH: ByTopic()}
        """Records that were converted to another format (KIP-32)."""
        self.converted_for: Counter[tuple[ApiKey, int]] = Counter()
        """Converted records by API and version of the request."""
        self.deleted = NONE
        """Counts of appends to partitions that were deleted since."""

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
        for each in (self.bytes_out, self.failed_produce, *self.converted.values()):
            each.topics.pop(topic, None)
        for key in [key for key in self.refused if key[0] == topic]:
            del self.refused[key]
