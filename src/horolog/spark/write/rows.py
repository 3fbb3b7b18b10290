"""Rows of a DataFrame prepared for a producer: checked columns, runs of one topic.

Types are those of Spark's Kafka sink. Where a row cannot be a record, the error says which
column or row it is; left to itself, Spark would name neither.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from horolog.errors import Misconfigured
from horolog.sources import columns
from horolog.spark.errors import RowsRefused

TopicRows: TypeAlias = tuple[str, pa.RecordBatch]
"""A topic, and its rows in order."""

GATHERED_BYTES = 8 << 20
"""Rows of mixed topics are sorted in pieces of about this size."""

_TEXT = ("string", "binary")
TYPES = {
    columns.KEY: _TEXT,
    columns.VALUE: _TEXT,
    columns.TOPIC: ("string",),
    columns.PARTITION: ("int",),
    columns.HEADERS: (columns.TYPES[columns.HEADERS],),
    columns.TIMESTAMP: ("timestamp",),
    columns.TIMESTAMP_MS: ("bigint",),
}
"""Columns that are written, with the types that each may have, as in Spark's DDL."""

_SENT_AS = {columns.TIMESTAMP_MS: "timestamp_ms"}  # as the producer names it
_HINTS = {
    (columns.TIMESTAMP, "timestamp_ntz"): "a time without a zone is no moment: cast it to "
    "timestamp, which takes the session's zone",
    (columns.TIMESTAMP, "bigint"): f"write milliseconds in column '{columns.TIMESTAMP_MS}'",
    (columns.PARTITION, "bigint"): "cast it to int",
    (columns.TIMESTAMP_MS, "int"): "cast it to bigint",
    (columns.TIMESTAMP_MS, "timestamp"): f"write timestamps in column '{columns.TIMESTAMP}'",
}


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Columns that are written.

    Attributes:
        names: The columns, without `topic`.
        topic: The topic of all rows; None where column `topic` says it.
    """

    names: tuple[str, ...]
    topic: str | None

    @classmethod
    def of(cls, fields: Sequence[tuple[str, str]], topic: str | None) -> "SinkColumns":
        """Check the columns of a DataFrame; `fields` are their names and types.

        Raises:
            Misconfigured: a column is missing, of another type, or there twice.
        """
        present: dict[str, str] = {}
        for name, kind in fields:
            if name not in TYPES:
                _refuse_misspelt(name)
                continue
            if name in present:
                raise Misconfigured(f"The rows have two columns '{name}'; drop or rename one")
            if topic is not None and name == columns.TOPIC:
                continue
            _check_type(name, kind)
            present[name] = kind
        if columns.VALUE not in present:
            raise Misconfigured(
                "Required column 'value' not found: it holds what the records say, as string or "
                "binary"
            )
        if topic is None and columns.TOPIC not in present:
            raise Misconfigured("Option 'topic' is required where the rows have no column 'topic'")
        if columns.TIMESTAMP in present and columns.TIMESTAMP_MS in present:
            raise Misconfigured(
                "The rows have both 'timestamp' and 'timestampMs'; each says which time records "
                "have: drop one"
            )
        return cls(tuple(name for name in TYPES if name in present and name != "topic"), topic)

    def runs(self, batches: Iterator[pa.RecordBatch]) -> Iterator[TopicRows]:
        """Yield the rows of a task in runs of one topic, in order within each topic.

        Raises:
            RowsRefused: a row has no topic.
        """
        if self.topic is not None:
            for batch in batches:
                if batch.num_rows:
                    yield self.topic, self._sent(batch)
            return
        row = 0
        gathered: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            topics = batch.column(columns.TOPIC)
            if topics.null_count:
                first = int(np.flatnonzero(pc.is_null(topics).to_numpy(zero_copy_only=False))[0])
                raise RowsRefused(
                    f"Row {row + first} of a task has no topic: fill column 'topic', or set "
                    "option 'topic'"
                )
            row += batch.num_rows
            gathered.append(batch)
            size += batch.nbytes
            if size >= GATHERED_BYTES:
                yield from self._by_topic(gathered)
                gathered, size = [], 0
        yield from self._by_topic(gathered)

    def _by_topic(self, batches: Sequence[pa.RecordBatch]) -> Iterator[TopicRows]:
        coded = [batch.column(columns.TOPIC).dictionary_encode() for batch in batches]
        named = [topics.dictionary for topics in coded if len(topics)]
        if named and all(len(topics) == 1 and topics.equals(named[0]) for topics in named):
            topic = named[0][0].as_py()
            yield from ((topic, self._sent(batch)) for batch in batches if batch.num_rows)
            return
        if not named:
            return
        rows = pa.concat_batches(batches)
        topics = rows.column(columns.TOPIC).dictionary_encode()
        codes = topics.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        rows = self._sent(rows).take(pa.array(order))
        ends = np.cumsum(np.bincount(codes)).tolist()
        for topic, start, end in zip(
            topics.dictionary.to_pylist(), [0, *ends[:-1]], ends, strict=True
        ):
            yield topic, rows.slice(start, end - start)

    def _sent(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [batch.column(name) for name in self.names],
            [_SENT_AS.get(name, name) for name in self.names],
        )


def _check_type(name: str, kind: str) -> None:
    plain = kind.partition(" collate ")[0]
    allowed = TYPES[name]
    if plain not in allowed:
        hint = _HINTS.get((name, kind))
        raise Misconfigured(
            f"Column '{name}' is {kind}; it must be {' or '.join(allowed)}"
            + (f" ({hint})" if hint else "")
        )


def _refuse_misspelt(name: str) -> None:
    """Refuse a name that is nearly a column of the sink; other columns are not written."""
    plain = name.lower().replace("_", "")
    for column in TYPES:
        one = column.lower().removesuffix("s")  # `header`, `keys`, `timestamps`
        if plain in (column.lower(), one, f"{one}s"):
            raise Misconfigured(f"The rows have a column '{name}'; did you mean '{column}'?")
