"""Format "horolog" of Spark: a log as a DataFrame, from a broker or files; and writes to a broker.

    from horolog.spark import session

    spark = session()
    records = spark.read.format("horolog").load("/var/lib/kafka/data")
    records.where("timestamp between '2026-11-17 09:00' and '2026-11-17 10:00'").show()

A session that runs already learns the format with `register(spark)`.

    source    the format, sessions, what `load()`, `save()` and `start()` do
    read      the readers of batch and streaming queries, on top of `horolog.sources`
    write     the writers, on top of the client's producer
    errors, workers, masters    what all of them need of Spark
"""

from horolog.extras import MissingExtra

try:
    import pyarrow  # noqa: F401 - only to know that it is there
    from pyspark.sql.datasource import Filter  # noqa: F401 - since PySpark 4.1
except ImportError as error:
    raise MissingExtra(
        "horolog.spark needs PySpark 4.2 or later and pyarrow: pip install 'horolog[spark]'",
        name=error.name,
        path=error.path,
    ) from error

from horolog.spark.read.lag import LagListener, PartitionLag, QueryLag, lag_of, with_late_counted
from horolog.spark.read.progress import await_end
from horolog.spark.source.session import register, session

__all__ = [
    "LagListener",
    "PartitionLag",
    "QueryLag",
    "await_end",
    "lag_of",
    "register",
    "session",
    "with_late_counted",
]
