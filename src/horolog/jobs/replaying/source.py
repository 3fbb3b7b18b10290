"""Source of a replay: its records in the order of their times, from any place of that order on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile
from typing import NamedTuple

from horolog.errors import Damaged, StorageFailed
from horolog.record.timestamps import TimeRange
from horolog.sources.bounds import Bounds
from horolog.sources.broker_log import BrokerLog
from horolog.sources.file_log import FileLog
from horolog.sources.options import ReadOptions
from horolog.sources.ordered import WithoutTime
from horolog.sources.ordered_records import OrderedRecords
from horolog.sources.plan import Stretch
from horolog.sources.records import ReadRecord, RecordLog
from horolog.sources.row_filter import RowFilter
from horolog.storage.names import TopicPartition


class ReplayPlace(NamedTuple):
    """Place of a record in the order of a replay."""

    ms: int | None
    """Time in milliseconds; None without one."""
    partition: TopicPartition
    offset: int


class Due(NamedTuple):
    """A record with the time that orders it, in milliseconds; None without one."""

    ms: int | None
    partition: TopicPartition
    read: ReadRecord

    @property
    def place(self) -> ReplayPlace:
        """Place of the record."""
        return ReplayPlace(self.ms, self.partition, self.read.offset)


class Extent(NamedTuple):
    """Offsets of a replay: of each partition the first one, and the one to stop before."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The stretches of a replay, or what is left of them behind a place."""

    extent: Extent
    timed: Sequence[Stretch]
    """Where records with a time may be."""
    untimed: Sequence[Stretch]
    """Where records without a time may be, which come first or last."""

    def spans(self) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return the first and the end offset of each partition that may have a record."""
        spans: dict[TopicPartition, tuple[int, int]] = {}
        for stretch in (*self.timed, *self.untimed):
            start, end = spans.get(stretch.partition, (stretch.start, stretch.end))
            spans[stretch.partition] = min(start, stretch.start), max(end, stretch.end)
        return spans


class ReplaySource(RecordLog):
    """Records of a range of time in the order of their times.

    Args:
        memory: how many bytes of records that overlap in time may be held.
        without_time: the place of records that have no time.
    """

    def __init__(
        self, options: ReadOptions, times: TimeRange, *, memory: int, without_time: WithoutTime
    ) -> None:
        super().__init__(options, times, runs_ahead=False)
        self._memory = memory
        self._without_time = without_time

    @property
    def log(self) -> BrokerLog | FileLog:
        """Log of the source, for lookups."""
        return self._log

    def plan_rest(self, extent: Extent, place: ReplayPlace | None) -> ReplayPlan:
        """Plan what is behind a place; what was deleted meanwhile is left out.

        Args:
            extent: what the replay has; without ends it goes up to the present log ends.
            place: the place of the last record that was sent; None before the first.
        """
        partitions = [it for it in self.partitions if not extent.ends or it in extent.ends]
        earliest, latest = self._log.earliest(partitions), self._log.latest(partitions)
        bounds = {}
        for partition in partitions:
            first, last = earliest[partition], latest[partition]
            start = min(max(first, extent.starts.get(partition, first)), max(first, last))
            end = min(last, extent.ends.get(partition, last))
            bounds[partition] = Bounds(start, max(start, end))
        every = self._stretches(bounds, self._times)
        untimed = every if self._times.with_untimed else ()
        plan = ReplayPlan(extent, every, untimed)
        if not extent.ends:
            spans, ends = plan.spans(), {it: bound.end for it, bound in bounds.items()}
            starts = {it: spans.get(it, (end, end))[0] for it, end in ends.items()}
            plan = replace(plan, extent=Extent(starts, ends))
        if place is None:
            return plan
        is_last = self._without_time is WithoutTime.LAST
        if place.ms is None:
            return replace(plan, timed=() if is_last else every)
        behind = TimeRange(first_ms=place.ms, of_append=self._times.of_append)
        timed = self._stretches(bounds, self._times & behind)
        return replace(plan, timed=timed, untimed=untimed if is_last else ())

    def _stretches(
        self, bounds: Mapping[TopicPartition, Bounds], times: TimeRange
    ) -> Sequence[Stretch]:
        return self._log.stretches(bounds, RowFilter().within(times))

    def rest(self, plan: ReplayPlan, place: ReplayPlace | None) -> Iterator[Due]:
        """Yield the records of a plan that are behind a place.

        Raises:
            Overlap: more records overlap in time than may be held.
            Misconfigured: a record has no time, and such records are refused.
            CorruptBatch, StorageFailed: the log is damaged, or the disk refused.
        """
        ordered = OrderedRecords(
            self,
            self._times.clock,
            memory=self._memory,
            without_time=self._without_time,
            on_damage=_refuse,
        )
        dues = (
            Due(ordered.time_of(read), partition, read)
            for partition, read in ordered.read(plan.timed, untimed=plan.untimed)
        )
        if place is None:
            return dues
        reached = self._rank(place)
        return dropwhile(lambda due: self._rank(due.place) <= reached, dues)

    def _rank(self, place: ReplayPlace) -> tuple[bool, int, TopicPartition, int]:
        """Return what sorts places in the order of the replay."""
        is_untimed = place.ms is None
        is_behind = is_untimed == (self._without_time is WithoutTime.LAST)
        return is_behind, place.ms or 0, place.partition, place.offset


def _refuse(_: TopicPartition, error: Damaged | StorageFailed) -> None:
    raise error
