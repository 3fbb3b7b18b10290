"""Where the logs of partitions begin and end, when some are not served now."""

from collections.abc import Sequence

from horolog.errors import RequestRefused
from horolog.spark.broker_log import BrokerLog
from horolog.spark.file_log import FileLog
from horolog.storage.names import TopicPartition

Bounds = dict[TopicPartition, tuple[int, int]]


def served_bounds(
    log: BrokerLog | FileLog, partitions: Sequence[TopicPartition]
) -> tuple[Bounds, dict[TopicPartition, str]]:
    """Start and end of each log, and of partitions without a leader the sentence that says so.

    Raises:
        RequestRefused: a broker refuses a partition for good.
        NoAnswer: a broker does not answer.
    """
    try:
        earliest, latest = log.earliest(partitions), log.latest(partitions)
        return {each: (earliest[each], latest[each]) for each in partitions}, {}
    except RequestRefused as error:
        if not error.code.retriable:
            raise
        if len(partitions) == 1:
            return {}, {partitions[0]: str(error)}
    middle = len(partitions) // 2
    bounds, unserved = served_bounds(log, partitions[:middle])
    more, too = served_bounds(log, partitions[middle:])
    return bounds | more, unserved | too
