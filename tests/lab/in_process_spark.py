"""A session that runs tasks of jobs in this process: no JVM to start, no worker to ask."""

import pickle
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyspark.sql import Row


class NeedsJvm(AttributeError):
    """A session in this process has no data frames."""


class InProcessSpark:
    """What jobs use of a session to run units of work, or to read times, in tasks.

    `before` is called before each task, and may raise.
    """

    def __init__(self, before: Callable[[int], None] = lambda place: None) -> None:
        self.conf = SimpleNamespace(get=lambda name, default=None: "local[2]")
        self.before = before

    def __getattr__(self, name: str) -> Any:
        raise NeedsJvm(name)

    def stop(self) -> None:
        """It is not running."""

    def range(self, start: int, end: int, step: int, partitions: int) -> "_Rows":
        return _Rows(range(start, end, step), self.before)


class _Rows:
    def __init__(self, places: range, before: Callable[[int], None]) -> None:
        self._places, self._before = places, before

    def __getattr__(self, name: str) -> Any:
        raise NeedsJvm(name)

    def mapInArrow(self, task: Any, schema: str) -> "_Rows":
        self._task = pickle.loads(pickle.dumps(task))
        return self

    def collect(self) -> list[Any]:
        rows = []
        for place in self._places:
            self._before(place)
            batches: Iterator[pa.RecordBatch] = iter([pa.record_batch({"id": [place]})])
            for table in self._task(batches):
                rows += [Row(**row) for row in table.to_pylist()]
        return rows
