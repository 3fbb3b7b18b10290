"""Checks of the table or the function of `reprocess`, before a run begins."""

import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    NullType,
    StructType,
)

from horolog.sources.uris import local_path

OUTPUT_MODES: Final = ("append", "update", "complete")
CHECKPOINT: Final = "checkpoint"
"""Name of the stream's checkpoint in the state directory."""
_LOG: Final = "_spark_metadata"  # of Spark's file sink, in the table


def table_refusals(
    table: str, output_mode: str, state: Path | None, *, is_begun: bool
) -> Iterator[str]:
    """Yield the reasons why nothing can be written to a directory of Parquet files.

    Of a directory that is not local only Spark knows more.

    Args:
        table: a path, or any URI of Spark's.
        is_begun: whether an earlier run with this state has begun to fill it.
    """
    if output_mode != "append":
        yield f"a table takes the output mode append only, not {output_mode}"
    local = local_path(table)
    if local is None:
        return
    path = Path(local).absolute()
    if is_begun and state is not None and _has_committed(state) and not (path / _LOG).is_dir():
        yield (
            f"{table} was filled with this state directory, and what lists its files is gone: it "
            "was removed or created again since. Give another --state to fill it from the beginning"
        )
        return
    if state is not None:
        kept = Path(state).absolute()
        if path == kept or path in kept.parents or kept in path.parents:
            yield f"{table} and the state directory {state} are one in the other: keep them apart"
            return
    if path.is_dir():
        if not is_begun and any(path.iterdir()):
            # Spark's readers would no longer see the files of others.
            yield (
                f"{table} is not empty, and this is the first run with this state directory: give "
                "an empty directory, or the state directory of the run that filled it"
            )
        if not os.access(path, os.W_OK | os.X_OK):
            yield f"{table} cannot be written to"
        return
    existing = next(parent for parent in (path, *path.parents) if os.path.lexists(parent))
    if not existing.is_dir():
        yield f"{table} cannot be created: {existing} is no directory"
    elif not os.access(existing, os.W_OK | os.X_OK):
        yield f"{table} cannot be created: {existing} cannot be written to"


def _has_committed(state: Path) -> bool:
    """True if the checkpoint says that a micro-batch was written."""
    return any(file.name.isdecimal() for file in (Path(state) / CHECKPOINT / "commits").glob("*"))


def schema_refusals(schema: StructType) -> Iterator[str]:
    """Yield the reasons why Parquet cannot store the rows of a stream."""
    often = Counter(name.lower() for name in schema.names)
    for name in sorted(name for name, count in often.items() if count > 1):
        yield f"a table has a column {name} once, and the stream has it {often[name]} times"
    for field in schema.fields:
        if kind := _unknown_to_parquet(field.dataType):
            yield f"a table has no place for the column {field.name}, which is {kind}"


def _unknown_to_parquet(kind: DataType) -> str | None:
    match kind:
        case NullType() | CalendarIntervalType():
            return kind.simpleString()
        case ArrayType():
            return _unknown_to_parquet(kind.elementType)
        case MapType():
            return _unknown_to_parquet(kind.keyType) or _unknown_to_parquet(kind.valueType)
        case StructType():
            kinds = (_unknown_to_parquet(field.dataType) for field in kind.fields)
            return next((name for name in kinds if name), None)
        case _:
            return None


def function_refusals(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the reason why a function cannot be called with a DataFrame and a number."""
    try:
        inspect.signature(function).bind(None, 0)
    except TypeError as error:
        name = getattr(function, "__qualname__", repr(function))
        yield f"the function {name} takes no DataFrame and number of a micro-batch: {error}"
    except ValueError:
        pass  # a builtin that does not say what it takes
