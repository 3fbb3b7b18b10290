"""The companion files of a `.log` that is written as a whole, without a broker.

Conversions and restores write a log first, and then what an append would have left next to it: both
indexes, append times, and the seal. The block map is made when it is first needed.
"""

from collections.abc import Callable, Sequence

from horolog.record.timestamps import AppendTimeStretch
from horolog.storage import names
from horolog.storage.append_times.format import IDENTITY_SIZE
from horolog.storage.files import Files
from horolog.storage.index.builder import IndexBuilder
from horolog.storage.index.seal import seal_of, write_seal
from horolog.storage.index.segment_end import SegmentEnd
from horolog.storage.segments.reader import SegmentReader


def write_companions(
    files: Files,
    reader: SegmentReader,
    interval_bytes: int,
    append_times: Callable[[int, int], Sequence[AppendTimeStretch]] | None = None,
    builder: IndexBuilder | None = None,
) -> IndexBuilder:
    """Write the companion files of a log, and sync none of them; what its headers say.

    Args:
        files: the way to the disk.
        reader: of the log, with its size.
        interval_bytes: `index.interval.bytes`.
        append_times: says of a stretch of offsets when its records were appended, in order; None
            where nothing is known of that.
        builder: that has taken every batch of the log, and is finished here; None to read the
            headers in the file.

    Raises:
        CorruptBatch: the log is damaged, or its offsets do not fit into indexes.
        StorageFailed: the disk refused.
    """
    if builder is None:
        builder = IndexBuilder(reader.base_offset, interval_bytes)
        builder.add_all(reader.log.batches(reader.size).stretches())
    else:
        builder.finish()
    for suffix, content in (
        (names.OFFSET_INDEX, builder.offset_entries),
        (names.TIME_INDEX, builder.time_entries),
    ):
        files.write_at(files.create(reader.path_of(suffix)), [bytes(content)], 0)
    if append_times is not None:
        stretches = append_times(reader.base_offset, builder.next_offset)
        _write_append_times(reader, builder.next_offset, stretches)
    whole = builder.end, builder.next_offset
    seal = seal_of(files, reader.log.open(), reader.path_of(""), whole, builder.largest)
    write_seal(files, reader.path_of(names.SEAL), seal)
    return builder


def _write_append_times(
    reader: SegmentReader, end_offset: int, stretches: Sequence[AppendTimeStretch]
) -> None:
    start, size = reader.base_offset, reader.size
    entries: list[tuple[int, int | None, bytes]] = []
    batches, position = reader.log.batches(size), 0
    for stretch in stretches:
        found = batches.find(position, stretch.offset)
        if found is None:
            break
        position, header = found
        first = batches.start_of(position, IDENTITY_SIZE)
        entries.append((max(stretch.offset, header.base_offset), stretch.ms, first))
    known = [ms for _, ms, _ in entries if ms is not None]
    reader.end = SegmentEnd(size, end_offset)
    if not known:
        return
    reader.end = SegmentEnd(0, start)  # as if each were appended now
    times = reader.append_times
    times.make_ready(known[0])
    for offset, ms, first in entries:
        if ms is None:
            times.add_unknown(offset, first)
        else:
            times.add(offset, ms, first)
    reader.end = SegmentEnd(size, end_offset)
    times.finish()
