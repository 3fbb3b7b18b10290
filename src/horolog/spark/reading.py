"""What a task does: its stretches of the log, one after the other, as Spark's rows."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pyarrow as pa

from horolog.record.kernels.loading import COLUMN_KERNELS
from horolog.spark.broker_reader import read_offsets, task_client, up_to_the_log_end
from horolog.spark.file_reader import read_segment
from horolog.spark.file_systems import Root
from horolog.spark.options import ReadOptions
from horolog.spark.plan import OffsetRange, SegmentRange, Task
from horolog.spark.rows import RowShaper, decoded_columns
from horolog.spark.wanted import Wanted


def read_task(
    task: Task,
    wanted: Wanted,
    options: ReadOptions,
    names: Sequence[str],
    nullable: Sequence[bool],
) -> Iterator[pa.RecordBatch]:
    """The rows of a task's stretches, with these columns."""
    COLUMN_KERNELS.load()
    shaper = RowShaper(names, nullable)
    needed = decoded_columns(names)
    with ExitStack() as stack:
        roots: dict[str, Root] = {}
        client = None
        if any(isinstance(stretch, OffsetRange) for stretch in task):
            client = stack.enter_context(task_client(options))
            task = up_to_the_log_end(client, task, options)
        for stretch in task:
            shaper.begin(stretch.partition)
            match stretch:
                case SegmentRange():
                    if stretch.root not in roots:
                        roots[stretch.root] = stack.enter_context(Root(stretch.root))
                    tables = read_segment(roots[stretch.root], stretch, wanted, options, needed)
                case OffsetRange():
                    assert client is not None
                    tables = read_offsets(client, stretch, wanted, options, needed)
            for table in tables:
                yield shaper.shape(table)
