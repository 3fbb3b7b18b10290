"""A program for test_killed_writes.py: writes with Spark while attempts are killed.

    python killed_writes.py SCENARIO BOOTSTRAP DIRECTORY

A Spark of its own, as local[2] of the tests' session never runs a task again.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import SparkSession

from horolog.spark import session
from horolog.spark.source.log_source import LogSource
from horolog.spark.write.sink import LogBatchWriter
from horolog.spark.write.task import TaskAttempt, TaskCommitMessage

ROWS = 2_000
TASKS = 4
PATIENCE_S = 240
QUIET: dict[str, str | int | bool] = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": 50,
    "spark.python.authenticate.socketTimeout": "20m",
    "spark.network.timeout": "20m",
}


class KillingWriter(LogBatchWriter):
    """Appends as horolog's writer, and is killed at what `fate` says of an attempt."""

    fate: dict[tuple[int, int], str]
    directory: str

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        context = TaskContext.get()
        assert context is not None
        attempt = TaskAttempt.current()
        fate = self.fate.get((attempt.partition, attempt.number))

        def rows() -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(iterator):
                if number == 3 and fate == "killed half-way":
                    os.kill(os.getpid(), signal.SIGKILL)
                yield batch

        appended = super().write(rows())
        if fate == "killed before its commit":
            os.kill(os.getpid(), signal.SIGKILL)
        if fate == "waits for a copy of itself":
            give_up = time.monotonic() + PATIENCE_S
            while not Path(self.directory, "copied").exists() and time.monotonic() < give_up:
                time.sleep(0.05)  # until Spark starts a speculative one
        if fate == "is that copy":
            Path(self.directory, "copied").touch()
        if fate == "its executor is killed":
            os.kill(_java_above(os.getppid()), signal.SIGKILL)
        return appended


def _java_above(pid: int) -> int:
    """The executor that a Python worker belongs to."""
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def source_of(fate: dict[tuple[int, int], str], directory: str) -> type[LogSource]:
    class KillingSource(LogSource):
        @classmethod
        def name(cls) -> str:
            return "killing"

        def writer(self, schema: Any, overwrite: bool) -> LogBatchWriter:
            plain = super().writer(schema, overwrite)
            writer = KillingWriter(plain.columns, plain.options)
            writer.fate, writer.directory = fate, directory
            return writer

    return KillingSource


def write_rows(spark: SparkSession, bootstrap: str) -> None:
    frame = spark.range(0, ROWS, 1, TASKS).selectExpr("cast(id as string) value")
    writer = frame.write.format("killing").option("kafka.bootstrap.servers", bootstrap)
    writer.option("topic", "out").mode("append").save()


def tasks(bootstrap: str, directory: str) -> None:
    """Tasks are killed, half-way and between the last append and the commit."""
    spark = session("killed writes", master="local[2,4]", **QUIET)
    fate = {
        (0, 0): "killed before its commit",
        (1, 0): "killed half-way",
        (1, 1): "killed before its commit",
    }
    spark.dataSource.register(source_of(fate, directory))
    write_rows(spark, bootstrap)


def _home_in(directory: str) -> Path:
    """A SPARK_HOME to write below, which clusters do."""
    home = Path(directory, "home")
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    os.environ["SPARK_HOME"] = str(home)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return home


def cluster(bootstrap: str, directory: str) -> None:
    """An executor is killed, one of two that are processes of their own."""
    _home_in(directory)
    spark = session(
        "killed writes",
        master="local-cluster[2,1,768]",
        **QUIET
        | {
            "spark.executor.memory": "512m",
            "spark.ui.enabled": False,
        },
    )
    fate = {(0, 0): "its executor is killed"}
    spark.dataSource.register(source_of(fate, directory))
    write_rows(spark, bootstrap)


def speculation(bootstrap: str, directory: str) -> None:
    """A slow task has a copy on another host, as Spark starts none on the same one."""
    home = _home_in(directory)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    def start(role: str, host: str, *arguments: str) -> None:
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}"]
        command += ["--host", host, "--webui-port", "0", *arguments]
        subprocess.Popen(command, env={**os.environ, "SPARK_LOCAL_IP": host})

    start("master.Master", "127.0.0.1", "--port", str(port))
    master = f"spark://127.0.0.1:{port}"
    for host in ("127.0.0.2", "127.0.0.3"):
        work = f"{directory}/work-{host}"
        start("worker.Worker", host, "-c", "1", "-m", "1g", "--work-dir", work, master)
    spark = session(
        "killed writes",
        master=master,
        **QUIET
        | {
            "spark.executor.memory": "512m",
            "spark.ui.enabled": False,
            "spark.speculation": True,
            "spark.speculation.interval": "100ms",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.minTaskRuntime": "1s",
        },
    )
    fate = {(3, 0): "waits for a copy of itself", (3, 1): "is that copy"}
    spark.dataSource.register(source_of(fate, directory))
    write_rows(spark, bootstrap)


def stream(bootstrap: str, directory: str, *plan: str) -> None:
    """A stream from one topic to another, up to what is available; `plan`: limit and tasks."""
    limit, tasks = plan
    spark = session("killed writes", master="local[2]", **QUIET)
    reader = spark.readStream.format("horolog").option("kafka.bootstrap.servers", bootstrap)
    frame = reader.options(
        subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger=limit
    ).load()
    writer = frame.select("value").repartition(int(tasks)).writeStream.format("horolog")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", "out")
    writer = writer.option("checkpointLocation", f"{directory}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    scenario, *arguments = sys.argv[1:]
    scenarios = {
        "tasks": tasks,
        "cluster": cluster,
        "speculation": speculation,
        "stream": stream,
    }
    scenarios[scenario](*arguments)
    os._exit(0)  # some of its Python workers are gone: Spark would wait for them
