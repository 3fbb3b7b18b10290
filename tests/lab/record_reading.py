"""Records read as commands read them."""

from horolog.client import Client
from horolog.record.timestamps import TimeRange
from horolog.sources.limits import Topics
from horolog.sources.options import ReadOptions
from horolog.sources.records import RecordLog


def offsets_at(client: Client, topic: str, times: TimeRange) -> list[int]:
    """The offsets of a topic's records of these times, as its brokers give them."""
    options = ReadOptions(brokers=client.config, subscription=Topics((topic,)))
    with RecordLog(options, times) as log:
        return [
            record.offset
            for stretch in log.plan(log.partitions).stretches
            for _, records in log.read(stretch)
            for record in records
        ]
