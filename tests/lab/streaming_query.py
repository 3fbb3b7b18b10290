"""A streaming query as Spark's engine drives it, without Spark or Java."""

import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from log_reading import schema_of
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadLimit
from running_broker import RunningBroker

from horolog.client import Client
from horolog.clock import ManualClock
from horolog.record import LogRecord, build_batch
from horolog.sources import columns
from horolog.spark.read.stream import LogStreamReader
from horolog.spark.source.log_source import LogSource

NINE_MS = 1_700_000_000_000
EARLIEST = {"startingOffsets": "earliest"}
Row = tuple[str, int, int]

_topics = count(1)


@contextmanager
def broker_at_nine(directory: Path) -> Iterator[RunningBroker]:
    """A broker whose clock shows `NINE_MS`."""
    running = RunningBroker(directory, clock=ManualClock(NINE_MS))
    try:
        yield running
    finally:
        running.stop()


def new_topic(broker: RunningBroker, partitions: int = 1, **settings: str) -> str:
    """Create a topic with a name of its own."""
    name = f"t{next(_topics)}"
    broker.create_topic(name, partitions, **settings)
    return name


def append(client: Client, topic: str, partition: int, number: int, at_ms: int = NINE_MS) -> None:
    """Append this many records of one time, to all replicas in sync: the leader may be killed."""
    client.produce(topic, partition, build_batch([LogRecord(at_ms, b"k", b"v")] * number), acks=-1)


def rows(partition: int, offsets: range, topic: str = "orders") -> list[Row]:
    """What a query reads of a stretch of offsets."""
    return [(topic, partition, offset) for offset in offsets]


class Clock:
    """Seconds that pass when told to."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Query:
    """One streaming query, as `MicroBatchExecution` runs it; `log` and `commits` outlive it."""

    def __init__(
        self, source: RunningBroker | Path, log: list[str] | None = None, **options: Any
    ) -> None:
        given: dict[str, Any] = {"subscribe": "orders", **options}
        if isinstance(source, Path):
            given["path"] = source
        else:
            given["kafka.bootstrap.servers"] = source.address
        given = {
            name.replace("__", "."): str(value)
            for name, value in given.items()
            if value is not None
        }
        self.begin(given, log)

    @classmethod
    def of(cls, given: dict[str, str]) -> "Query":
        """A query of these options alone."""
        query = cls.__new__(cls)
        query.begin(given, None)
        return query

    def begin(self, given: dict[str, str], log: list[str] | None) -> None:
        self.source = LogSource(CaseInsensitiveDict(given))
        names = columns.default_columns("includeTimestampMs")
        self.schema = schema_of(names)
        self.clock = Clock()
        self.reader = self.new_reader()
        self.log = [] if log is None else log  # the ends of micro-batches, as JSON
        self.committed = 0
        self.limit: ReadLimit = self.reader.getDefaultReadLimit()

    opened: ClassVar[list[LogStreamReader]] = []

    def new_reader(self) -> LogStreamReader:
        reader = self.unopened()
        reader.clock = self.clock
        self.opened.append(reader)
        return reader

    def unopened(self) -> LogStreamReader:
        return pickle.loads(pickle.dumps(self.source)).streamReader(schema=self.schema)

    def begins_at(self) -> dict[str, Any]:
        """The start of the micro-batch that comes next."""
        if self.committed == 0:
            return json.loads(json.dumps(self.reader.initialOffset()))
        return json.loads(self.log[self.committed - 1])

    def plan(self) -> bool:
        """Write down where the next micro-batch ends; False if there is none."""
        if len(self.log) > self.committed:
            return True
        start = self.begins_at()
        end = json.dumps(self.reader.latestOffset(start, self.limit))
        if json.loads(end) == start:
            return False
        self.log.append(end)
        return True

    def run(self) -> list[Row]:
        """The rows of the micro-batch that was planned, which is then done."""
        start, end = self.begins_at(), json.loads(self.log[self.committed])
        tasks = self.unopened()
        rows = [
            (row["topic"], row["partition"], row["offset"])
            for partition in self.reader.partitions(start, end)
            for table in tasks.read(pickle.loads(pickle.dumps(partition)))
            for row in table.to_pylist()
        ]
        self.committed += 1
        self.reader.commit(end)
        return rows

    def next(self) -> list[Row] | None:
        """The next micro-batch; None if there is nothing to read."""
        return self.run() if self.plan() else None

    def again(self) -> "Query":
        """The same query in a new process, from its checkpoint."""
        self.reader.stop()
        other = Query.__new__(Query)
        other.__dict__.update(self.__dict__)
        other.source = LogSource(CaseInsensitiveDict(dict(self.source.options)))
        other.reader = other.new_reader()
        return other


def all_of(query: Query) -> list[Row]:
    """The rows of all micro-batches that there are."""
    found = []
    while (batch := query.next()) is not None:
        found += batch
    return found
