"""Records read as commands read them."""

from horolog.client import Client
from horolog.record import TimeRange
from horolog.sources import ReadOptions, RecordLog, TopicSelection


def offsets_at(client: Client, topic: str, times: TimeRange) -> list[int]:
    """The offsets of a topic's records of these times, as its brokers give them."""
    options = ReadOptions(brokers=client.config, subscription=TopicSelection((topic,)))
    with RecordLog(options, times) as log:
        return [
            record.offset
            for stretch in log.plan(log.partitions).stretches
            for _, records in log.read(stretch)
            for record in records
        ]
