"""Log bounds of partitions, some of which may have no leader."""

from collections.abc import Sequence

from horolog.errors import ErrorCode, RequestRefused
from horolog.sources.broker_log import BrokerLog
from horolog.sources.file_log import FileLog
from horolog.storage.names import TopicPartition

ServedBounds = dict[TopicPartition, tuple[int, int]]


def served_bounds(
    log: BrokerLog | FileLog, partitions: Sequence[TopicPartition]
) -> tuple[ServedBounds, dict[TopicPartition, str]]:
    """Return the start and end of each log, and a sentence for each partition without a leader.

    Partitions that had no leader when they were listed are not asked for, since a client retries
    such requests until they time out.

    Raises:
        RequestRefused: a broker refuses a partition for good.
        NoAnswer: a broker does not answer.
    """
    leaderless = log.leaderless if isinstance(log, BrokerLog) else frozenset()
    unserved = {
        partition: f"{partition}: {ErrorCode.leader_not_available.name.upper()}"
        for partition in partitions
        if partition in leaderless
    }
    bounds, more = _asked(
        log, [partition for partition in partitions if partition not in leaderless]
    )
    return bounds, unserved | more


def _asked(
    log: BrokerLog | FileLog, partitions: Sequence[TopicPartition]
) -> tuple[ServedBounds, dict[TopicPartition, str]]:
    """Ask for the bounds of partitions; split them in halves where one has lost its leader."""
    try:
        earliest, latest = log.earliest(partitions), log.latest(partitions)
        return {partition: (earliest[partition], latest[partition]) for partition in partitions}, {}
    except RequestRefused as error:
        if not error.code.retriable:
            raise
        if len(partitions) == 1:
            return {}, {partitions[0]: str(error)}
    middle = len(partitions) // 2
    bounds, unserved = _asked(log, partitions[:middle])
    more, too = _asked(log, partitions[middle:])
    return bounds | more, unserved | too
