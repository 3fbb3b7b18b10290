"""Wait until a log is complete up to a time: then no earlier record can come any more.

Only a broker of horolog knows, and only of topics that bound create times (docs/complete-until.md).
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, TypeAlias

from horolog.client import PartitionTimes
from horolog.client.complete_times import SETTING, CompleteUntil, least
from horolog.client.deadline import Deadline
from horolog.errors import HorologError, Misconfigured
from horolog.record.timestamps import TimeRange
from horolog.sources.broker_log import BrokerLog
from horolog.sources.file_log import FileLog
from horolog.sources.options import ReadOptions
from horolog.storage.names import TopicPartition
from horolog.times import format_time

__all__ = [
    "DEFAULT_TIMEOUT_MS",
    "LogComplete",
    "NotComplete",
    "complete_until",
    "end_of_complete",
    "require_complete",
    "wait_complete",
]

DEFAULT_TIMEOUT_MS: Final = 30_000
_PAUSE_S: Final = 0.25
"""Pause between two questions; a broker raises the time each second."""


class LogComplete(NamedTuple):
    """Time up to which a log is complete."""

    topic: str
    """The topic that has it, or that is the reason why it is unknown."""
    until: CompleteUntil

    @property
    def ms(self) -> int | None:
        """The time in milliseconds; None if it is unknown."""
        return self.until.ms

    def __str__(self) -> str:
        if self.ms is None:
            return self.until.why(self.topic)
        return f"{self.topic}-{self.until.partition} is complete until {format_time(self.ms)}"


class NotComplete(HorologError):
    """A log is not complete up to a time within a timeout."""

    def __init__(self, complete: LogComplete, until_ms: int) -> None:
        super().__init__(f"{complete}, and not until {format_time(until_ms)} yet")
        self.complete = complete


OnWait: TypeAlias = Callable[[LogComplete], object]


def complete_until(
    log: FileLog | BrokerLog, partitions: Collection[TopicPartition], *, committed: bool
) -> LogComplete:
    """Return the time up to which all of some partitions are complete.

    Args:
        committed: for readers of committed records.

    Raises:
        Misconfigured: it is never known: of files, another product, or a topic without a bound.
    """
    if not isinstance(log, BrokerLog):
        raise Misconfigured(
            "files do not say what is still to come: only a broker knows up to which time a topic "
            "is complete"
        )
    topics: dict[str, dict[int, PartitionTimes | None]] = defaultdict(dict)
    for partition, times in log.times_of(partitions).items():
        topics[partition.topic][partition.partition] = times
    found = [LogComplete(topic, least(its, committed=committed)) for topic, its in topics.items()]
    if not found:
        raise Misconfigured("the read has no partition, which is complete up to no time")
    for one in found:
        if one.until.is_never:
            raise Misconfigured(f"{one}. Set {SETTING} of {one.topic} to how late records may come")
    return min(found, key=lambda one: (one.ms is not None, one.ms or 0))


def end_of_complete(times: TimeRange, *, is_as_of: bool = False) -> int:
    """Return the time up to which a read of a range of time has to be complete.

    Raises:
        Misconfigured: the range has no end, or is one of append times; the read is as of a time.
    """
    if is_as_of:
        raise Misconfigured(
            "a read as of a time has what was known then: it cannot be complete, too"
        )
    if times.of_append:
        raise Misconfigured("complete is about the records' own times, not about append times")
    if times.to_ms is None:
        raise Misconfigured("a read that is to be complete needs the time that it ends before")
    return times.to_ms


def require_complete(log: FileLog | BrokerLog, options: ReadOptions) -> None:
    """Wait until the range of a batch is complete, if its options ask for that.

    Raises:
        Misconfigured: it is never known.
        NotComplete: it is not so within the timeout.
    """
    if options.complete is not None:
        until_ms = end_of_complete(options.times.range, is_as_of=options.as_of is not None)
        committed, timeout_ms = options.read_committed, options.complete.timeout_ms
        wait_complete(log, until_ms, committed=committed, timeout_ms=timeout_ms)


def wait_complete(
    log: FileLog | BrokerLog,
    until_ms: int,
    *,
    partitions: Callable[[], Collection[TopicPartition]] | None = None,
    committed: bool = False,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
    on_wait: OnWait = lambda complete: None,
) -> LogComplete:
    """Wait until the partitions of a read are complete up to a time.

    A partition that was created meanwhile counts, too. What is read afterwards, up to the log end,
    has all records with an earlier timestamp.

    Args:
        partitions: returns those of the log that are read, as of now; None for all.
        committed: for a reader of committed records.
        on_wait: called before each pause.

    Raises:
        Misconfigured: it is never known, or there is no such partition.
        NotComplete: it is not so within the timeout.
    """
    deadline = Deadline.after_ms(timeout_ms)
    present = log.partitions if partitions is None else partitions
    chosen = present()
    while True:
        complete, asked = complete_until(log, chosen, committed=committed), chosen
        chosen = present()
        if complete.ms is not None and complete.ms >= until_ms and set(chosen) <= set(asked):
            return complete
        if not deadline.left_s():
            raise NotComplete(complete, until_ms)
        on_wait(complete)
        time.sleep(min(_PAUSE_S, deadline.left_s()))
