"""Settings of Spark that change types, zones and Arrow: reads and writes give the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from examples import some_of
from pyspark.errors import PySparkException
from running_broker import RunningBroker
from stream_run import Run

from horolog.client import Client, Producer
from horolog.sources import scan

pytestmark = pytest.mark.spark

# In the first and the last year that Spark has, an hour that New York has twice,
# and times around 1970.
TIMES = [
    -62_100_000_000_001,
    253_402_000_000_001,
    1_699_164_000_000,
    1_699_167_600_000,
    -3_153_600_000_001,
    -2,
    0,
    1_700_000_000_123,
]
SETTINGS = [
    "spark.sql.timestampType=TIMESTAMP_NTZ",
    "spark.sql.session.timeZone=America/New_York",
    "spark.sql.session.timeZone=+05:45",
    "spark.sql.session.timeZone=Pacific/Apia",
    "spark.sql.ansi.enabled=false",
    "spark.sql.storeAssignmentPolicy=LEGACY",
    "spark.sql.caseSensitive=true",
    "spark.sql.datetime.java8API.enabled=true",
    "spark.sql.legacy.timeParserPolicy=LEGACY",
    "spark.sql.execution.arrow.useLargeVarTypes=true",
    "spark.sql.execution.arrow.maxRecordsPerBatch=1",
    "spark.sql.execution.arrow.maxBytesPerBatch=100",
    "spark.sql.execution.arrow.compression.codec=zstd",
    "spark.sql.execution.arrow.pyspark.enabled=false",
    "spark.sql.execution.arrow.pyspark.selfDestruct.enabled=true",
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled=true",
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled=false",
    "spark.sql.execution.pyspark.binaryAsBytes=false",
    "spark.sql.python.filterPushdown.enabled=false",
    "spark.sql.codegen.wholeStage=true",
    "spark.sql.adaptive.enabled=true",
    "spark.sql.binaryOutputStyle=HEX",
    "spark.sql.charAsVarchar=true",
    "spark.sql.readSideCharPadding=false",
    "spark.sql.legacy.castComplexTypesToString.enabled=true",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled=false",
]


@contextmanager
def setting(spark: Any, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name) if before is None else spark.conf.set(name, before)


@pytest.fixture
def filled(broker: RunningBroker, client: Client) -> RunningBroker:
    """Topic `in` of records of all times, and empty ones that take any time."""
    most = str((1 << 63) - 1)
    any_time = {"message_timestamp_before_max_ms": most, "message_timestamp_after_max_ms": most}
    for name in ("in", "out", "made"):
        broker.create_topic(name, retention_ms="-1", **any_time)
    numbers = range(len(TIMES))
    table = pa.table(
        {
            "key": [b"k%d" % number if number % 2 else None for number in numbers],
            "value": [b"v%d" % number if number % 3 else b"" for number in numbers],
            "timestamp_ms": TIMES,
            "headers": pa.array(
                [[{"key": "h", "value": b"%d" % number}] * (number % 2) for number in numbers],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )
    with Producer(client) as producer:
        producer.send("in", table)
    return broker


def records_of(client: Client, topic: str) -> list[dict[str, Any]]:
    columns = ("offset", "key", "value", "timestamp_ms", "headers")
    return scan(client, topic, columns=columns).read_all().to_pylist()


@pytest.mark.parametrize("set_to", some_of(SETTINGS, 5))
def test_settings_of_a_session_change_no_row(
    spark: Any, filled: RunningBroker, client: Client, tmp_path: Path, set_to: str
) -> None:
    at, records = {"kafka.bootstrap.servers": filled.address}, records_of(client, "in")
    asked = {**at, "subscribe": "in", "includeHeaders": "true", "includeTimestampMs": "true"}
    asked |= {"includeAppendTime": "true"}
    with setting(spark, *set_to.split("=")):
        frame = spark.read.format("horolog").options(**asked).load()
        rows = frame.selectExpr(
            "offset",
            "cast(key as binary) key",
            "value",
            "unix_micros(timestamp) us",
            "timestampMs ms",
            "unix_micros(createTime) created_us",
            "createTimeMs created_ms",
            "transform(headers, each -> each.value) headers",
        ).orderBy("offset")
        for row, record in zip(rows.collect(), records, strict=True):
            ms = record["timestamp_ms"]
            assert (row.offset, row.ms, row.created_ms) == (record["offset"], ms, ms)
            assert (row.us, row.created_us) == (ms * 1000, ms * 1000)
            assert (row.key and bytes(row.key), bytes(row.value)) == (
                record["key"],
                record["value"],
            )
            assert [bytes(each) for each in row.headers or ()] == [
                each["value"] for each in record["headers"]
            ]
        early = frame.where("timestamp < timestamp'1970-01-01 00:00:00Z'").count()
        assert early == sum(ms < 0 for ms in TIMES)
        arrow = frame.select("timestamp").toArrow().column(0).cast(pa.timestamp("us", "UTC"))
        assert sorted(arrow.cast(pa.int64()).to_pylist()) == sorted(ms * 1000 for ms in TIMES)

        stream = spark.readStream.format("horolog").options(**asked)
        stream = stream.option("startingOffsets", "earliest").load()
        number = stream.selectExpr("cast(cast(timestampMs as string) as binary) value")
        assert Run(spark, number, tmp_path).to_the_end() == sorted(TIMES)

        written = frame.select("key", "value", "timestamp", "headers").coalesce(1)
        written.write.format("horolog").options(**at, topic="out").mode("append").save()
        made = spark.sql(
            "select 'k' key, 'v' value, timestamp_millis(1699167600123) timestamp, 0 partition, "
            "array(named_struct('key', 'h', 'value', cast('x' as binary))) headers, 'made' topic"
        )
        made.write.format("horolog").options(**at).mode("append").save()
    assert records_of(client, "out") == records
    (record,) = records_of(client, "made")
    assert (record["key"], record["value"]) == (b"k", b"v")
    assert record["timestamp_ms"] == 1_699_167_600_123
    assert record["headers"] == [{"key": "h", "value": b"x"}]


def test_settings_that_spark_cannot_obey_are_refused_in_a_sentence(
    spark: Any, filled: RunningBroker, client: Client
) -> None:
    def write(topic: str) -> None:
        writer = spark.sql("select cast(null as string) key, 'v' value").write.format("horolog")
        writer = writer.option("kafka.bootstrap.servers", filled.address).option("topic", topic)
        writer.mode("append").save()

    with setting(spark, "spark.sql.execution.arrow.compression.codec", "lz4"):
        with pytest.raises(PySparkException, match=r"arrow\.compression\.codec to zstd or none"):
            write("out")
        assert records_of(client, "out") == []
    with setting(spark, "spark.sql.execution.arrow.maxRecordsPerBatch", "0"):
        frame = spark.read.format("horolog").option("kafka.bootstrap.servers", filled.address)
        with pytest.raises(PySparkException, match="batch size should be greater than 0"):
            frame.option("subscribe", "in").load().count()
    write("made")
    assert len(records_of(client, "made")) == 1
