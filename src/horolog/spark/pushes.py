"""What the queries of one `load()` have pushed, so that none of them reads too little.

Up to 4.3 Spark keeps one plan of a Python source for all queries of a DataFrame, not
one for each scan. A query then reads what the filters pushed *last* have left: a query
without filters after one with them, and every branch of a union or self-join. Three
things keep rows exact on such a Spark:

- `load()`, as `register` leaves it, puts a filter under the DataFrame that every record
  satisfies, so that each query pushes filters and is planned anew. Where this mark is
  missing (SQL, a client without horolog) everything is read.
- A push reads the hull of all pushes of the same `load()` whose scan may still wait for
  its plan: whichever plan Spark takes for the scan, its rows are in there.
- Spark applies all filters again.

A push waits until a task reads by a plan that was made for it alone: then its scan
has got that plan, as any other scan would have been in it. A union, a self-join or a
DataFrame that was cached or explained before it was run can leave pushes waiting for
good; later queries of the same `load()` then read more than they need, never less.

Two threads that plan queries of one DataFrame at the same moment can still meet each
other's plans; they should `load()` each their own.

A Spark whose readers have `pushLimit` keeps scans apart, and nothing of this happens.
"""

import json
import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import reduce, wraps
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    Filter,
    GreaterThanOrEqual,
    Not,
)

from horolog.spark import columns
from horolog.spark.filters import Interval, TopicTest, Wanted

SPARK_KEEPS_SCANS_APART = hasattr(DataSourceReader, "pushLimit")

# What every record satisfies and nobody would ask for, as Spark's SQL and as it is pushed.
# Times are whole milliseconds. An equality with a mark's column makes Spark fold the mark
# away, hence several, the least likely to be asked for first.
_MARKS: dict[str, tuple[str, Filter]] = {
    columns.TIMESTAMP_TYPE: (
        "timestampType >= -2147483647",
        GreaterThanOrEqual((columns.TIMESTAMP_TYPE,), -(1 << 31) + 1),
    ),
    columns.OFFSET: (
        "offset >= -9223372036854775807L",
        GreaterThanOrEqual((columns.OFFSET,), -(1 << 63) + 1),
    ),
    columns.PARTITION: (
        "partition >= -2147483647",
        GreaterThanOrEqual((columns.PARTITION,), -(1 << 31) + 1),
    ),
    columns.TIMESTAMP_MS: (
        "timestampMs >= cast('-9223372036854775808' as bigint)",
        GreaterThanOrEqual((columns.TIMESTAMP_MS,), -(1 << 63)),
    ),
    columns.TIMESTAMP: (
        "not (timestamp <=> timestamp'1970-01-01 00:00:00.000001Z')",
        Not(EqualNullSafe((columns.TIMESTAMP,), datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC))),
    ),
    columns.TOPIC: ("topic >= ''", GreaterThanOrEqual((columns.TOPIC,), "")),
}
_ENOUGH_MARKS = 2
MARK = _MARKS[columns.OFFSET][1]
_ABANDONED_SECONDS = 7 * 24 * 3600
_SWEEP_SECONDS = 3600


def mark_loads(reader: type[Any], name: str) -> None:
    """Let `load()` of this class of DataFrameReader mark the DataFrames of a format."""
    if SPARK_KEEPS_SCANS_APART or hasattr(reader.load, "__wrapped__"):
        return
    plain_format, plain_load = reader.format, reader.load

    @wraps(plain_format)
    def choose(self: Any, source: str) -> Any:
        self._is_marked = source.lower() == name
        return plain_format(self, source)

    @wraps(plain_load)
    def load(
        self: Any,
        path: Any = None,
        format: Any = None,  # noqa: A002 - Spark's name
        schema: Any = None,
        **options: Any,
    ) -> Any:
        if format is not None:
            self.format(format)
        frame = plain_load(self, path, None, schema, **options)
        return _marked(frame) if getattr(self, "_is_marked", False) else frame

    reader.format, reader.load = choose, load


def _marked(frame: Any) -> Any:
    """The DataFrame with marks on columns that it has and that filters can narrow a read by."""
    types = dict(frame.dtypes)
    # Where a type differs, the schema is refused anyway, in better words.
    marks = [mark for name, (mark, _) in _MARKS.items() if types.get(name) == columns.TYPES[name]]
    return frame.where(" and ".join(marks[:_ENOUGH_MARKS])) if marks else frame


def is_mark(condition: Filter) -> bool:
    """Whether this is the filter that `load()` has put under a DataFrame."""
    return any(condition == mark for _, mark in _MARKS.values())


class Push(NamedTuple):
    """One query's push; travels to the tasks of the plan that it gave."""

    load_id: str
    number: int
    is_alone: bool
    """Nothing else waited when the plan was made."""

    def begun(self) -> None:
        """A task reads by the plan of this push."""
        if self.is_alone:
            self._forget()

    def withdrawn(self) -> None:
        """Planning failed: Spark has no plan of this query that a scan could take."""
        self._forget()

    def _forget(self) -> None:
        directory = _root() / self.load_id
        with suppress(OSError):  # this is another machine than the one that plans
            (directory / str(self.number)).unlink(missing_ok=True)
            directory.rmdir()  # unless others wait


def push(load_id: str, wanted: Wanted) -> tuple[Wanted, Push]:
    """Note what a query wants; what its plan has to read."""
    number = time.monotonic_ns()
    try:
        directory = _directory(load_id)
        draft = directory / f"{number}.tmp"
        draft.write_text(_dump(wanted))
        draft.rename(directory / str(number))
        waiting = [_load((directory / name).read_text()) for name in _numbers(directory)]
    except OSError:  # nowhere to keep notes
        return Wanted(), Push(load_id, number, is_alone=False)
    return reduce(hull, waiting, wanted), Push(load_id, number, len(waiting) == 1)


def hull(one: Wanted, other: Wanted) -> Wanted:
    """What holds all that either wants."""
    sets = one.partition_set, other.partition_set
    return Wanted(
        times_ms=_hull(one.times_ms, other.times_ms),
        offsets=_hull(one.offsets, other.offsets),
        partitions=_hull(one.partitions, other.partitions),
        partition_set=None if None in sets else frozenset().union(*(each or () for each in sets)),
        topics=_either(one.topics, other.topics),
    )


def _hull(one: Interval, other: Interval) -> Interval:
    if one.is_empty or other.is_empty:
        return other if one.is_empty else one
    return Interval(min(one.first, other.first), max(one.last, other.last))


def _either(one: tuple[TopicTest, ...], other: tuple[TopicTest, ...]) -> tuple[TopicTest, ...]:
    if one == other:
        return one
    if len(one) == len(other) == 1 and one[0].kind == other[0].kind:
        return (TopicTest(one[0].kind, tuple({*one[0].words, *other[0].words})),)
    return ()


def _root() -> Path:
    return Path(tempfile.gettempdir()) / f"horolog-spark-{os.getuid()}"


def _directory(load_id: str) -> Path:
    """Where the pushes of a `load()` are noted, on the machine that plans.

    Raises:
        OSError: there is no such place that is ours alone.
    """
    root = _root()
    root.mkdir(mode=0o700, exist_ok=True)
    held = root.lstat()
    if not stat.S_ISDIR(held.st_mode) or held.st_uid != os.getuid() or held.st_mode & 0o077:
        raise PermissionError(f"{root} is not ours alone")
    directory = root / load_id
    directory.mkdir(exist_ok=True)
    _sweep(root, directory.stat().st_mtime)
    return directory


def _sweep(root: Path, now: float) -> None:
    """Remove what nobody asks for any more, now and then."""
    swept = root / "swept"
    if swept.exists() and now - swept.stat().st_mtime < _SWEEP_SECONDS:
        return
    swept.touch()
    for each in root.iterdir():
        if now - each.stat().st_mtime > _ABANDONED_SECONDS:
            shutil.rmtree(each, ignore_errors=True)


def _numbers(directory: Path) -> list[str]:
    return [name for name in os.listdir(directory) if name.isdigit()]


def _dump(wanted: Wanted) -> str:
    listed = None if wanted.partition_set is None else sorted(wanted.partition_set)
    topics = [[test.kind, test.words] for test in wanted.topics]
    return json.dumps([wanted.times_ms, wanted.offsets, wanted.partitions, listed, topics])


def _load(text: str) -> Wanted:
    times_ms, offsets, partitions, listed, topics = json.loads(text)
    return Wanted(
        Interval(*times_ms),
        Interval(*offsets),
        Interval(*partitions),
        None if listed is None else frozenset(listed),
        tuple(TopicTest(kind, tuple(words)) for kind, words in topics),
    )
