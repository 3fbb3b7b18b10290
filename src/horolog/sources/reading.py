"""What a task does: its stretches of the log, one after the other, as Spark's rows."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa

from horolog.record.timestamps import NO_TIMESTAMP
from horolog.sources.broker_reader import read_offsets, task_client, up_to_the_log_end
from horolog.sources.clocks import APPEND, appended_in
from horolog.sources.file_reader import read_segment
from horolog.sources.file_systems import Root
from horolog.sources.options import ReadOptions
from horolog.sources.plan import OffsetRange, SegmentRange, Task
from horolog.sources.row_times import narrowed
from horolog.sources.rows import TIMES, RowShaper, decoded_columns, with_times_in
from horolog.sources.wanted import EVERYTHING, Wanted
from horolog.storage.names import TopicPartition


def read_task(
    task: Task,
    wanted: Wanted,
    options: ReadOptions,
    names: Sequence[str],
    nullable: Sequence[bool],
) -> Iterator[pa.RecordBatch]:
    """The rows of a task's stretches, with these columns."""
    shaper = RowShaper(names, nullable)
    decoded = decoded_columns(names)
    begun = set[TopicPartition]()
    with ExitStack() as stack:
        roots: dict[str, Root] = {}
        client = None
        if any(isinstance(stretch, OffsetRange) for stretch in task):
            client = stack.enter_context(task_client(options))
            task = up_to_the_log_end(client, task, options)
        for stretch in task:
            largest_ms = stretch.largest_ms if isinstance(stretch, OffsetRange) else None
            shaper.begin(stretch.partition, largest_ms)
            times_ms, needed = stretch.times_ms, decoded
            what = options.appended.narrow(narrowed(wanted, times_ms))
            appends_ms = what.append_times_ms
            if appends_ms is not None and APPEND not in needed:
                needed = (*needed, APPEND)
            # Decoding cannot leave out records without a timestamp amid others.
            is_checked = times_ms != EVERYTHING and NO_TIMESTAMP in times_ms
            if is_checked and TIMES not in needed:
                needed = (*needed, TIMES)
            match stretch:
                case SegmentRange():
                    if stretch.root not in roots:
                        roots[stretch.root] = stack.enter_context(Root(stretch.root, options.store))
                    tables = read_segment(roots[stretch.root], stretch, what, options, needed)
                case OffsetRange():
                    assert client is not None
                    if stretch.partition in begun:  # what is missing from here on is lost
                        stretch = replace(stretch, is_from_earliest=False)
                    tables = read_offsets(client, stretch, what, options, needed)
            for table in tables:
                if is_checked:
                    table = with_times_in(table, times_ms)
                if appends_ms is not None:
                    table = appended_in(table, appends_ms)
                if table.num_rows:
                    begun.add(stretch.partition)
                    yield shaper.shape(table)
