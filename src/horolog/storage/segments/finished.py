"""The companion files of a `.log` that is written as a whole, without a broker.

Conversions and restores write a log first, and then what an append would have left next to it: both
indexes, append times, and the seal. The block map is made when it is first needed.
"""

from collections.abc import Callable, Sequence

from horolog.record.timestamps import AppendTimeStretch
from horolog.storage import names
from horolog.storage.append_times.file import AppendTimeEntry
from horolog.storage.batches.identity import IDENTITY_SIZE
from horolog.storage.files import Files
from horolog.storage.index.builder import IndexBuilder
from horolog.storage.index.seal import seal_of, write_seal
from horolog.storage.index.segment_end import SegmentEnd
from horolog.storage.segments.reader import SegmentReader


def write_companions(
    files: Files,
    reader: SegmentReader,
    interval_bytes: int,
    append_times: Callable[[int], Sequence[AppendTimeEntry]] | None = None,
    builder: IndexBuilder | None = None,
) -> IndexBuilder:
    """Write the companion files of a log, and sync none of them; what its headers say.

    Args:
        files: the way to the disk.
        reader: of the log, with its size.
        interval_bytes: `index.interval.bytes`.
        append_times: says up to an offset, after the last one, when its records were appended;
            None where nothing is known of that.
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
        _write_append_times(reader, builder.next_offset, append_times(builder.next_offset))
    whole = builder.end, builder.next_offset
    seal = seal_of(files, reader.log.open(), reader.path_of(""), whole, builder.largest)
    write_seal(files, reader.path_of(names.SEAL), seal)
    return builder


def entries_of(
    reader: SegmentReader, stretches: Sequence[AppendTimeStretch]
) -> list[AppendTimeEntry]:
    """Stretches of append times of a log, in order, with the batch that each begins in or with."""
    entries = []
    batches, position = reader.log.batches(reader.size), 0
    for stretch in stretches:
        found = batches.find(position, stretch.offset)
        if found is None:
            break
        position, header = found
        first = batches.start_of(position, IDENTITY_SIZE)
        entries.append(AppendTimeEntry(max(stretch.offset, header.base_offset), stretch.ms, first))
    return entries


def _write_append_times(
    reader: SegmentReader, end_offset: int, entries: Sequence[AppendTimeEntry]
) -> None:
    size = reader.size
    reader.end = SegmentEnd(0, reader.base_offset)  # as if each were appended now
    known = next((each.ms for each in entries if each.ms is not None), None)
    if known is not None:
        times = reader.append_times
        times.make_ready(known)
        fits = (each.ms is None or times.fits(each.ms) for each in entries)
        times.add_all(
            [
                each if does else each._replace(ms=None)
                for each, does in zip(entries, fits, strict=True)
            ]
        )
    reader.end = SegmentEnd(size, end_offset)
    reader.append_times.finish()
