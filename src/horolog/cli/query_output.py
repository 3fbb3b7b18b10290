"""The rows of a query as a table, CSV, JSON lines or Parquet. Imports pyarrow."""

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet

from horolog.cli.output_file import whole_file
from horolog.cli.screen import say, show_table
from horolog.cli.showing import json_bytes
from horolog.cli.terminal import json_line
from horolog.errors import Misconfigured
from horolog.times import format_moment

__all__ = ["write"]

MOST_SHOWN: Final = 1_000
"""Rows of a table for people."""

_MOST_US: Final = (1 << 63) - 1
_MOST_DAYS: Final = (1 << 31) - 1
_DAY_MS: Final = 86_400_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PER_US: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}

_Rows = Iterator[Sequence[Any]]


def write(reader: pa.RecordBatchReader, shape: str, output: Path | None, zone: tzinfo) -> None:
    """Write the rows of a query to a file, or to standard output.

    A file appears when it is complete; an error leaves what was there before.

    Raises:
        StorageFailed: the file cannot be written.
    """
    if shape == "parquet":
        assert output is not None
        with (
            whole_file(output) as file,
            pyarrow.parquet.ParquetWriter(file, reader.schema) as writer,
        ):
            for batch in reader:
                writer.write_batch(batch)
        return
    if shape == "table":
        _show(reader, output, zone)
        return
    lines = _csv_lines if shape == "csv" else _json_lines
    if output is None:
        for line in lines(reader, zone):
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        return
    with whole_file(output) as file:
        for line in lines(reader, zone):
            file.write(line)


def _show(reader: pa.RecordBatchReader, output: Path | None, zone: tzinfo) -> None:
    if output is not None:
        raise Misconfigured(f"{output}: a file is csv, json or parquet; give --format")
    shown: list[list[Any]] = []
    more = 0
    for row in _rows(reader, zone):
        if len(shown) < MOST_SHOWN:
            shown.append([_text(cell) for cell in row])
        else:
            more += 1
    show_table(reader.schema.names, shown)
    if more:
        say(f"{more:,} more rows are not shown: --format csv or json has all")


def _csv_lines(reader: pa.RecordBatchReader, zone: tzinfo) -> Iterator[bytes]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")

    def line(cells: Sequence[Any]) -> bytes:
        text.seek(0)
        text.truncate()
        writer.writerow(cells)
        return text.getvalue().encode("utf-8", "backslashreplace")

    yield line(reader.schema.names)
    for row in _rows(reader, zone):
        yield line([_text(cell) for cell in row])


def _json_lines(reader: pa.RecordBatchReader, zone: tzinfo) -> Iterator[bytes]:
    names = reader.schema.names
    for row in _rows(reader, zone):
        members: dict[str, Any] = {}
        for name, cell in zip(names, row, strict=True):
            members |= _member(name, cell)
        yield json_line(members).encode() + b"\n"


def _member(name: str, value: Any) -> dict[str, Any]:
    """A member of a JSON object; one with bytes that are no text has `_base64` in its name."""
    match value:
        case bytes():
            return json_bytes(name, value)
        case list():
            return {name: [_inner(item) for item in value]}
        case dict():
            return {name: _inner(value)}
        case float() if not isfinite(value):  # JSON has no number for it
            return {name: str(value)}
        case None | bool() | int() | float() | str():
            return {name: value}
        case _:
            return {name: str(value)}


def _inner(value: Any) -> Any:
    if isinstance(value, dict):
        members: dict[str, Any] = {}
        for name, item in value.items():
            members |= _member(str(name), item)
        return members
    return next(iter(_member("value", value).values()))


def _text(cell: Any) -> Any:
    """A cell of a table or of CSV: bytes as text, lists as JSON."""
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "backslashreplace")
    if isinstance(cell, list | dict):
        return json_line(_inner(cell) if isinstance(cell, dict) else [_inner(it) for it in cell])
    return cell


def _rows(reader: pa.RecordBatchReader, zone: tzinfo) -> _Rows:
    for batch in reader:
        columns = [_cells(column, zone) for column in batch.columns]
        yield from zip(*columns, strict=True)


def _cells(column: pa.Array, zone: tzinfo) -> list[Any]:
    """The values of a column; times as texts, because Python has none beyond the year 9999."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit in _PER_US:
        per, within = _PER_US[kind.unit], zone if kind.tz else None
        counts = column.cast(pa.int64()).to_pylist()
        return [None if count is None else _moment(count * per, within) for count in counts]
    if pa.types.is_date32(kind):
        return [None if day is None else _day(day) for day in column.cast(pa.int32()).to_pylist()]
    cells: list[Any]
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        inner, ends = _cells(column.values, zone), column.offsets.to_pylist()
        cells = [inner[first:end] for first, end in pairwise(ends)]
    elif pa.types.is_struct(kind) and kind.num_fields:
        names = [field.name for field in kind]
        members = zip(*(_cells(member, zone) for member in column.flatten()), strict=True)
        cells = [dict(zip(names, values, strict=True)) for values in members]
    else:
        cells = column.to_pylist()
        return cells
    known = column.is_valid().to_pylist()
    return [cell if is_known else None for cell, is_known in zip(cells, known, strict=True)]


def _day(day: int) -> str:
    """Return a date as ISO 8601; the largest and the least are infinite in DuckDB."""
    if abs(day) == _MOST_DAYS:
        return "infinity" if day > 0 else "-infinity"
    try:
        return (_EPOCH + timedelta(days=day)).date().isoformat()
    except OverflowError:
        return format_moment(day * _DAY_MS)


def _moment(us: int, zone: tzinfo | None) -> str:
    """A time as ISO 8601, to the microsecond where it has any; without a zone if there is none."""
    if abs(us) >= _MOST_US:
        return "infinity" if us > 0 else "-infinity"
    if zone is not None and not us % 1000:
        return format_moment(us // 1000, zone)
    try:
        moment = _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return format_moment(us // 1000)
    return (moment.replace(tzinfo=None) if zone is None else moment.astimezone(zone)).isoformat()
