"""Give records out in the order of their times, over partitions and inside them. No Arrow.

Each block of a log has a time that none of its records is before (its block map says so). Blocks
are read in the order of these times, whatever their partition and offsets. A record is given out
once no block that is still to be read can hold an earlier one. So each block is read once, and
memory holds what overlaps in time. Records of the same time come by partition, then by offset.

Records without a time are given out before all others or after them, by a pass of their own over
the blocks that may have some.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from enum import StrEnum
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from horolog.errors import Misconfigured
from horolog.offsets import TimeBlock
from horolog.record.timestamps import ALL_TIMES, RecordClock
from horolog.results import size
from horolog.sources.ahead import ahead
from horolog.sources.plan import BrokerStretch, Stretch

__all__ = [
    "DEFAULT_MEMORY",
    "LEAST_MEMORY",
    "Buffer",
    "Overlap",
    "TimedStretch",
    "WithoutTime",
    "checked_memory",
    "clock_of_order",
    "group_bytes",
    "in_order",
    "timed_parts",
    "untimed_refused",
]

DEFAULT_MEMORY: Final = 256 << 20
LEAST_MEMORY: Final = 16 << 20
GROUP_BYTES: Final = 2 << 20
_SHARES: Final = 16
RELEASE_BYTES: Final = 8 << 20
"""Records are given out when so many are held."""

_FIRST_MS: Final = ALL_TIMES.first_ms

ItemT = TypeVar("ItemT")
InT_contra = TypeVar("InT_contra", contravariant=True)
OutT_co = TypeVar("OutT_co", covariant=True)


class WithoutTime(StrEnum):
    """The place of records that have no time by the clock of the order."""

    LAST = "last"
    FIRST = "first"
    REFUSE = "refuse"

    @classmethod
    def of(cls, text: str) -> "WithoutTime":
        """Parse a place.

        Raises:
            Misconfigured: it is none of them.
        """
        try:
            return cls(text)
        except ValueError:
            raise Misconfigured(
                f"records without a time: {text!r} is none of {', '.join(cls)}"
            ) from None


def clock_of_order(text: str) -> RecordClock:
    """Return the clock of an order, `create-time` or `append-time`, also with an underscore.

    Raises:
        Misconfigured: it is neither.
    """
    clock = _ORDERS.get(text.replace("_", "-"))
    if clock is None:
        raise Misconfigured(f"order {text!r}: write {' or '.join(_ORDERS)}")
    return clock


def checked_memory(memory: int) -> int:
    """Return how many bytes may be held.

    Raises:
        Misconfigured: so few that no order can be made.
    """
    if memory < LEAST_MEMORY:
        raise Misconfigured(
            f"--order-memory {size(memory)}: an order needs {size(LEAST_MEMORY)} at least"
        )
    return memory


def untimed_refused(what: str, place: str) -> Misconfigured:
    """Return the error about a record without a time where these are refused."""
    return Misconfigured(
        f"{what} has a record without a time ({place}): give --without-time last or first"
    )


_ORDERS: Final = {"create-time": RecordClock.CREATE, "append-time": RecordClock.APPEND}


class TimedStretch(NamedTuple):
    """A stretch of a log, with the bytes of its batches and the earliest time in it."""

    stretch: Stretch
    size: int
    least_ms: int | None
    """No record is earlier; None if none has a time."""
    has_untimed: bool
    """True if a record may have no time."""


class Buffer(Protocol, Generic[InT_contra, OutT_co]):
    """Records that were read and not given out."""

    @property
    def size(self) -> int:
        """Bytes that are held."""
        ...

    def add(self, stretch: Stretch, item: InT_contra) -> None:
        """Add records of a stretch; those without a time are left out."""
        ...

    def release(self, before_ms: int | None) -> Iterator[OutT_co]:
        """Give out what is earlier than a time in order; all of it if that is None."""
        ...


class Overlap(Misconfigured):
    """More records overlap in time than may be held."""

    def __init__(self, held: int, memory: int) -> None:
        super().__init__(
            f"{size(held)} of records overlap in time, and --order-memory allows {size(memory)}: "
            "raise it, or read fewer partitions or a shorter range of time"
        )


def group_bytes(memory: int, partitions: int) -> int:
    """Return up to how many bytes blocks of a partition are read together.

    Several partitions that overlap have a group each in memory.
    """
    return min(GROUP_BYTES, memory // (_SHARES * max(1, partitions)))


def in_order(
    stretches: Iterable[TimedStretch],
    read: Callable[[Stretch], Iterator[ItemT]],
    buffer: Buffer[ItemT, OutT_co],
    memory: int = DEFAULT_MEMORY,
    *,
    runs_ahead: bool = False,
    held_back: Callable[[], int] | None = None,
) -> Iterator[OutT_co]:
    """Give out the records of stretches that have a time, in the order of their times.

    Args:
        read: reads a stretch, as items that the buffer takes.
        memory: how many bytes of records may be held.
        runs_ahead: read an item while the one before is worked on, in a thread.
        held_back: at the end, returns the time from which on records stay in the buffer; None
            gives out all of them.

    Raises:
        Overlap: more would have to be held.
    """
    in_time = sorted(
        (timed for timed in stretches if timed.least_ms is not None),
        key=lambda timed: (timed.least_ms, timed.stretch.partition, timed.stretch.start),
    )
    items = ((timed, item) for timed in in_time for item in read(timed.stretch))
    before_ms = _FIRST_MS
    with ahead(items) if runs_ahead else nullcontext(items) as coming:
        for timed, item in coming:
            assert timed.least_ms is not None
            buffer.add(timed.stretch, item)
            if timed.least_ms > before_ms and buffer.size >= min(RELEASE_BYTES, memory // 2):
                before_ms = timed.least_ms  # nothing that is still to be read is earlier
                yield from buffer.release(before_ms)
            if buffer.size > memory:
                raise Overlap(buffer.size, memory)
    yield from buffer.release(None if held_back is None else held_back())


def timed_parts(stretch: Stretch, blocks: Iterable[TimeBlock], most: int) -> Iterator[TimedStretch]:
    """Cut a stretch at its blocks, so that each part has the earliest time of its blocks.

    Args:
        blocks: of the log of the stretch, in order; those that do not reach into it are left out.
        most: blocks that follow one another are one part up to so many bytes.
    """
    joined: TimeBlock | None = None
    for cut in _cut_to(stretch, blocks):
        together = None if joined is None else _joined(joined, cut, most)
        if joined is not None and together is None:
            yield _part(stretch, joined)
        joined = together or cut
    if joined is not None:
        yield _part(stretch, joined)


def _cut_to(stretch: Stretch, blocks: Iterable[TimeBlock]) -> Iterator[TimeBlock]:
    """Yield what blocks have of a stretch, and its ends that no block has.

    Such an end was deleted after the plan, which reading it reports, or is a gap of compaction.
    """
    reached = stretch.start
    for block in blocks:
        start, end = max(block.start, stretch.start), min(block.end, stretch.end)
        if start >= end:
            continue
        if reached == stretch.start < start:
            yield TimeBlock(reached, start, 0, _FIRST_MS, True)
        yield block._replace(start=start, end=end)
        reached = end
    if reached < stretch.end:
        yield TimeBlock(reached, stretch.end, 0, _FIRST_MS, True)


def _joined(one: TimeBlock, other: TimeBlock, most: int) -> TimeBlock | None:
    """Return two blocks as one; None if they are too large, or the times of one are unknown."""
    if one.size + other.size > most or _FIRST_MS in (one.least_ms, other.least_ms):
        return None
    known = [ms for ms in (one.least_ms, other.least_ms) if ms is not None]
    return TimeBlock(
        one.start,
        other.end,
        one.size + other.size,
        min(known, default=None),
        one.has_untimed or other.has_untimed,
    )


def _part(stretch: Stretch, block: TimeBlock) -> TimedStretch:
    if isinstance(stretch, BrokerStretch):
        part: Stretch = replace(
            stretch,
            start=block.start,
            end=block.end,
            size=block.size,
            is_from_earliest=stretch.is_from_earliest and block.start == stretch.start,
        )
    else:
        part = replace(stretch, start=block.start, end=block.end, weight=block.size)
    return TimedStretch(part, block.size, block.least_ms, block.has_untimed)
