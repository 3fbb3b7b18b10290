"""Give each scan of a DataFrame that `load()` returns a plan of its own.

Spark up to 4.3 plans all scans of a Python source together: what one query pushes
down, another reads (SPARK-58551), and without a filter the first plan is kept for
good, whatever has been appended. Where the session has a JVM at hand, `load()` puts a
table of our own under the DataFrame, which gives each scan a provider of its own: a plan
that is never run, by `explain()` or `cache()`, concerns no other query, and each query
sees the log as it is then (`apart_table`).

Over Spark Connect, and where this fails, `pushes` keeps the rows right.
"""

import warnings
from typing import Any

from horolog.spark.errors import beginning_with_ours
from horolog.spark.read.pushes import marked
from horolog.spark.source.adapting import adapt, adapt_choices, has_format, is_adapted
from horolog.spark.source.apart_table import ApartTables

_TABLES = "_horolog_apart_tables"  # kept with the gateway, as what it asks the JVM is the same


def adapt_loads(reader: type[Any]) -> None:
    """Let `load()` of this class of DataFrameReader give each scan a plan of its own."""
    if not is_adapted(reader.load):
        adapt_choices(reader)
        adapt(reader, "load", _load)


def _load(
    plain: Any,
    self: Any,
    /,
    path: Any = None,
    format: Any = None,  # noqa: A002 - Spark's name
    schema: Any = None,
    **options: Any,
) -> Any:
    if not has_format(self, format):
        return plain(self, path, None, schema, **options)
    with beginning_with_ours(self):
        return apart(plain(self, path, None, schema, **options))


def apart(frame: Any) -> Any:
    """Return the DataFrame with a plan for each scan, or with marks where that is impossible."""
    if not hasattr(frame, "_jdf"):  # Spark Connect
        return marked(frame)
    try:
        return type(frame)(with_scans_apart(frame), frame.sparkSession)
    except Exception as error:  # noqa: BLE001 - whatever another Spark does not have
        warnings.warn(
            "horolog cannot give each scan of this Spark a plan of its own, so that queries of "
            f"one load() may read more than their filters need (SPARK-58551): {error}",
            RuntimeWarning,
            stacklevel=4,
        )
        return marked(frame)


def with_scans_apart(frame: Any) -> Any:
    """Return the JVM's DataFrame over a table that plans each scan by itself."""
    from pyspark.serializers import CloudPickleSerializer  # noqa: PLC0415 - not over Connect

    gateway, shared = frame.sparkSession.sparkContext._gateway, frame._jdf
    tables = vars(gateway).get(_TABLES)  # getattr would ask the JVM
    if tables is None:
        tables = ApartTables(gateway, shared.getClass().getClassLoader())
        setattr(gateway, _TABLES, tables)
    relation = shared.queryExecution().analyzed()
    python, created = tables.source(relation)
    pickles: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]  # py4j and PySpark lack types
    source = pickles.loads(bytes(created.dataSource()))
    source.scans_apart = True
    ours = created.copy(bytearray(pickles.dumps(source)), created.schema())
    plan = tables.over(relation, python, ours)
    return shared.ofRows(frame.sparkSession._jsparkSession, plan)
