"""Lag and late records of a query on a real Spark, with a listener and without one."""

import time
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from running_broker import RunningBroker
from s3_server import S3Server
from streaming_query import append

from horolog.spark import LagListener, QueryLag, lag_of, with_late_counted

pytestmark = pytest.mark.spark


def test_a_listener_hears_of_lag_and_of_late_records(
    spark: Any, broker: RunningBroker, tmp_path: Path
) -> None:
    broker.create_topic("clicks")
    reported: list[QueryLag] = []
    listener = LagListener(reported.append)
    spark.streams.addListener(listener)
    reader = spark.readStream.format("horolog").option("subscribe", "clicks")
    reader = reader.option("kafka.bootstrap.servers", broker.address)
    frame = reader.options(
        startingOffsets="earliest", maxOffsetsPerTrigger="3", includeLateness="true"
    ).load()
    for at in (100, 300, 200, 250, 400):
        append(broker.client, "clicks", 0, 1, at)
    writer = with_late_counted(frame, after_ms=60).writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(tmp_path))
    try:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        give_up = time.monotonic() + PATIENCE_S
        while len(reported) < 2 and time.monotonic() < give_up:
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
    first, second = reported[:2]
    assert (first.records, first.late, first.most_late_ms) == (2, 1, 100)
    assert first.time_ms is not None
    assert (second.records, second.time_ms, second.late) == (0, 0, 0)
    assert lag_of(query.lastProgress) == second
    assert second.query_id == query.id


def test_explain_shows_no_credentials(spark: Any, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020d}.log").write_bytes(b"")
    with S3Server() as s3:
        s3.upload(tmp_path, "logs")
        options = s3.options()
        frame = spark.read.format("horolog").options(**options).load("s3a://logs")
        assert frame.count() == 0
        frame.explain(mode="extended")
        frame.explain(mode="formatted")
    shown = capsys.readouterr().out
    assert "Scan" in shown
    assert options["fs.s3a.secret.key"] not in shown
    assert options["fs.s3a.access.key"] not in shown
