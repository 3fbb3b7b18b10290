"""The batches of a unit of work: from a broker, or from a segment file; runs in a task."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from horolog.jobs.archives.reading import Piece, RangeReader
from horolog.record.batch import BatchHeader
from horolog.record.transactions import AbortedTransactions
from horolog.sources.ahead import ahead
from horolog.sources.batches import Batches
from horolog.sources.broker_reader import fetches, task_client
from horolog.sources.file_systems import Root
from horolog.sources.options import ReadOptions
from horolog.sources.plan import OffsetRange, SegmentRange
from horolog.sources.segments import opened
from horolog.storage.batches.reader import EVERYTHING
from horolog.storage.names import TopicPartition
from horolog.storage.segments.reader import SegmentReader

COMMITTED: Final = {"kafka.isolation.level": "read_committed"}


@dataclass(frozen=True, slots=True)
class Unit:
    """Offsets `start` to before `end` of a partition, to be archived by one task."""

    partition: TopicPartition
    start: int
    end: int
    floor: int
    """Where the partition's part of the archive ends; records before it are there already."""
    stretch: OffsetRange | SegmentRange | None
    """Where its batches are; None where there is nothing to be read."""

    @property
    def key(self) -> str:
        """Its name."""
        return f"{self.partition}@{self.start}"


def open_pieces(
    stack: ExitStack,
    unit: Unit,
    options: ReadOptions,
    *,
    with_append_times: bool,
    from_ms: int | None = None,
) -> Iterator[Piece]:
    """The batches of a unit; what is opened for them is closed with the stack."""
    match unit.stretch:
        case OffsetRange():
            client = stack.enter_context(task_client(options))
            coming = fetches(client, unit.stretch, options, with_append_times)
            return _fetched(stack, coming)
        case SegmentRange(root=uri):
            root = stack.enter_context(Root(uri, options.store))
            return _in_file(root, unit.stretch, from_ms)
        case None:
            return iter(())


def _fetched(stack: ExitStack, coming: Iterator[Batches]) -> Iterator[Piece]:
    for each in stack.enter_context(ahead(coming)):
        drops = AbortedTransactions(each.aborted).drop if each.aborted else None
        has_times = bool(each.append_times(each.start, each.end))
        yield Piece(each.data, drops, each.append_times if has_times else None)


def _in_file(root: Root, stretch: SegmentRange, from_ms: int | None) -> Iterator[Piece]:
    reader, end = opened(root, stretch), stretch.end

    def wants(header: BatchHeader) -> bool:
        if header.is_control or header.last_offset >= end:
            return True
        return from_ms is None or header.max_timestamp >= from_ms

    return pieces_of(
        reader,
        stretch.start,
        end,
        wants=None if from_ms is None else wants,
        drops=AbortedTransactions(stretch.aborted).drop if stretch.aborted else None,
    )


def pieces_of(
    reader: SegmentReader,
    start: int,
    end: int,
    *,
    wants: Callable[[BatchHeader], bool] | None = None,
    drops: Callable[[BatchHeader, memoryview], bool] | None = None,
) -> Iterator[Piece]:
    """The batches of a segment from the one that holds an offset on."""
    times = reader.append_times.stretches if reader.has_append_times else None
    position = reader.position_for(None, start)
    for buffer in reader.log.batches(reader.size, EVERYTHING).wanted(position, end, wants):
        yield Piece(buffer, drops, times)


def reader_of(unit: Unit, from_ms: int | None, to_ms: int | None) -> RangeReader:
    """The reader of a unit's batches."""
    return RangeReader(unit.start, unit.end, floor=unit.floor, from_ms=from_ms, to_ms=to_ms)
