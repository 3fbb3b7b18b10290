"""Printing of the records that `horolog consume` reads."""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from typing import NamedTuple

from horolog.cli.screen import progress, say
from horolog.cli.showing import Format, line_maker
from horolog.errors import Damaged, StorageFailed
from horolog.record.timestamps import RecordClock
from horolog.sources.ordered import WithoutTime
from horolog.sources.ordered_records import OrderedRecords
from horolog.sources.plan import Stretch
from horolog.sources.records import ReadRecord, RecordLog
from horolog.storage.names import TopicPartition


class Ordering(NamedTuple):
    """The order of the records that are printed."""

    clock: RecordClock
    memory: int
    without_time: WithoutTime
    lateness_ms: int | None
    is_complete: bool
    """True if the records of a log that is followed come in their exact order."""
    until_ms: int | None = None
    """Time up to which the log was complete before its ends were looked at."""


class Output:
    """Prints records as lines on standard output, up to a limit."""

    def __init__(
        self, shape: Format, zone: tzinfo, clock: RecordClock, max_messages: int | None
    ) -> None:
        self.count = 0
        self.names_topic = False
        self._shape = shape
        self._zone = zone
        self._shows_append = clock is RecordClock.APPEND
        self._max = max_messages
        self._makers: dict[str, Callable[[ReadRecord], bytes]] = {}

    @property
    def is_full(self) -> bool:
        """True if the limit of lines is reached."""
        return self.count == self._max

    def write(self, topic: str, read: ReadRecord) -> bool:
        """Print a record; True if more records may follow."""
        make = self._makers.get(topic)
        if make is None:
            make = line_maker(self._shape, topic, self._zone, shows_append=self._shows_append)
            self._makers[topic] = make
        prefix = b""
        if self.names_topic and self._shape == "text":
            prefix = f"{topic}\t".encode()
        sys.stdout.buffer.write(prefix + make(read))
        self.count += 1
        return not self.is_full


def print_records(log: RecordLog, stretches: Sequence[Stretch], what: str, output: Output) -> bool:
    """Print the records of stretches; True if a partition is damaged."""
    total = sum(stretch.end - stretch.start for stretch in stretches)
    done, damaged = 0, set[TopicPartition]()
    with progress(f"reading {what}", total, "offsets") as advance:
        for stretch in stretches:
            try:
                coming = () if stretch.partition in damaged else log.read(stretch)
                for position, records in coming:
                    for read in records:
                        if not output.write(stretch.partition.topic, read):
                            return bool(damaged)
                    advance(done + max(0, position - stretch.start))
            except (Damaged, StorageFailed) as error:
                damaged.add(stretch.partition)
                say(str(error))
            done += stretch.end - stretch.start
    return bool(damaged)


def print_in_order(
    log: RecordLog,
    stretches: Sequence[Stretch],
    ends: Mapping[TopicPartition, int] | None,
    what: str,
    output: Output,
    ordering: Ordering,
) -> bool:
    """Print the records of stretches, and what follows `ends`, in order; True if one is damaged."""
    damaged: list[TopicPartition] = []

    def on_damage(partition: TopicPartition, error: Exception) -> None:
        damaged.append(partition)
        say(str(error))

    total = sum(stretch.end - stretch.start for stretch in stretches)
    with progress(f"reading {what}", total, "offsets") as advance:
        ordered = OrderedRecords(
            log,
            ordering.clock,
            memory=ordering.memory,
            without_time=ordering.without_time,
            on_damage=on_damage,
            on_looked=advance,
        )
        for partition, read in ordered.read(
            stretches, lateness_ms=ordering.lateness_ms, until_ms=ordering.until_ms
        ):
            if not output.write(partition.topic, read):
                return bool(damaged)
            advance(ordered.done)
    if ends is None or output.is_full:
        return bool(damaged)
    sys.stdout.buffer.flush()
    if ordering.lateness_ms is None:
        coming = ordered.follow_complete(log.follow_complete(ends))
    else:
        coming = ordered.follow(log.follow(ends), ordering.lateness_ms)
    try:
        for partition, read in coming:
            wants_more = output.write(partition.topic, read)
            sys.stdout.buffer.flush()
            if not wants_more:
                break
    except KeyboardInterrupt:
        for partition, read in ordered.release(None):
            if not output.write(partition.topic, read):
                break
        raise
    finally:
        if ordered.late:
            why = "what was complete was withdrawn" if ordering.is_complete else "raise --lateness"
            say(f"{ordered.late:,} records came too late for their place: {why}")
    return bool(damaged)


def print_new(log: RecordLog, positions: Mapping[TopicPartition, int], output: Output) -> None:
    """Print the records that are appended at or behind some offsets, until there are enough."""
    if output.is_full:
        return
    for partition, read in log.follow(positions):
        wants_more = output.write(partition.topic, read)
        sys.stdout.buffer.flush()
        if not wants_more:
            return
