"""Filters of queries whose scans share one plan, widened so that none reads too little.

`scans_apart` gives every scan a plan of its own wherever it can. Elsewhere (Spark
Connect) Spark up to 4.3 keeps *one* plan of a Python source for all queries that have
the same analysed `load()`: those of a temporary view, or of a DataFrame that was
analysed before. A query then reads what the filters pushed *last* have left: a query
without filters after one with them, and every branch of a union or self-join. Spark's
limit push-down (SPARK-58551) keeps what was pushed with each scan. Before it, three
things keep rows exact:

- `load()` puts a filter under the DataFrame that every record satisfies, so that each
  query pushes filters and is planned again. Where this mark is missing (SQL, a client
  without horolog) everything is read.
- A push reads the hull of all pushes of the same `load()` whose scan may still wait for
  its plan: whichever plan Spark takes for the scan, its rows are in there.
- Spark applies all filters again.

A push is pending until a task runs a plan made from it alone: then its scan has got
that plan, as any other scan would have been in it. A union, a self-join, or a DataFrame
that was cached or explained and never run can leave pushes pending for good; later
queries of the same `load()` then read more than they need, never less, and the log
of the planner says so.

Pending pushes are noted in a directory that Spark removes when it stops. Two threads
that plan queries of one shared `load()` at the same moment can still meet each other's
plans; they should `load()` each their own.
"""

import json
import logging
import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import SparkFiles
from pyspark.sql.datasource import DataSourceReader, EqualNullSafe, Filter, GreaterThanOrEqual, Not

from horolog.errors import StorageFailed
from horolog.json_text import from_json, read_as
from horolog.sources import columns
from horolog.sources.row_filter import RowFilter

_logger = logging.getLogger(__name__)

SPARK_KEEPS_SCANS_APART = hasattr(DataSourceReader, "pushLimit")  # SPARK-58551

# What every record satisfies and no query asks for, as Spark's SQL and as it is pushed.
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


def marked(frame: Any) -> Any:
    """Return the DataFrame with filters that every record satisfies, on columns that it has."""
    types = dict(frame.dtypes)
    # Where a type differs, the schema is refused anyway, in better words.
    marks = [mark for name, (mark, _) in _MARKS.items() if types.get(name) == columns.TYPES[name]]
    return frame.where(" and ".join(marks[:_ENOUGH_MARKS])) if marks else frame


def is_mark(condition: Filter) -> bool:
    """Return True if `load()` has put this filter under a DataFrame."""
    return any(condition == mark for _, mark in _MARKS.values())


class Push(NamedTuple):
    """Note of one query's pushed filters; it travels to the tasks of the plan."""

    load_id: str
    number: str
    is_alone: bool
    """True if no other push was pending when the plan was made."""

    def forget(self) -> None:
        """Remove the note: no scan can take the plan of this push any more."""
        root = _root()
        if root is not None:
            with suppress(OSError):  # perhaps this is another machine than the one that plans
                (root / f"{self.load_id}.{self.number}").unlink(missing_ok=True)


def push(load_id: str, row_filter: RowFilter) -> tuple[RowFilter, Push]:
    """Note the filters of a query, and return those that its plan must read by.

    Raises:
        StorageFailed: it cannot be noted, and a later plan might be taken for this query's.
    """
    number = uuid.uuid4().hex
    root = _root()
    if root is None:
        return RowFilter(), Push(load_id, number, is_alone=False)
    try:
        root.mkdir(exist_ok=True)
        draft = root / f"{number}.draft"
        draft.write_text(json.dumps(asdict(row_filter), default=sorted))
        draft.rename(root / f"{load_id}.{number}")
        pending = list(_pending(root, load_id))
    except OSError as error:
        raise StorageFailed(f"The filters of a query cannot be noted: {error}") from error
    hull = reduce(RowFilter.hull, pending, row_filter)
    if hull != row_filter:
        _logger.warning(
            "This query reads more than its filters need: %d others of the same load() may "
            "still wait for their plan, which Spark shares between them (SPARK-58551). "
            "Another load() is narrow again",
            len(pending) - 1,
        )
    return hull, Push(load_id, number, len(pending) == 1)


def warn_of_no_mark() -> None:
    """Warn that a query reads everything, as its scan may take another query's plan."""
    _logger.warning(
        "This query reads everything, and Spark filters: it does not come from a load() of a "
        "session that horolog registered with, but from SQL, for instance (SPARK-58551)"
    )


def _pending(root: Path, load_id: str) -> Iterator[RowFilter]:
    for name in os.listdir(root):
        if name.startswith(f"{load_id}."):
            # One that is gone by now has its plan.
            with suppress(FileNotFoundError):
                yield read_as(RowFilter, from_json((root / name).read_text()))


def _root() -> Path | None:
    """Return the directory of the notes, within Spark's directory for files; None without one.

    Without that directory nothing is narrowed.
    """
    root = SparkFiles._root_directory
    return None if root is None else Path(root) / "horolog-pushes"
