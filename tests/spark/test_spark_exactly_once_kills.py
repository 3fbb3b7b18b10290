"""Option `exactlyOnce` while tasks, executors, the driver and the broker are killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from committed import numbers_committed
from patience import PATIENCE_S
from running_broker import BrokerProcess, a_broker_process

from horolog.client import Client, NoAnswer, Producer
from horolog.errors import RequestRefused

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 40_000

# Four tasks on two executors. At its first attempt task 0 ends after all its rows, task 2 kills its
# executor after its own.
CLUSTER = """
import os, signal, sys, time
from pyspark.sql import SparkSession
from horolog.spark.write.sink import LogBatchWriter
from horolog.spark.source.log_source import LogSource

address, rows, marks = sys.argv[1], int(sys.argv[2]), sys.argv[3]

class FaultyWriter(LogBatchWriter):
    def write(self, iterator):
        from pyspark import TaskContext
        task = TaskContext.get().partitionId()
        message = super().write(iterator)
        try:
            os.close(os.open(f"{marks}/{task}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return message
        if task == 0:
            os._exit(1)
        if task == 2:
            with open(f"/proc/{os.getppid()}/stat") as file:  # the parent of workers' daemon
                os.kill(int(file.read().rpartition(")")[2].split()[1]), signal.SIGKILL)
            time.sleep(120)
        return message

class Faulty(LogSource):
    @classmethod
    def name(cls):
        return "faulty"

    def writer(self, schema, overwrite):
        return FaultyWriter(*self._sink(schema))

spark = (
    SparkSession.builder.master("local-cluster[2,1,1024]")
    .config("spark.ui.enabled", "false")
    .config("spark.task.maxFailures", "10")
    .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
    .getOrCreate()
)
spark.dataSource.register(Faulty)
frame = spark.range(0, rows, 1, 4).selectExpr("cast(id as string) value")
options = {"kafka.bootstrap.servers": address, "topic": "out", "kafka.batch.size": "3000"}
writer = frame.write.format("faulty").options(exactlyOnce="true", writeName="w", **options)
writer.option("writeBatch", "0").mode("append").save()
spark.stop()
"""

STREAM = """
import sys
from horolog.spark import session

address, checkpoint = sys.argv[1:3]
spark = session("kills", master="local[2]")
broker = {"kafka.bootstrap.servers": address}
log = spark.readStream.format("horolog").options(subscribe="in", startingOffsets="earliest")
log = log.options(maxOffsetsPerTrigger="2000", minPartitions="2", **broker).load()
frame = log.selectExpr("cast(value as string) value")
writer = frame.writeStream.format("horolog").options(topic="out", exactlyOnce="true", **broker)
writer = writer.option("kafka.batch.size", "2000").option("checkpointLocation", checkpoint)
print("starting", flush=True)
writer.trigger(availableNow=True).start().awaitTermination()
print("done", flush=True)
"""


broker = a_broker_process()


def end_of(client: Client, topic: str) -> int:
    """How many records a topic has; 0 while the broker is away."""
    try:
        ends = client.list_offsets({(topic, partition): -1 for partition in range(2)})
    except (NoAnswer, RequestRefused):
        return 0
    return sum(found.offset for found in ends.values() if found is not None)


def spark_home(directory: Path) -> Path:
    """A home for a cluster of processes, which write beside their jars."""
    directory.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (directory / entry.name).symlink_to(entry)
    return directory


def test_tasks_executors_and_the_broker_may_be_killed(
    broker: BrokerProcess, client: Client, tmp_path: Path
) -> None:
    client.create_topics({"out": 2})
    marks = tmp_path / "marks"
    marks.mkdir()
    script = tmp_path / "script.py"
    script.write_text(CLUSTER)
    home = spark_home(tmp_path / "spark")
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    with (tmp_path / "out.txt").open("w") as said:
        process = subprocess.Popen(
            [sys.executable, str(script), broker.address, str(ROWS), str(marks)],
            env=environment,
            stdout=said,
            stderr=said,
        )
        try:
            killer = threading.Thread(target=_kill_once, args=(broker, process))
            killer.start()
            code = process.wait(20 * PATIENCE_S)
            killer.join()
        finally:
            process.kill()
    assert code == 0, (tmp_path / "out.txt").read_text()[-4000:]
    assert sorted(path.name for path in marks.iterdir()) == ["0", "1", "2", "3"]
    assert numbers_committed(client, "out") == [*range(ROWS)]


def _kill_once(broker: BrokerProcess, process: subprocess.Popen[bytes]) -> None:
    """Kill the broker once it has some rows of the write."""
    with Client(broker.address, timeout_ms=2_000) as client:
        while process.poll() is None and end_of(client, "out") < ROWS // 20:
            time.sleep(0.02)
    broker.kill()
    broker.start_again()


def test_a_driver_may_be_killed_at_any_time(
    broker: BrokerProcess, client: Client, tmp_path: Path
) -> None:
    client.create_topics({"in": 2, "out": 2})

    with Producer(client, batch_bytes=5_000) as producer:
        producer.send("in", pa.table({"value": [str(row) for row in range(ROWS // 4)]}))
    script = tmp_path / "script.py"
    script.write_text(STREAM)
    command = [sys.executable, str(script), broker.address, str(tmp_path / "checkpoint")]
    for end in (500, 4_100, 7_700, None):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            if end is None:
                out, _ = process.communicate(timeout=10 * PATIENCE_S)
                assert b"done" in out
            else:
                while process.poll() is None and end_of(client, "out") < end:
                    time.sleep(0.01)
                process.send_signal(signal.SIGKILL)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
    assert numbers_committed(client, "out") == [*range(ROWS // 4)]
