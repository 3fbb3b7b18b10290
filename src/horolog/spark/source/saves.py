"""Replaces `save()` and `start()` in the user's process, for the format "horolog".

Spark refuses some modes before the format is asked. Where `register` was called, the default
mode of a batch appends, as with Spark's Kafka sink, other modes are refused with a sentence
that says what to do, and errors of ours come first in what the user reads.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from horolog.spark.errors import beginning_with_ours
from horolog.spark.source.adapting import adapt, adapt_choices, has_format, is_adapted
from horolog.spark.source.log_source import FORMAT, NO_TABLE

_UNSUPPORTED_MODE = "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"
_UPDATE = (
    "Output mode 'update' is not supported, as Spark gives it to no Python sink: write each "
    "micro-batch with foreachBatch(lambda rows, _: "
    'rows.write.format("horolog").options(...).mode("append").save()), which has the same rows'
)


def adapt_writes(spark: SparkSession) -> None:
    """Adapt the writers of this kind of session, classic or of Spark Connect."""
    package = "pyspark.sql"
    if type(spark.read).__module__.startswith("pyspark.sql.connect."):
        package = "pyspark.sql.connect"
    writer = import_module(f"{package}.readwriter").DataFrameWriter
    if is_adapted(writer.save):
        return
    streaming = import_module(f"{package}.streaming.readwriter").DataStreamWriter
    query = import_module(f"{package}.streaming.query").StreamingQuery
    adapt_choices(writer)
    adapt_choices(streaming)
    adapt(writer, "save", _save)
    adapt(writer, "saveAsTable", _refuse_table)
    adapt(streaming, "toTable", _refuse_table)
    adapt(streaming, "outputMode", _choose_mode)
    adapt(streaming, "start", _start)
    adapt(query, "awaitTermination", _await_query)
    adapt(query, "processAllAvailable", _await_query)


def _save(
    plain: Any,
    self: Any,
    /,
    path: Any = None,
    format: Any = None,  # noqa: A002 - Spark's name
    mode: Any = None,
    partitionBy: Any = None,
    **options: Any,
) -> None:
    if not has_format(self, format):
        plain(self, path, None, mode, partitionBy, **options)
        return
    if path is not None:
        raise AnalysisException(
            "A write goes to a broker: give it option 'kafka.bootstrap.servers' and no path"
        )
    with beginning_with_ours(self), _active(self):
        try:
            plain(self, None, None, mode, partitionBy, **options)
        except AnalysisException as error:
            if error.getCondition() != _UNSUPPORTED_MODE:
                raise
            if "errorifexists" not in str(error).lower():
                raise AnalysisException(
                    "Mode 'ignore' is not supported: a log is appended to; write with "
                    '.mode("append")'
                ) from None
            # The default. Spark's Kafka sink appends then, topic or no topic.
            plain(self, None, None, "append", partitionBy)


@contextmanager
def _active(writer: Any) -> Iterator[None]:
    """Make the session of a writer the active one of the JVM, in whichever thread this is.

    Spark looks a Python source up in the active session of the thread, and a thread that Python
    started has none. Over Spark Connect the server sets it.
    """
    spark: Any = getattr(writer, "_spark", None)
    if not hasattr(spark, "_jsparkSession"):
        yield
        return
    sessions = spark._jvm.org.apache.spark.sql.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def _refuse_table(plain: Any, self: Any, /, *arguments: Any, **named: Any) -> Any:
    given = named.get("format", arguments[1] if len(arguments) > 1 else None)
    if has_format(self) if given is None else given.lower() == FORMAT:
        raise AnalysisException(f"{NO_TABLE}, and write with save(), or start() of a stream")
    return plain(self, *arguments, **named)


def _choose_mode(plain: Any, self: Any, outputMode: str) -> Any:
    self._output_mode = outputMode
    return plain(self, outputMode)


def _start(
    plain: Any,
    self: Any,
    /,
    path: Any = None,
    format: Any = None,  # noqa: A002 - Spark's name
    outputMode: Any = None,
    *others: Any,
    **options: Any,
) -> Any:
    if not has_format(self, format):
        return plain(self, path, None, outputMode, *others, **options)
    mode = outputMode if outputMode is not None else getattr(self, "_output_mode", None)
    if isinstance(mode, str) and mode.lower() == "update":
        raise AnalysisException(_UPDATE)
    with beginning_with_ours(self), _active(self):
        return plain(self, path, None, outputMode, *others, **options)


def _await_query(plain: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    with beginning_with_ours(keep=True):
        return plain(self, *arguments, **named)
