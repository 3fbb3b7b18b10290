"""Lets Spark find the format "horolog" without a call to `horolog.spark.register`.

Spark imports every module named `pyspark_*` and takes its `DefaultSource`. Filters are
pushed down only if `spark.sql.python.filterPushdown.enabled` is true, which `register`
sets; without it a read is complete, and slower.
"""

from horolog.spark.source.log_source import LogSource as DefaultSource

__all__ = ["DefaultSource"]
