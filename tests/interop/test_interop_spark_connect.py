"""Reads and writes over Spark Connect: no JVM at hand in the user's process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from horolog.client import Client
from horolog.sources import scan

pytestmark = [pytest.mark.interop, pytest.mark.spark]

PROGRAM = """
import json, os, sys
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from horolog.spark import register

bootstrap, directory = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
register(spark)
broker = {"kafka.bootstrap.servers": bootstrap}
frame = spark.range(10).selectExpr("cast(id as string) value", "id timestampMs")

def to(frame, **options):
    return frame.write.format("horolog").options(**broker, **options)

def said(write):
    try:
        write()
    except PySparkException as error:
        return str(error)

def stream(frame, name, mode="append", **options):
    writer = frame.writeStream.format("horolog").options(**broker, **options).outputMode(mode)
    writer = writer.option("checkpointLocation", f"{directory}/{name}").trigger(availableNow=True)
    writer.start().awaitTermination()

to(frame, topic="connect-a").save()
rows = spark.readStream.format("horolog").options(
    **broker, subscribe="connect-a", startingOffsets="earliest"
).load()
stream(rows, "copied", topic="connect-b")
batch = spark.read.format("horolog").options(**broker, subscribe="connect-a").load()
some = batch.where("timestamp >= timestamp_millis(4) and timestamp < timestamp_millis(7)")
assert batch.count() == 10, batch.count()
assert sorted(row.value for row in some.collect()) == [b"4", b"5", b"6"], some.collect()
assert batch.count() == 10, "a query that shares a plan reads as much as it needs"
beyond = frame.selectExpr("value", "5 as partition")
counted = rows.groupBy("partition").count().selectExpr("cast(count as string) value")
print(json.dumps({
    "Mode 'ignore' is not supported": said(to(frame, topic="t").mode("ignore").save),
    "Mode 'overwrite' is not supported": said(to(frame, topic="t").mode("overwrite").save),
    "Option 'topic' is required": said(to(frame).save),
    "Rows for topic connect-a cannot be written": said(to(beyond, topic="connect-a").save),
    "Output mode 'update'": said(lambda: stream(counted, "updated", "update", topic="t")),
    "Option 'topic' is required where": said(lambda: stream(rows.drop("topic"), "none")),
}), flush=True)
os._exit(0)
"""


def test_batches_and_streams_are_read_and_written_over_connect(broker: Any, tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect's client is in the group `test`")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, broker.bootstrap, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    for sentence, error in said.items():
        assert error is not None, sentence
        assert error.startswith(sentence)
    with Client(broker.bootstrap) as client:
        for topic in ("connect-a", "connect-b"):
            rows = scan(client, topic, columns=("value", "timestamp_ms")).read_all().to_pylist()
            assert sorted((int(row["value"]), row["timestamp_ms"]) for row in rows) == [
                (number, number) for number in range(10)
            ]
