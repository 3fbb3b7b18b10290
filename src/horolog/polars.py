"""Topics as lazy frames of polars.

    from horolog.polars import scan_horolog

    late = scan_horolog("127.0.0.1:9092", "clicks").filter(pl.col("timestamp") < some_time)
    late.select("offset", "value").collect()

Predicates on `timestamp`, `append_time`, `partition` and `offset` become range reads; only the
columns that are asked for are decoded. Needs `pip install 'horolog[polars]'`.
"""

import json
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from polars.io.plugins import register_io_source

from horolog.sources.cut_files import GivenAsOf, given_as_of
from horolog.sources.expressions import SCHEMA
from horolog.sources.planning import opened_log
from horolog.sources.tables import options_of
from horolog.sources.topic_tables import TopicTables

if TYPE_CHECKING:
    from horolog.client import Client

__all__ = ["scan_horolog"]

_TIME: Final = pl.Datetime("ms", "UTC")
_TYPES: Final[Mapping[str, Any]] = {
    "timestamp": _TIME,
    "append_time": _TIME,
    "partition": pl.Int32,
    "offset": pl.Int64,
    "key": pl.Binary,
    "value": pl.Binary,
    "headers": pl.List(pl.Struct({"key": pl.String, "value": pl.Binary})),
}
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], pc.Expression]]] = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtEq": operator.le,
    "Gt": operator.gt,
    "GtEq": operator.ge,
}
_LOGIC: Final = ("And", "LogicalAnd", "Or")
_PER_SECOND: Final = {"Milliseconds": "ms", "Microseconds": "us", "Nanoseconds": "ns"}
_INTEGERS: Final = frozenset(
    {"Int", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"}
)


def scan_horolog(
    source: "Client | str | os.PathLike[str]",
    topic: str,
    *,
    as_of: GivenAsOf | None = None,
    settings: Mapping[str, str] | None = None,
) -> pl.LazyFrame:
    """Return a topic as a lazy frame, which reads it when it is collected.

    Columns: `timestamp` and `append_time` (milliseconds in UTC; null for records without a time,
    and where the append time is unknown), `partition`, `offset`, `key`, `value`, `headers`.

    Args:
        source: a client of the brokers, or their `host:port`; or a path: of a log directory, a
            partition or a segment, also in an object store (`s3://...`).
        as_of: an append time in milliseconds, a `Cut`, or the path of its file: only what was
            appended before it is read, each time the frame is collected.
        settings: `kafka.*` for brokers and `fs.*` for object stores, as in Spark.

    Raises:
        Misconfigured: the topic or the path does not exist, or a setting is wrong. When the frame
            is collected: the topic cannot be read exactly as of the time.
        RequestRefused, NoAnswer: the broker refuses, or does not answer.
    """
    moment = None if as_of is None else given_as_of(as_of)
    tables = TopicTables(options_of(source, settings or {}), topic, as_of=moment)
    with opened_log(tables.options) as log:
        log.partitions()

    def frames(
        with_columns: Sequence[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        names = list(_TYPES) if with_columns is None else [*with_columns]
        needed = names
        if predicate is not None:
            of_predicate = set(predicate.meta.root_names())
            needed = [name for name in SCHEMA.names if name in of_predicate or name in names]
        left = n_rows
        expression = None if predicate is None else expression_of(predicate)
        for table in tables.read(needed or ["offset"], expression):
            frame = _frame(table)
            if predicate is not None:
                frame = frame.filter(predicate)
            if left is not None:
                frame = frame.head(left)
                left -= len(frame)
            if len(frame):
                yield frame.select(names)
            if left == 0:
                return

    return register_io_source(frames, schema=_TYPES)


def _frame(table: pa.RecordBatch) -> pl.DataFrame:
    frame = pl.from_arrow(pa.Table.from_batches([table]))
    assert isinstance(frame, pl.DataFrame)
    return frame.cast({name: _TYPES[name] for name in frame.columns})


def expression_of(predicate: pl.Expr) -> pc.Expression | None:
    """Return an expression of Arrow that is true wherever a predicate of polars is.

    It may be true elsewhere, too, where a part of the predicate is not known here. None if nothing
    of it is known.
    """
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except (ValueError, pl.exceptions.PolarsError):  # what cannot be written as JSON, as a function
        return None
    return _read(tree, is_exact=False)


def _read(node: Any, *, is_exact: bool) -> pc.Expression | None:
    """Return the expression of a node; None if it is not known.

    Args:
        is_exact: do not leave out a part of it, because a wider one would not be right here.
    """
    match node:
        case {"BinaryExpr": {"left": left, "op": op, "right": right}} if op in _LOGIC:
            parts = [_read(part, is_exact=is_exact) for part in (left, right)]
            known = [part for part in parts if part is not None]
            if len(known) == 1 and op != "Or" and not is_exact:
                return known[0]
            if len(known) < 2:
                return None
            return known[0] & known[1] if op != "Or" else known[0] | known[1]
        case {"BinaryExpr": {"left": left, "op": op, "right": right}} if op in _COMPARISONS:
            return _compared(_COMPARISONS[op], _operand(left), _operand(right))
        case {"Function": {"input": [inner], "function": {"Boolean": "Not"}}}:
            negated = _read(inner, is_exact=True)
            return None if negated is None else ~negated
        case {
            "Function": {"input": [inner], "function": {"Boolean": "IsNull" | "IsNotNull" as how}}
        }:
            operand = _operand(inner)
            if operand is None:
                return None
            return operand.is_null() if how == "IsNull" else operand.is_valid()
        case {
            "Function": {
                "input": [inner, low, high],
                "function": {"Boolean": {"IsBetween": {"closed": closed}}},
            }
        }:
            operand = _operand(inner)
            first = operator.ge if closed in ("Both", "Left") else operator.gt
            last = operator.le if closed in ("Both", "Right") else operator.lt
            lower = _compared(first, operand, _operand(low))
            upper = _compared(last, operand, _operand(high))
            return None if lower is None or upper is None else lower & upper
        case {
            "Function": {
                "input": [inner, {"Literal": {"Scalar": {"List": content}}}],
                "function": {"Boolean": {"IsIn": {"nulls_equal": False}}},
            }
        }:
            return _membership(_operand(inner), content)
    return None


def _compared(
    comparison: Callable[[Any, Any], pc.Expression],
    left: pc.Expression | None,
    right: pc.Expression | None,
) -> pc.Expression | None:
    return None if left is None or right is None else comparison(left, right)


def _operand(node: Any) -> pc.Expression | None:
    """Return a column or a literal; None if it is neither, or of another type."""
    match node:
        case {"Column": str(name)} if name in SCHEMA.names:
            return pc.field(name)
        case {"Literal": {"Scalar": {"Datetime": [int(value), unit, {"inner": _} | None as zone]}}}:
            if zone is None or unit not in _PER_SECOND:
                return None
            return pc.scalar(pa.scalar(value, pa.timestamp(_PER_SECOND[unit], tz="UTC")))
        case {"Literal": {"Scalar": scalar}} if isinstance(scalar, dict) and len(scalar) == 1:
            return _integer(*next(iter(scalar.items())))
        case {"Literal": {"Dyn": {"Int": int(value)}}}:
            return _integer("Int", value)
    return None


def _integer(kind: str, value: object) -> pc.Expression | None:
    if kind not in _INTEGERS or not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
        return None
    return pc.scalar(pa.scalar(value, pa.int64()))


def _membership(operand: pc.Expression | None, content: Sequence[int]) -> pc.Expression | None:
    """Return "is one of a list", which polars writes as an Arrow stream of one list."""
    if operand is None:
        return None
    try:
        values = pl.read_ipc_stream(bytes(content)).to_series().explode().drop_nulls()
    except (ValueError, TypeError, pl.exceptions.PolarsError):
        return None
    if not values.dtype.is_integer():
        return None
    return operand.isin(pa.array(values.to_list(), pa.int64()))
