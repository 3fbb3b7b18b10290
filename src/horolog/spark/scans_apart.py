"""What `load()` returns: a DataFrame whose scans are each planned by themselves.

Spark up to 4.3 plans all scans of a Python source together: what one query pushes
down, another reads (SPARK-58551), and without a filter the first plan is kept for
good, whatever has been appended. Where the session has a JVM at hand, `load()` puts a
table of our own under the DataFrame, which gives each scan a provider of its own: a plan
that is never run, by `explain()` or `cache()`, concerns nobody else, and each query
sees the log as it is then. The table is a few lines of Java (`LogScans.java`), compiled
by Janino, which Spark itself compiles its queries with.

Over Spark Connect, and where this fails, `pushes` keeps the rows right.
"""

import warnings
from functools import wraps
from importlib import resources
from typing import Any

from horolog.spark.errors import beginning_with_ours
from horolog.spark.pushes import marked

_JAVA = "LogScans.java"
_CLASS = "horolog.spark.LogScans"

_compiled: dict[int, tuple[Any, Any]] = {}
"""For each JVM, by the id of its gateway: the gateway, and our object in there."""


def adapt_loads(reader: type[Any], name: str) -> None:
    """Let `load()` of this class of DataFrameReader keep the scans of a format apart."""
    if hasattr(reader.load, "__wrapped__"):
        return
    plain_format, plain_load = reader.format, reader.load

    @wraps(plain_format)
    def choose(self: Any, source: str) -> Any:
        self._is_ours = source.lower() == name
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
        if not getattr(self, "_is_ours", False):
            return plain_load(self, path, None, schema, **options)
        with beginning_with_ours():
            return _apart(plain_load(self, path, None, schema, **options))

    reader.format, reader.load = choose, load


def _apart(frame: Any) -> Any:
    """The DataFrame with scans of its own; with marks where that cannot be."""
    if not hasattr(frame, "_jdf"):  # Spark Connect
        return marked(frame)
    try:
        return type(frame)(_table_of_our_own(frame), frame.sparkSession)
    except Exception as error:  # noqa: BLE001 - whatever another Spark does not have
        warnings.warn(
            "horolog cannot give each scan of this Spark a plan of its own, so that queries of "
            f"one load() may read more than their filters need (SPARK-58551): {error}",
            RuntimeWarning,
            stacklevel=3,
        )
        return marked(frame)


def _table_of_our_own(frame: Any) -> Any:
    from pyspark.serializers import CloudPickleSerializer  # noqa: PLC0415 - not over Connect

    gateway = frame.sparkSession.sparkContext._gateway
    known = _compiled.get(id(gateway))
    if known is None:
        known = _compiled[id(gateway)] = gateway, _compile(gateway, frame._jdf)
    scans = known[1]
    pickles: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    source = pickles.loads(bytes(scans.source(frame._jdf)))
    source.scans_apart = True
    return scans.apart(frame._jdf, bytearray(pickles.dumps(source)))


def _compile(gateway: Any, frame: Any) -> Any:
    """Our object in the JVM."""
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(frame.getClass().getClassLoader())
    compiler.cook((resources.files("horolog.spark") / _JAVA).read_text())
    found = compiler.getClassLoader().loadClass(_CLASS)
    return found.getConstructors()[0].newInstance(gateway.new_array(gateway.jvm.Object, 0))
