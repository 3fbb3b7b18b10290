"""Lookups of offsets by time (ListOffsets), by create time or append time."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from horolog.client.asking import Ask
from horolog.client.brokers import Brokers
from horolog.client.deadline import Deadline
from horolog.client.link import Link
from horolog.client.metadata import by_topic, refuse
from horolog.client.retrying import RetriedCalls
from horolog.errors import ErrorCode, RequestRefused
from horolog.offsets import OffsetRange, TimeBlock, TopicPartition
from horolog.record.timestamps import RecordClock, TimeRange
from horolog.wire.api import ApiKey
from horolog.wire.features import APPEND_TIME, BY_APPEND_TIME, BY_CREATE_TIME, UNKNOWN_TIME
from horolog.wire.questions import (
    TIME_BLOCKS,
    TIME_RANGES,
    AskTimeBlocks,
    AskTimeRanges,
    RangeClock,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
# Each special target came with a version of its own: KIP-734, 405, 1005, 1023.
_FIRST_VERSION: Final = {MAX_TIMESTAMP: 7, -4: 8, -5: 9, -6: 11}


class FoundOffset(NamedTuple):
    """Offset, time of its record (-1 at the end of the log), and leader epoch."""

    offset: int
    timestamp: int
    leader_epoch: int | None


class FoundRecord(NamedTuple):
    """First record at or after a time, by create time or append time."""

    offset: int
    ms: int | None
    """Time of the record. None if its append time is unknown; earlier records are older."""
    leader_epoch: int | None


class Offsets(RetriedCalls):
    """Lookups at the leaders of partitions."""

    def __init__(self, brokers: Brokers) -> None:
        super().__init__(brokers)
        self._ask = Ask(brokers)

    def list(
        self,
        targets: Mapping[TopicPartition, int],
        *,
        read_committed: bool = False,
        may_lack_times: bool = False,
    ) -> dict[TopicPartition, FoundOffset | None]:
        """Return the first offset with a record at or after a time, for each partition.

        Targets are milliseconds, or `EARLIEST`, `LATEST` or `MAX_TIMESTAMP`. The result is None
        for a partition without a matching record. With `may_lack_times` it is also None for a
        partition that stores format v0, in which brokers do not search for times
        (UNSUPPORTED_FOR_MESSAGE_FORMAT).
        """
        return self._list_offsets(targets, int(read_committed), may_lack_times=may_lack_times)

    def none_before(
        self, from_ms: int, partitions: Collection[TopicPartition], *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Return an offset per partition before which all records are earlier than a time.

        Partitions in which all records are earlier are left out. The offset is 0 if brokers cannot
        tell: for times before 1970, which Kafka's requests do not allow, and in format v0.
        """
        if from_ms < 0:
            return dict.fromkeys(partitions, 0)
        found = self.list(
            dict.fromkeys(partitions, from_ms), read_committed=read_committed, may_lack_times=True
        )
        starts = {partition: answer.offset for partition, answer in found.items() if answer}
        # Kafka may have looked into a segment without times and no further. Only the largest time
        # of a partition proves that nothing is at or after the time.
        unproven = [partition for partition in partitions if partition not in starts]
        for partition, largest in self.largest(unproven, read_committed=read_committed).items():
            if largest is None or largest.timestamp >= from_ms:
                starts[partition] = 0
        return starts

    def largest(
        self, partitions: Collection[TopicPartition], *, read_committed: bool = False
    ) -> dict[TopicPartition, FoundOffset | None]:
        """Return the record with the largest time of each partition; None if there is none.

        Unknown it is in format v0, and at brokers before Kafka 3.0 and some others (KIP-734).
        """
        try:
            return self.list(
                dict.fromkeys(partitions, MAX_TIMESTAMP),
                read_committed=read_committed,
                may_lack_times=True,
            )
        except RequestRefused as error:
            if error.code != ErrorCode.unsupported_version:
                raise
            return dict.fromkeys(partitions)

    def find_records(
        self,
        times: Mapping[TopicPartition, int],
        clock: RecordClock,
        *,
        read_committed: bool = False,
        may_lack_times: bool = False,
    ) -> dict[TopicPartition, FoundRecord | None]:
        """Return the first record at or after a time, by one clock, for each partition.

        Times are milliseconds and may be before 1970; no value has a special meaning. Format v0 is
        treated like in `list`. The result is None for a partition without a matching record.

        Raises:
            RequestRefused: the broker keeps no append times (Apache Kafka), or refuses a partition.
        """
        level = int(read_committed) + (
            BY_APPEND_TIME if clock is RecordClock.APPEND else BY_CREATE_TIME
        )
        return {
            tp: None
            if found is None
            else FoundRecord(
                found.offset,
                None if found.timestamp == UNKNOWN_TIME else found.timestamp,
                found.leader_epoch,
            )
            for tp, found in self._list_offsets(
                times, level, lowest=2, may_lack_times=may_lack_times
            ).items()
        }

    def time_ranges(
        self,
        where: Mapping[TopicPartition, tuple[int, int]],
        times: TimeRange,
    ) -> dict[TopicPartition, Sequence[OffsetRange] | None]:
        """Return the ranges of offsets that may contain records of a time, in order.

        In one request to each leader, and to all at a time.

        Args:
            where: for each partition the first offset, and the offset to stop before.
            times: the range of times, and the clock of records.

        Returns:
            None of a partition whose broker does not know (Apache Kafka's): every offset may.
        """
        clock = RangeClock.RECORD_OR_NONE if times.with_untimed else RangeClock.RECORD
        if times.of_append:
            clock = RangeClock.APPEND
        asks = {
            each: AskTimeRanges(each[1], clock, times.first_ms, times.last_ms, start, end)
            for each, (start, end) in where.items()
            if start < end
        }
        found: dict[TopicPartition, Sequence[OffsetRange] | None] = dict.fromkeys(where, ())
        for each, answer in self._ask.many(TIME_RANGES, asks).items():
            found[each] = None if answer is None else answer.ranges
        return found

    def time_blocks(
        self, where: Mapping[TopicPartition, tuple[int, int]], clock: RecordClock
    ) -> dict[TopicPartition, Sequence[TimeBlock] | None]:
        """The blocks of partitions with the earliest time of each, in order.

        In one request to each leader, and to all at a time.

        Args:
            where: for each partition where to begin and where to stop.
            clock: the clock of the times.

        Returns:
            None of a partition whose broker does not know (Apache Kafka's).
        """
        by_clock = RangeClock.APPEND if clock is RecordClock.APPEND else RangeClock.RECORD
        asks = {
            partition: AskTimeBlocks(partition[1], by_clock, start, end)
            for partition, (start, end) in where.items()
            if start < end
        }
        found: dict[TopicPartition, Sequence[TimeBlock] | None] = dict.fromkeys(where, ())
        for partition, answer in self._ask.many(TIME_BLOCKS, asks).items():
            found[partition] = None if answer is None else answer.blocks
        return found

    def _list_offsets(
        self,
        targets: Mapping[TopicPartition, int],
        level: int,
        *,
        lowest: int = 1,
        may_lack_times: bool = False,
    ) -> dict[TopicPartition, FoundOffset | None]:
        found: dict[TopicPartition, FoundOffset | None] = {}

        def attempt(deadline: Deadline) -> None:
            missing = [at for at in targets if at not in found]
            for leader, partitions in self.brokers.by_leader(missing, deadline).items():
                if lowest > 1:
                    require_append_times(leader)
                failures = []
                asked = {at: targets[at] for at in partitions}
                answers = list_offsets_at(leader, asked, deadline, level=level, lowest=lowest)
                for at, answer in answers.items():
                    is_unknown = answer.error_code == ErrorCode.unsupported_for_message_format
                    if may_lack_times and is_unknown:
                        found[at] = None
                    elif answer.error_code == ErrorCode.none:
                        found[at] = _found_offset(answer)
                    else:
                        failures.append((answer.error_code, "offsets of {}-{}".format(*at)))
                if failures:
                    refuse(*failures[0])

        self._persist(attempt)
        for topic, partition in targets.keys() - found.keys():
            what = f"offsets of {topic}-{partition}"
            refuse(ErrorCode.unknown_server_error, what, "the answer does not mention it")
        return {at: found[at] for at in targets}

    def has_append_times(self) -> bool:
        """Return True if the cluster keeps append times of records (Apache Kafka does not)."""
        return self._persist(lambda deadline: APPEND_TIME in self.brokers.any(deadline).features)


def list_offsets_at(
    leader: Link,
    targets: Mapping[TopicPartition, int],
    deadline: Deadline,
    *,
    level: int = 0,
    lowest: int = 1,
    epochs: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, Any]:
    """Return the response of a leader about each partition; nothing of those that it omits.

    Args:
        targets: the time, or the special target, of each partition.
        level: isolation level.
        lowest: least version of the request.
        epochs: the leader epoch of each partition, which the broker then checks.
    """
    if lowest == 1:
        lowest = max(_FIRST_VERSION.get(target, 1) for target in targets.values())
    request = list_offsets_request(targets, deadline.left_ms(), level=level, epochs=epochs)
    body = leader.ask(ApiKey.LIST_OFFSETS, request, deadline, lowest=lowest)
    return listed_offsets(body, targets)


def list_offsets_request(
    targets: Mapping[TopicPartition, int],
    timeout_ms: int,
    *,
    level: int = 0,
    epochs: Mapping[TopicPartition, int] | None = None,
    replica_id: int = -1,
) -> dict[str, Any]:
    """Return a request for the offsets of times or special targets; see `list_offsets_at`.

    Args:
        replica_id: node id of a replica, which is told the end of the log.
    """
    topics = [
        {
            "name": name,
            "partitions": [
                {
                    "partition_index": number,
                    "current_leader_epoch": -1 if epochs is None else epochs[name, number],
                    "timestamp": targets[name, number],
                }
                for number in numbers
            ],
        }
        for name, numbers in by_topic(targets).items()
    ]
    return {
        "replica_id": replica_id,
        "isolation_level": level,
        "topics": topics,
        "timeout_ms": timeout_ms,
    }


def listed_offsets(body: Any, targets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
    """Return what a response says of each partition that it was asked about."""
    answers: dict[TopicPartition, Any] = {}
    for topic in body.topics:
        for it in topic.partitions:
            if (partition := (topic.name, it.partition_index)) in targets:
                answers.setdefault(partition, it)
    return answers


def _found_offset(it: Any) -> FoundOffset | None:
    if it.offset < 0:
        return None
    epoch = getattr(it, "leader_epoch", -1)
    return FoundOffset(it.offset, it.timestamp, None if epoch < 0 else epoch)


def require_append_times(link: Link) -> None:
    """Raise an error if a broker keeps no append times.

    Raises:
        RequestRefused: it keeps no append times.
    """
    if APPEND_TIME not in link.features:
        raise RequestRefused(
            ErrorCode.unsupported_version,
            f"the broker at {link.connection.address} keeps no append times of records: Apache "
            "Kafka does not, and horolog does where it announces the feature horolog.append.time",
        )
