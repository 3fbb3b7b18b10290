"""Reading a log from its start to its end, for what is rebuilt from its batches."""

from collections.abc import Callable, Iterator, Sequence

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, printable
from horolog.record.batch import MAGIC
from horolog.storage.batches.reader import EVERYTHING
from horolog.storage.batches.whole import whole_batches
from horolog.storage.segments.reader import SegmentReader


def replay_segments(
    segments: Sequence[SegmentReader], first_offset: int, take: Callable[[Buffer], None]
) -> Iterator[str]:
    """Give each batch of some segments to `take`, control batches too, in the order of the log.

    A batch is valid until the next one. What is damaged is skipped, and so are batches of the
    formats v0 and v1. At most one batch, or a piece of a file, is held in memory.

    Args:
        segments: of one log, in their order.
        first_offset: batches that end before it are left out.
        take: is given each batch, whose checksum is right.

    Yields:
        A sentence about each stretch that is skipped.

    Raises:
        FileMissing: compaction or retention has removed a segment meanwhile.
        StorageFailed: the disk refused.
    """
    for segment in segments:
        path, size = segment.log.path, segment.end.size
        end = 0
        try:
            log = segment.log.batches(size, EVERYTHING)
            for position, header in whole_batches(log):
                if position > end:
                    yield printable(f"{path}, bytes {end} to {position}: no whole batch")
                end = position + header.size
                if header.last_offset < first_offset:
                    continue
                if header.magic != MAGIC:
                    yield printable(f"{path}, byte {position}: a batch of format v{header.magic}")
                    continue
                take(log.batch(position, header))
        except CorruptBatch as error:
            yield printable(f"{path}, from byte {end} on: {error}")
            continue
        if end < size:
            yield printable(f"{path}, bytes {end} to {size}: no whole batch")
