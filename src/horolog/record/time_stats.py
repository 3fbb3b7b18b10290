"""Statistics of the times of records, as one value that can be added up.

    whole = first.followed_by(second)      # in the order of their offsets

A scan counts the statistics of a batch (`record/scan.py`), a block map contains those of a block,
and `time_stats` returns those of a segment. Kernels have them as numbers
(`record/kernels/layout.py`), of which the counts of a scan come last.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from horolog.record.kernels import layout

LATENCY_BOUNDS: Final = layout.LATENCY_BOUNDS
LATENCY_COUNT: Final = layout.LATENCY_COUNT

_LAST: Final = len(LATENCY_BOUNDS) - 1

LACKS_APPEND_TIMES: Final = layout.LACKS_APPEND_TIMES
"""The append time of a batch is not known: that of another broker's CreateTime batch."""
OF_CREATE_TIME: Final = layout.OF_CREATE_TIME
"""A batch's records have their create times as timestamps."""
OF_APPEND_TIME: Final = layout.OF_APPEND_TIME
"""A batch's records have its append time as timestamps."""
UNREADABLE: Final = layout.UNREADABLE
"""The records of a batch cannot be read: nothing is known of their times."""

NO_APPEND_TIME: Final = (layout.NO_LEAST, layout.NO_LARGEST)
"""Smallest and largest append time, as numbers, where none is known."""

Counts: TypeAlias = "array[int]"
"""Counts of a scan: records, records with a time, the largest, smallest, first and last of the
times, records earlier than the previous one, and records in each class of latency."""


class TimeStats(NamedTuple):
    """Statistics of successive records; times in milliseconds.

    Create times are those in the records' bytes, also under LogAppendTime.
    """

    records: int
    """Number of records, control records excluded."""
    untimed: int
    """Number of records without a create time."""
    out_of_order: int
    """Number of records created earlier than the previous record with a create time."""
    create_min_ms: int | None
    create_max_ms: int | None
    first_create_ms: int | None
    """Create time of the first record that has one."""
    last_create_ms: int | None
    append_min_ms: int | None
    """The first append time that is known; None if none is."""
    append_max_ms: int | None
    latencies: tuple[int, ...]
    """Records in each class of latency from create to append: those ahead of the clock, then from
    each of `LATENCY_BOUNDS` on. Of records whose append time is known."""
    control_records: int = 0
    """Number of markers of transactions; their times count."""
    flags: int = 0

    @property
    def lacks_append_times(self) -> bool:
        """True if the append time of some records is unknown; they have no latency."""
        return bool(self.flags & LACKS_APPEND_TIMES)

    @property
    def is_stamped(self) -> bool:
        """True if a batch is stamped with LogAppendTime."""
        return bool(self.flags & OF_APPEND_TIME)

    @property
    def ahead(self) -> int:
        """Number of records that were stamped later than the clock when they were appended."""
        return self.latencies[0]

    def followed_by(self, other: "TimeStats") -> "TimeStats":
        """Return the statistics of these records and the ones that follow."""
        last, first = self.last_create_ms, other.first_create_ms
        goes_back = last is not None and first is not None and first < last
        return TimeStats(
            self.records + other.records,
            self.untimed + other.untimed,
            self.out_of_order + other.out_of_order + goes_back,
            _either(min, self.create_min_ms, other.create_min_ms),
            _either(max, self.create_max_ms, other.create_max_ms),
            first if self.first_create_ms is None else self.first_create_ms,
            last if other.last_create_ms is None else other.last_create_ms,
            _either(min, self.append_min_ms, other.append_min_ms),
            _either(max, self.append_max_ms, other.append_max_ms),
            tuple(map(int.__add__, self.latencies, other.latencies)),
            self.control_records + other.control_records,
            self.flags | other.flags,
        )

    def counts(self) -> Counts:
        """Return the counts that a scan of the records gives."""
        count = self.records + self.control_records
        times = self.create_max_ms, self.create_min_ms, self.first_create_ms, self.last_create_ms
        return array(
            "q",
            (
                *(count, count - self.untimed),
                *(time or 0 for time in times),
                *(self.out_of_order, *self.latencies),
            ),
        )


class LatencyClass(NamedTuple):
    """Bounds of a class of latency, in milliseconds."""

    from_ms: int | None
    """None of records that were ahead of the clock."""
    below_ms: int | None
    """None of the last class, which has no bound."""


def latency_class(
    latencies: Sequence[int], share: float, largest_ms: int | None = None
) -> LatencyClass | None:
    """Return the class of the latency that a share of the records does not exceed; None if unknown.

    Args:
        latencies: number of records in each class, as in `TimeStats`.
        share: 0.5 for the median.
        largest_ms: largest latency, if known, at which the last class ends.
    """
    rank, so_far = share * sum(latencies), 0
    for place, count in enumerate(latencies):
        so_far += count
        if count and so_far >= rank:
            below = LATENCY_BOUNDS[place] if place <= _LAST else None
            if below is None and largest_ms is not None:
                below = max(largest_ms, LATENCY_BOUNDS[_LAST]) + 1
            return LatencyClass(LATENCY_BOUNDS[place - 1] if place else None, below)
    return None


def latency_up_to(latencies: Sequence[int]) -> int | None:
    """Return an upper bound of these latencies in milliseconds, without the last class.

    The last class has no bound. None if all records are in it; 0 for records that were ahead.
    """
    counted = zip(LATENCY_BOUNDS, latencies, strict=False)
    return max((max(0, bound - 1) for bound, count in counted if count), default=None)


NO_RECORDS: Final = TimeStats(0, 0, 0, None, None, None, None, None, None, (0,) * LATENCY_COUNT)
NO_COUNTS: Final = NO_RECORDS.counts()


def _either(choose: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    if one is None:
        return other
    return one if other is None else choose(one, other)
