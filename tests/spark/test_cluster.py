"""A standalone cluster: a master and two workers, each a JVM of its own with its own Pythons."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from raw_connection import produce_fields
from running_broker import BrokerProcess
from spark_cluster import cluster

from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

pytestmark = [pytest.mark.spark, pytest.mark.slow]

T0_MS = 1_763_000_000_000
ROWS = 3_000

APP = """
import json, os, sys
from horolog.spark import session
bootstrap, logs, out, master = sys.argv[1:]
spark = session("cluster", master=master, **{"spark.cores.max": "2", "spark.executor.cores": "1",
    "spark.executor.memory": "512m", "spark.ui.enabled": "false"})
kafka = {"kafka.bootstrap.servers": bootstrap, "subscribe": "in"}
def read():
    return spark.read.format("horolog").options(**kafka).load()
told = {}
told["count"] = read().count()
told["filtered"] = (
    spark.read.format("horolog").options(**kafka, includeTimestampMs="true").load()
    .where("timestampMs >= %d" % (1763000000000 + 500)).count())
told["files"] = spark.read.format("horolog").option("subscribe", "in").load(logs).count()
spread = spark.read.format("horolog").options(**kafka, minPartitions="8").load()
told["executors"] = len(set(spread.rdd.mapPartitions(lambda rows: [os.getppid()]).collect()))
(read().select("key", "value", "timestamp").write.format("horolog")
    .option("kafka.bootstrap.servers", bootstrap).option("topic", "copy").mode("append").save())
(spark.readStream.format("horolog").options(**kafka).option("startingOffsets", "earliest").load()
    .select("key", "value").writeStream.format("horolog")
    .option("kafka.bootstrap.servers", bootstrap).option("topic", "streamed")
    .option("checkpointLocation", out + "/checkpoint").trigger(availableNow=True)
    .start().awaitTermination())
for topic in ("copy", "streamed"):
    told[topic] = (spark.read.format("horolog").option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic).load().select("value").distinct().count())
with open(out + "/told.json", "w") as file:
    json.dump(told, file)
spark.stop()
"""


def run(script: Path, *arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **env},
    )


def test_batches_streams_and_sinks_run_on_two_workers(tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(APP)
    with BrokerProcess(tmp_path / "logs") as broker, cluster(tmp_path) as master:
        with broker.connect() as connection:
            topics = [
                {
                    "name": name,
                    "num_partitions": 4,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [{"name": "retention.ms", "value": "-1"}],
                }
                for name in ("in", "copy", "streamed")
            ]
            connection.ask(ApiKey.CREATE_TOPICS, 5, topics=topics, timeout_ms=9_000)
            for partition in range(4):
                records = [
                    LogRecord(T0_MS + at, b"k", b"%d-%d" % (partition, at))
                    for at in range(ROWS // 4)
                ]
                batch = {partition: build_batch(records)}
                answer = connection.ask(ApiKey.PRODUCE, 9, **produce_fields("in", batch))
                assert answer.responses[0].partition_responses[0].error_code == 0
        done = run(script, broker.address, str(tmp_path / "logs"), str(tmp_path), master)
        assert done.returncode == 0, done.stderr[-4000:]
        told = json.loads((tmp_path / "told.json").read_text())
    assert told.pop("executors") == 2, "the tasks ran on one worker"
    filtered = 4 * (ROWS // 4 - 500)
    assert told == {
        "count": ROWS,
        "filtered": filtered,
        "files": ROWS,
        "copy": ROWS,
        "streamed": ROWS,
    }
