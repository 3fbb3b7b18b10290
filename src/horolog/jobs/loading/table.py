"""The table that is loaded, as Spark reads it."""

import os
import re
from collections.abc import Mapping
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from horolog.errors import Misconfigured
from horolog.sources.uris import absolute, shown

_CALL: Final = re.compile(r"An error occurred while calling \S+\s+: (?:[a-z]\w*\.)*")
_CSV: Final = {"header": "true", "inferSchema": "true"}


def frame_of(
    spark: SparkSession,
    table: DataFrame | str | os.PathLike[str],
    form: str | None,
    options: Mapping[str, str] | None,
) -> DataFrame:
    """A DataFrame as it is, or what a path holds.

    Raises:
        Misconfigured: Spark cannot read it, or a DataFrame has options.
    """
    if isinstance(table, DataFrame):
        if form is not None or options:
            raise Misconfigured("format and options are of a path, and the table is a DataFrame")
        return table
    path = os.fspath(table)  # relative to this process, whatever Spark's is
    chosen = (form or ("csv" if path.endswith((".csv", ".csv.gz")) else "parquet")).lower()
    given = {**(_CSV if chosen == "csv" else {}), **(options or {})}
    reader = spark.read.format(chosen).options(**given)
    try:
        return reader.load() if chosen == "jdbc" else reader.load(absolute(path))
    except (PySparkException, Py4JJavaError) as error:  # the second is a driver's of JDBC
        raise Misconfigured(f"table {shown(path)}: {first_line(error)}") from None


def first_line(error: Exception) -> str:
    """What Spark says, without the trace behind it."""
    return _CALL.sub("", str(error).strip(), count=1).partition("\n")[0]
