"""Reader of a batch query, which plans for the present log.

A reader is pickled for the tasks before `partitions()` is called: what a task needs travels in its
partition.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from horolog.errors import HorologError
from horolog.sources import planning
from horolog.sources.options import ReadOptions
from horolog.sources.plan import offsets_in
from horolog.sources.reading import read_task
from horolog.sources.row_filter import RowFilter
from horolog.spark.errors import in_one_sentence
from horolog.spark.read import pushes
from horolog.spark.read.filters import absorb, pass_over_unheld
from horolog.spark.workers import SentToWorkers, prepare_for_tasks


class LogReader(SentToWorkers, DataSourceReader):
    """Reader of the whole log as it is when the query is planned."""

    def __init__(
        self,
        options: ReadOptions,
        names: Sequence[str],
        nullable: Sequence[bool],
        cores: int | None,
    ) -> None:
        self.options = options
        self.names = tuple(names)
        self.nullable = tuple(nullable)
        self.cores = cores
        self.row_filter = RowFilter()

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"options": self.options.of_tasks()}

    def partitions(self) -> list[InputPartition]:
        """Return the stretches of each task."""
        with in_one_sentence():
            tasks = planning.tasks(self.options, self.row_filter, lambda: self.cores)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        if partition.value is None:  # Spark's placeholder where there is nothing to read
            return
        with in_one_sentence():
            prepare_for_tasks(offsets=offsets_in(partition.value))
            of_query = self.options, self.names, self.nullable
            if self.options.is_latest:
                from horolog.sources.latest_records import (  # noqa: PLC0415 - of few queries
                    read_latest_task,
                )

                yield from read_latest_task(partition.value, *of_query)
            else:
                yield from read_task(partition.value, self.row_filter, *of_query)


class FilteringLogReader(LogReader):
    """Reader that narrows the read by the query's filters."""

    shared_load: str | None = None
    """Id of the `load()` whose scans can take each other's plans; None if none can."""
    push: pushes.Push | None = None

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Take the filters that narrow the read; the others stay with Spark."""
        row_filter, left = absorb(filters)
        if self.options.is_latest:  # other filters take rows of the table, not of the log
            if self.shared_load is None:
                self.row_filter = row_filter.of_partitions()
            return [condition for condition in filters if not pushes.is_mark(condition)]
        if self.shared_load is None:
            self.row_filter = row_filter
            return left
        unmarked = [condition for condition in filters if not pushes.is_mark(condition)]
        if len(unmarked) < len(filters):
            with in_one_sentence():
                self.row_filter, self.push = pushes.push(self.shared_load, row_filter)
        else:
            pushes.warn_of_no_mark()
        return unmarked

    def partitions(self) -> list[InputPartition]:
        """Return the stretches of each task."""
        try:
            return super().partitions()
        except HorologError:
            if self.push is not None:
                self.push.forget()
            raise

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        if self.push is not None and self.push.is_alone:
            self.push.forget()  # its scan has the plan
        return super().read(partition)


def filters_may_come() -> bool:
    """Return True if Spark may push filters to the reader that this process makes.

    Spark refuses a reader with `pushFilters` while push-down is off, as it is by default,
    instead of not calling it. Filters come in a process that runs a module of its own;
    in the one that plans without them, a reader that takes none does as well.
    """
    with_filters = sys.modules.get("pyspark.sql.worker.data_source_pushdown_filters")
    if with_filters is not None:
        pass_over_unheld(with_filters)  # they are deserialized once the reader is made
        return True
    return "pyspark.sql.worker.plan_data_source_read" not in sys.modules
