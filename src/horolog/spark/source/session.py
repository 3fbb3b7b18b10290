"""Sessions that know the format "horolog"."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import resources

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from horolog.spark.masters import is_local, parallelism
from horolog.spark.source.java import require_java
from horolog.spark.source.log_source import LogSource
from horolog.spark.source.saves import adapt_writes
from horolog.spark.source.scans_apart import adapt_loads
from horolog.spark.workers import DAEMON

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
PLAN_CACHE = "spark.connect.session.planCache.enabled"


def register(spark: SparkSession) -> None:
    """Register the format "horolog" with a session, and turn on filter push-down.

    Works over Spark Connect too, whose cache of analysed plans is turned off for the session:
    queries that share an analysed `load()` share its plan (see `pushes`). Workers have to have
    horolog[spark] installed as well: on this machine they take the running Python unless
    PYSPARK_PYTHON names another.
    """
    is_connect = _is_connect(spark)
    if (
        not is_connect
        and is_local(spark.sparkContext.master or "")
        and not os.environ.get("PYSPARK_PYTHON")
    ):
        # What PySpark falls back to, `python3`, may be another than that of a virtual environment.
        spark.sparkContext.pythonExec = sys.executable
    # A class of its own carries to the planner what only the session knows.
    cores = parallelism(lambda name: spark.conf.get(name, None))
    source = type(LogSource.__name__, (LogSource,), {"cores": cores})
    spark.dataSource.register(source)
    spark.conf.set(PUSH_DOWN, "true")
    if is_connect:
        with suppress(PySparkException):  # a server that has no such cache
            spark.conf.set(PLAN_CACHE, "false")
    adapt_loads(type(spark.read))
    adapt_writes(spark)


def session(
    app_name: str = "horolog", *, master: str | None = None, **conf: str | int | bool
) -> SparkSession:
    """Return a session with the format "horolog": local, quiet and in UTC unless one exists.

    A session that is running already is used as it is, and so is the cluster of
    `spark-submit` or `SPARK_REMOTE`. Without any of these Spark starts on this machine,
    with all its cores and the running Python.

    Args:
        app_name: what Spark calls the application.
        conf: Spark's settings, given as `**{"spark.driver.memory": "2g"}`; they win over
            what is set here.

    Raises:
        Misconfigured: there is no Java that Spark can use.
    """
    spark = _running()
    if spark is None:
        spark = _start(app_name, master, conf)
    register(spark)
    return spark


def _running() -> SparkSession | None:
    """Return the running session of this process or thread; None without one."""
    try:
        spark = SparkSession.active()
    except PySparkException:
        return None
    is_stopped = not _is_connect(spark) and SparkContext._active_spark_context is None
    return None if is_stopped else spark


def _is_connect(spark: SparkSession) -> bool:
    return type(spark.read).__module__.startswith("pyspark.sql.connect.")


def _start(app_name: str, master: str | None, conf: Mapping[str, str | int | bool]) -> SparkSession:
    builder = SparkSession.builder.appName(app_name)
    given = {name: _text(value) for name, value in conf.items()}
    if master is not None:
        given["spark.master"] = master
    settings = {"spark.sql.session.timeZone": "UTC", **given}
    is_remote = "SPARK_REMOTE" in os.environ or "spark.remote" in given
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not is_remote and not is_submitted:
        settings.setdefault("spark.master", "local[*]")
        if SparkContext._gateway is None:
            require_java(os.environ)
    if is_local(settings.get("spark.master", "")):
        _use_this_machine()
        settings = {**_local_settings(), **settings}
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _use_this_machine() -> None:
    """Set the environment that Spark reads when its JVM starts."""
    # Else workers are whatever `python3` is, and fail with "No module named pyarrow".
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _local_settings() -> dict[str, str]:
    quiet = resources.files("horolog.spark.source") / "log4j2.properties"
    # Up to Spark 4.3 a query with `foreachBatch` that is stopped amid a batch searches the error's
    # text with a pattern that takes a stack frame a character
    # (StreamExecution.isInterruptionException, since SPARK-39218).
    java_options = f"-Xss16m -Dlog4j2.configurationFile=file:{quiet}"
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": java_options,
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        # On their way to Python, batches that stay in the processor's caches cost a fifth less.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
        "spark.python.daemon.module": DAEMON,
    }


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
