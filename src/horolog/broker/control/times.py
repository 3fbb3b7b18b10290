"""What is known of the times of a partition's records without reading one."""

from horolog.broker.broker import Broker
from horolog.network.peer import Peer
from horolog.wire.questions import AskTimes, PartitionTimes


async def describe_times(broker: Broker, peer: Peer, topic: str, ask: AskTimes) -> PartitionTimes:
    """What the block maps of a partition add up to, and what was counted when it was appended.

    Raises:
        RequestRefused: there is no such partition.
        StorageFailed: the disk refused.
    """
    partition = broker.partition(topic, ask.partition)
    appended, log = partition.counts, partition.log
    times, unknown = await broker.searchers.run(peer, log.time_stats)
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
    )
