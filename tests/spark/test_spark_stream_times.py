"""Streams by time on a real Spark: filtered, ended, and begun with a backfill."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from examples import some_of
from patience import PATIENCE_S
from running_broker import RunningBroker, a_broker
from stream_run import Run

from horolog.client import Client
from horolog.record import LogRecord, build_batch
from horolog.spark import await_end

NINE_MS = 1_700_000_000_000

pytestmark = pytest.mark.spark


broker = a_broker(now_ms=NINE_MS)


def append(client: Client, times: list[int], values: range) -> None:
    records = [
        LogRecord(NINE_MS + at, b"k", b"%d" % value)
        for at, value in zip(times, values, strict=True)
    ]
    client.produce("clicks", 0, build_batch(records))


@pytest.fixture
def clicks(spark: Any, broker: RunningBroker) -> Callable[..., Any]:
    broker.create_topic("clicks")

    def read(**options: Any) -> Any:
        reader = spark.readStream.format("horolog").option("subscribe", "clicks")
        return reader.option("kafka.bootstrap.servers", broker.address).options(**options).load()

    return read


@pytest.mark.slow
def test_a_backfill_is_followed_without_a_seam_over_a_restart_in_its_middle(
    spark: Any, clicks: Any, client: Client, tmp_path: Path
) -> None:
    append(client, [5, 1, 7, 9, 2, 8, 30], range(7))
    frame = clicks(
        backfillFromTimestamp=NINE_MS + 5, toTimestamp=NINE_MS + 20, maxOffsetsPerTrigger="3"
    )
    run = Run(spark, frame, tmp_path)
    reached = threading.Event()

    def fail(rows: Any, batch: int) -> None:
        rows.write.mode("append").parquet(str(tmp_path / "out"))
        if batch == 1:
            reached.set()
            raise RuntimeError("killed")

    writer = frame.writeStream.foreachBatch(fail)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(Exception, match="killed"):
        query.awaitTermination()
    assert reached.is_set()
    append(client, [0, 25, 12, -50], range(7, 11))  # the live part: all before `toTimestamp`
    found = []

    def collect(rows: Any, batch: int) -> None:
        found.append((batch, [int(bytes(row.value)) for row in rows.collect()]))

    writer = frame.writeStream.foreachBatch(collect)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert found[0] == (1, [3, 5])  # the batch that failed, read again
    assert sorted(value for _, values in found[1:] for value in values) == [7, 9, 10]
    assert run.offsets()[0]["seams"] == {"clicks": {"0": 7}}


@pytest.mark.parametrize(
    "trigger", some_of([{"processingTime": "0 seconds"}, {"availableNow": True}], 2)
)
def test_a_stream_ends_at_its_stop(
    spark: Any,
    clicks: Any,
    client: Client,
    broker: RunningBroker,
    tmp_path: Path,
    trigger: dict[str, Any],
) -> None:
    append(client, [0, 5], range(2))
    frame = clicks(startingOffsets="earliest", stopAtTimestamp=NINE_MS + 60_000)
    run = Run(spark, frame, tmp_path)
    query = run.now(**trigger)
    try:
        assert not await_end(query, timeout_s=0.5)
        append(client, [7], range(2, 3))
        broker.clock.advance("1m")
        assert await_end(query, timeout_s=PATIENCE_S)
    finally:
        query.stop()
    assert query.exception() is None
    append(client, [8], range(3, 4))  # after the end
    assert run.to_the_end() == [0, 1, 2]
    assert run.offsets()[-1]["ends"] == {"clicks": {"0": 3}}
