"""Reading of whole batches of a partition: the stretches to read, and their batches."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from horolog.errors import CorruptBatch
from horolog.jobs.selection import Selection
from horolog.sources.batches import Batches
from horolog.sources.bounds import Bounds
from horolog.sources.broker_log import BrokerLog
from horolog.sources.file_log import FileLog
from horolog.sources.options import ReadOptions
from horolog.sources.plan import BrokerStretch, Stretch, from_offset
from horolog.sources.row_filter import RowFilter
from horolog.sources.stretch_reader import StretchReader
from horolog.storage.names import TopicPartition


def stretches_of(
    log: BrokerLog | FileLog,
    selection: Selection,
    options: ReadOptions,
    partition: TopicPartition,
    start: int,
    end: int,
    *,
    is_first: bool = False,
) -> tuple[Stretch, ...]:
    """Return the stretches of a partition that contain all records of the selected times.

    Args:
        is_first: True if `start` was the log start offset, which may have moved since.

    Raises:
        DataLost: no file contains some of the offsets.
    """
    if isinstance(log, BrokerLog) and selection.times.is_everything:
        return (BrokerStretch(partition, start, end, is_from_earliest=is_first),)
    row_filter = RowFilter().within(options.times.range)
    return tuple(log.stretches({partition: Bounds(start, end)}, row_filter))


def source_batches(
    stretches: Sequence[Stretch],
    start: int,
    options: ReadOptions,
    *,
    with_append_times: bool = False,
) -> Iterator[Batches]:
    """Yield the batches of stretches from an offset on, in order; they stay valid afterwards.

    Raises:
        DataLost: records of the stretches were deleted.
        CorruptBatch: bytes of a stretch are no batch.
        RequestRefused, NoAnswer: the broker refuses, or does not answer.
    """
    with StretchReader(options, reuses_memory=False) as reader:
        for stretch in stretches:
            if stretch.end <= start:
                continue
            part = from_offset(stretch, start)
            with _naming_file(part):
                for batches in reader.batches(
                    part, RowFilter(), with_append_times=with_append_times, with_markers=True
                ):
                    yield _with_its_append_times(batches)


def _with_its_append_times(batches: Batches) -> Batches:
    """Return the batches with their append times already read."""
    if batches.append_times is None:
        return batches
    times = batches.append_times(batches.start, batches.end)
    return batches._replace(append_times=lambda *_: times)


@contextmanager
def _naming_file(stretch: Stretch) -> Iterator[None]:
    try:
        yield
    except CorruptBatch as error:
        if isinstance(stretch, BrokerStretch):
            raise
        raise CorruptBatch(f"{stretch.path}: {error.reason}") from error
