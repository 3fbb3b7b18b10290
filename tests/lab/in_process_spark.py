"""A session that runs the tasks of `jobs.spread` in this process: no JVM to start."""

import pickle
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa


class InProcessSpark:
    """What `spread` uses of a session. `before` is called before each unit, and may raise."""

    def __init__(self, before: Callable[[int], None] = lambda place: None) -> None:
        self.conf = SimpleNamespace(get=lambda name, default=None: "local[2]")
        self.before = before

    def range(self, start: int, end: int, step: int, partitions: int) -> "_Rows":
        return _Rows(range(start, end, step), self.before)


class _Rows:
    def __init__(self, places: range, before: Callable[[int], None]) -> None:
        self._places, self._before = places, before

    def mapInArrow(self, task: Any, schema: str) -> "_Rows":
        self._task = pickle.loads(pickle.dumps(task))
        return self

    def collect(self) -> list[Any]:
        rows = []
        for place in self._places:
            self._before(place)
            batches: Iterator[pa.RecordBatch] = iter([pa.record_batch({"id": [place]})])
            for table in self._task(batches):
                rows += [SimpleNamespace(**row) for row in table.to_pylist()]
        return rows
