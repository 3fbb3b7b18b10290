"""Spark's real-time mode, with Spark's own Kafka connector on horolog's broker.

Spark gives it to no Python source (STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED).
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running_broker import BrokerProcess, a_broker_process

from horolog.client import Client, NoAnswer
from horolog.clock import SystemClock
from horolog.record import LogRecord, build_batch
from horolog.sources import scan

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.usefixtures("spark_connector")]

PATIENCE_S = 300.0  # a JVM on a busy machine

broker = a_broker_process()


def append(address: str, numbers: range) -> None:
    records = [LogRecord(SystemClock().now_ms(), None, b"%d" % number) for number in numbers]
    with Client(address) as client:
        client.produce("asked", numbers[0] % 2, build_batch(records))


def wait_for(is_so: Callable[[], bool], query: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline
        time.sleep(0.2)


def written(address: str) -> set[int]:
    try:
        with Client(address, timeout_ms=5_000) as client:
            rows = scan(client, "answered", columns=("value",)).read_all()
    except NoAnswer:  # the broker restarts
        return set()
    return {int(value) for value in rows.column("value").to_pylist()}


def last_batch(query: Any) -> int:
    return -1 if query.lastProgress is None else int(query.lastProgress["batchId"])


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_real_time_query_goes_on_over_restarts_of_the_broker(
    spark: Any, broker: BrokerProcess, tmp_path: Path, is_killed: bool
) -> None:
    address = broker.address
    with Client(address) as client:
        client.create_topics({"asked": 2, "answered": 2})
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address)
    rows = reader.option("subscribe", "asked").option("startingOffsets", "earliest").load()
    writer = rows.select("value").writeStream.format("kafka").outputMode("update")
    writer = writer.option("kafka.bootstrap.servers", address).option("topic", "answered")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(realTime="5 seconds").start()
    try:
        append(address, range(100))
        wait_for(lambda: written(address) >= {*range(100)}, query)
        if is_killed:
            broker.kill()
        else:
            broker.terminate()
        broker.start_again()
        for start in range(100, 600, 100):
            append(address, range(start, start + 100))
        wait_for(lambda: written(address) >= {*range(600)}, query)
        batch = last_batch(query)  # another one begins: what it had read is committed
        wait_for(lambda: last_batch(query) > batch, query)
    finally:
        query.stop()
    assert written(address) == {*range(600)}
