"""Read a task's stretches of the log, one after the other, as Spark's rows."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from horolog.record.timestamps import NO_TIMESTAMP
from horolog.sources.batches import Batches
from horolog.sources.broker_reader import up_to_the_log_end
from horolog.sources.clocks import APPEND, SEEN, appended_in, decode_with_clocks
from horolog.sources.options import ReadOptions
from horolog.sources.plan import BrokerStretch, Stretch, Task
from horolog.sources.planning import check_read
from horolog.sources.row_filter import RowFilter
from horolog.sources.rows import TIMES, RowShaper, decoded_columns, with_times_in
from horolog.sources.stretch_reader import StretchReader, naming_batch
from horolog.storage.names import TopicPartition

TABLE_BYTES = 2 << 20  # larger tables are slower on their way to Spark


def read_task(
    task: Task,
    row_filter: RowFilter,
    options: ReadOptions,
    names: Sequence[str],
    nullable: Sequence[bool],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task's stretches, with these columns.

    Raises:
        Misconfigured: compaction passed the cut of a read as of a time meanwhile.
    """
    shaper = RowShaper(names, nullable)
    decoded = decoded_columns(names)
    begun = set[TopicPartition]()
    with StretchReader(options) as reader:
        if any(isinstance(stretch, BrokerStretch) for stretch in task):
            task = up_to_the_log_end(reader.client, task, options)
        for stretch in task:
            if isinstance(stretch, BrokerStretch):
                shaper.begin(stretch.partition, stretch.largest_ms, stretch.complete_ms)
                if stretch.partition in begun:  # what is missing from here on is lost
                    stretch = replace(stretch, is_from_earliest=False)
            else:
                shaper.begin(stretch.partition)
            with reader.losses(stretch):
                for table in tables_of(reader, stretch, row_filter, options, decoded):
                    begun.add(stretch.partition)
                    yield shaper.shape(table)
    # Committed offsets are those of all partitions.
    read = None if options.read_committed else {stretch.partition for stretch in task}
    check_read(options, task, read)


def tables_of(
    reader: StretchReader,
    stretch: Stretch,
    row_filter: RowFilter,
    options: ReadOptions,
    columns: tuple[str, ...],
    *,
    max_bytes: int = TABLE_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a stretch that a filter takes, as tables with at least these columns.

    No table is empty, or larger than `max_bytes`, unless a single record is.
    """
    times = stretch.times
    row_filter = row_filter.within(times).within(options.appended)
    appended = row_filter.append_times
    if not appended.is_everything and APPEND not in columns:
        columns = (*columns, APPEND)
    # Decoding cannot leave out records without a timestamp amid others.
    is_checked = not times.is_everything and times.first_ms <= NO_TIMESTAMP <= times.last_ms
    if is_checked and TIMES not in columns:
        columns = (*columns, TIMES)
    with_append_times = APPEND in columns or SEEN in columns
    for batches in reader.batches(stretch, row_filter, with_append_times=with_append_times):
        for table in _decoded(batches, row_filter, options, columns, max_bytes):
            if is_checked:
                table = with_times_in(table, times)
            if not appended.is_everything:
                table = appended_in(table, appended)
            if table.num_rows:
                yield table


def _decoded(
    batches: Batches,
    row_filter: RowFilter,
    options: ReadOptions,
    columns: Sequence[str],
    max_bytes: int,
) -> Iterator[pa.RecordBatch]:
    with naming_batch(batches):
        yield from decode_with_clocks(
            batches.data,
            batches.append_times,
            start_offset=batches.start,
            end_offset=batches.end,
            from_ms=row_filter.from_ms,
            to_ms=row_filter.to_ms,
            columns=columns,
            max_bytes=max_bytes,
            aborted=batches.aborted,
            check_crcs=options.check_crcs,
        )
