"""What is known of the times of a partition's records without reading one."""

from horolog.broker.broker import Broker
from horolog.network.peer import Peer
from horolog.record.time_stats import TimeStats
from horolog.storage.logs.readable import ReadableLog
from horolog.storage.logs.view import LogView
from horolog.wire.questions import AskPartition, PartitionTimes


async def describe_times(
    broker: Broker, peer: Peer, topic: str, ask: AskPartition
) -> PartitionTimes:
    """What the block maps of a partition add up to, and what was counted when it was appended.

    Raises:
        RequestRefused: there is no such partition.
        StorageFailed: the disk refused.
    """
    partition = broker.partition(topic, ask.partition)
    appended, log = partition.counts, partition.log
    times, unknown, first, last = await broker.searchers.run(peer, lambda: _known(log))
    return PartitionTimes(
        times.records,
        times.create_min_ms,
        times.create_max_ms,
        times.append_min_ms,
        times.append_max_ms,
        times.out_of_order,
        times.ahead,
        times.untimed,
        times.latencies,
        appended.latencies,
        unknown,
        first,
        last,
    )


def _known(log: ReadableLog) -> tuple[TimeStats, int, int | None, int | None]:
    view = log.look()
    return *view.time_stats(), *_seen_ends(view)


def _seen_ends(view: LogView) -> tuple[int | None, int | None]:
    """When a follower saw the first and the last record of a log, where it is no append time."""
    start, end = view.log_start_offset, view.high_watermark
    found = [
        view.append_times(offset, offset + 1, seen=True)[:1]
        for offset in (start, end - 1)
        if start < end
    ]
    first, last = (each[0].seen_ms if each else None for each in found or ((), ()))
    return first, last
