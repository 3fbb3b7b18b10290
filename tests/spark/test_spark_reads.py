"""What a user does with the format, on a real Spark."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from partition_files import PartitionFiles
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType, TimestampType
from running_broker import RunningBroker

from horolog.record import LogRecord, build_batch
from horolog.sources import columns
from horolog.spark import register
from horolog.spark.read.batch import LogReader
from horolog.spark.source.log_source import LogSource

NINE_MS = 1_700_000_000_000
KAFKA_SCHEMA = [
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
]
WILD_MS = {
    "none": -1,
    "before 1970": -86_400_000 * 365 * 200,
    "nanoseconds": NINE_MS * 1_000_000,
    "microseconds": NINE_MS * 1_000,
    "seconds": NINE_MS // 1_000,
    "smallest": -(1 << 63),
    "largest": (1 << 63) - 1,
    "first day of year 1": -62_135_596_800_000,
    "last moment of year 9999": 253_402_300_799_999,
}

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> PartitionFiles:
    """A log of three segments, its times out of order."""
    files = PartitionFiles(tmp_path_factory.mktemp("orders"))
    rng = random.Random(2)
    for number in range(30):
        files.add(
            [NINE_MS + 1000 * number - rng.choice([0, 0, 7_000]) for _ in range(10)],
            headers=(("h", b"1"),) if number % 2 else (),
        )
        if number % 10 == 9:
            files.roll()
    files.write_indexes()
    return files


@pytest.fixture(scope="module")
def wild(tmp_path_factory: pytest.TempPathFactory) -> PartitionFiles:
    """Every odd time, among ordinary ones."""
    files = PartitionFiles(tmp_path_factory.mktemp("wild"))
    for name, timestamp_ms in WILD_MS.items():
        files.add_records([LogRecord(timestamp_ms, name.encode(), b"wild")])
        files.add_records([LogRecord(NINE_MS + 5, None, b"good")])
    files.write_indexes()
    return files


def load(spark: Any, files: PartitionFiles, **options: str) -> Any:
    return spark.read.format("horolog").options(**options).load(str(files.log_dir))


def test_the_columns_are_those_of_sparks_kafka_source(spark: Any, orders: PartitionFiles) -> None:
    assert load(spark, orders).dtypes == KAFKA_SCHEMA
    assert load(spark, orders, includeHeaders="true", includeTimestampMs="TRUE").dtypes == [
        *KAFKA_SCHEMA,
        ("headers", "array<struct<key:string,value:binary>>"),
        ("timestampMs", "bigint"),
    ]
    assert load(spark, orders, columns="timestampMs,topic").dtypes == [
        ("timestampMs", "bigint"),
        ("topic", "string"),
    ]


def test_every_row_of_the_files_arrives(spark: Any, orders: PartitionFiles) -> None:
    frame = load(spark, orders, includeHeaders="true", includeTimestampMs="true")
    rows = sorted(frame.collect(), key=lambda row: row.offset)
    assert [
        (
            row.topic,
            row.partition,
            row.offset,
            row.timestampMs,
            row.timestampType,
            bytes(row.key),
            bytes(row.value),
            tuple((header.key, bytes(header.value)) for header in row.headers or ()),
        )
        for row in rows
    ] == orders.rows


def in_order(frame: Any) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))


CONDITIONS = [
    "timestamp >= '2023-11-14 22:13:30' and timestamp < '2023-11-14 22:13:35.0005'",
    "timestamp between '2023-11-14 22:13:30' and '2023-11-14 22:13:31'",
    "timestamp in (timestamp'2023-11-14 22:13:30', timestamp'2023-11-14 22:13:41')",
    "timestamp = '2023-11-14 22:13:30' or offset = 1007",
    "timestampMs >= 1700000012000 and timestampMs <= 1700000013000",
    "timestampMs in (1700000012000, 5)",
    "offset between 1095 and 1105 and partition = 0",
    "topic like 'ord%' and offset in (1000, 1299)",
    "not (offset > 1005)",
    "to_date(timestamp) = '2023-11-14' and offset % 100 = 0",
    "timestampType = 0 and offset >= 1298",
    "timestamp < '1970-01-02'",
]


def assert_filters_leave_what_a_full_scan_leaves(
    spark: Any, files: PartitionFiles, conditions: Sequence[str]
) -> None:
    frame = load(spark, files, includeTimestampMs="true")
    # Columns, not filters: nothing is pushed down.
    answers = frame.select("offset", *[F.expr(f"({one})") for one in conditions]).collect()
    assert len(answers) == len(files.rows)
    for number, condition in enumerate(conditions, start=1):
        filtered = frame.where(condition).select("offset").collect()
        expected = sorted(row[0] for row in answers if row[number])
        assert sorted(row.offset for row in filtered) == expected, condition


def test_filters_leave_what_a_full_scan_leaves(spark: Any, orders: PartitionFiles) -> None:
    assert_filters_leave_what_a_full_scan_leaves(spark, orders, CONDITIONS[:4])


@pytest.mark.slow
def test_any_filter_leaves_what_a_full_scan_leaves(spark: Any, orders: PartitionFiles) -> None:
    assert_filters_leave_what_a_full_scan_leaves(spark, orders, CONDITIONS)


@pytest.mark.parametrize(
    ("column", "condition"),
    [
        ("offset", "offset >= 1290"),
        ("timestampMs", "timestampMs >= 1700000028000"),
        ("timestamp", "timestamp >= '2023-11-14 22:13:48'"),
        ("partition", "partition > 6"),
        ("topic", "topic like 'cli%'"),
    ],
)
@pytest.mark.slow
def test_filters_narrow_a_read_of_a_single_column(
    spark: Any, orders: PartitionFiles, column: str, condition: str
) -> None:
    frame = load(spark, orders, columns=column, maxRecordsPerPartition="25")
    narrow = frame.where(condition)
    assert narrow.rdd.getNumPartitions() <= 4
    expected = load(spark, orders, includeTimestampMs="true").where(condition).count()
    assert narrow.count() == expected
    assert frame.count() == len(orders.rows)


def test_a_filter_reaches_the_tasks_of_the_query(spark: Any, orders: PartitionFiles) -> None:
    frame = load(spark, orders, maxRecordsPerPartition="25")
    assert frame.rdd.getNumPartitions() == 12
    for condition, tasks in (
        ("timestamp >= '2023-11-14 22:13:47'", 4),
        ("offset = 1007", 1),
        ("partition = 7", 1),
        ("topic = 'orders' and offset = 1007", 1),
    ):
        filtered = load(spark, orders, maxRecordsPerPartition="25").where(condition)
        assert filtered.rdd.getNumPartitions() == tasks, condition


def test_a_zone_of_the_session_moves_literals_not_records(
    spark: Any, orders: PartitionFiles
) -> None:
    frame = load(spark, orders)
    in_utc = frame.where("timestamp < '2023-11-14 22:13:22'").count()
    assert in_utc > 0
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert frame.where("timestamp < '2023-11-14 17:13:22'").count() == in_utc
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize(
    ("zone", "condition", "kept"),
    [
        ("America/New_York", "timestamp <= '9999-12-31 23:59:59'", 300),
        ("America/New_York", "timestamp > '9999-12-31 23:59:59'", 0),
        ("Europe/Berlin", "timestamp >= '0001-01-01' and offset < 1020", 20),
        ("Europe/Berlin", "not timestamp <=> timestamp'0001-01-01'", 300),
        ("Europe/Berlin", "timestamp in (timestamp'0001-01-01', timestamp'0001-01-02')", 0),
    ],
)
def test_times_that_python_cannot_hold_are_compared_by_spark(
    spark: Any, orders: PartitionFiles, zone: str, condition: str, kept: int
) -> None:
    """Sentinels for "no limit" are such times in zones off UTC."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        records = spark.read.format("horolog").load(str(orders.directory))
        assert records.where(condition).count() == kept
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.slow
def test_a_narrower_schema_is_honoured(spark: Any, orders: PartitionFiles) -> None:
    schema = StructType([StructField("timestampMs", LongType()), StructField("offset", LongType())])
    frame = spark.read.format("horolog").schema(schema).load(str(orders.log_dir))
    assert frame.schema == schema
    assert sorted(tuple(row) for row in frame.collect()) == sorted(
        (row.timestamp_ms, row.offset) for row in orders.rows
    )


def test_a_schema_that_does_not_fit_is_one_clear_error(spark: Any, orders: PartitionFiles) -> None:
    for field, said in (
        (StructField("offset", TimestampType()), "'offset' the type timestamp; it is bigint"),
        (StructField("key", LongType()), "'key' the type bigint; it is binary"),
        (StructField("when", TimestampType()), "'when' that the log has not"),
    ):
        reader = spark.read.format("horolog").schema(StructType([field]))
        with pytest.raises(PySparkException, match=said):
            reader.load(str(orders.log_dir)).collect()


# No record's time may end a query.


def test_wild_times_can_be_collected(spark: Any, wild: PartitionFiles) -> None:
    frame = load(spark, wild, includeTimestampMs="true")
    rows = {bytes(row.key).decode(): row for row in frame.where("key is not null").collect()}
    assert {name: row.timestampMs for name, row in rows.items()} == WILD_MS
    assert {name for name, row in rows.items() if row.timestamp is not None} == {
        "before 1970",
        "seconds",
    }
    assert frame.where("timestamp is not null").count() == 2 + len(WILD_MS)


@pytest.mark.slow
def test_wild_times_can_be_shown(
    spark: Any, wild: PartitionFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    load(spark, wild, includeTimestampMs="true").orderBy("offset").show(100, truncate=False)
    assert str(WILD_MS["largest"]) in capsys.readouterr().out


@pytest.mark.slow
def test_wild_times_can_be_put_into_windows(spark: Any, wild: PartitionFiles) -> None:
    for width in ("1 second", "1 hour", "1 day"):
        frame = load(spark, wild).groupBy(F.window("timestamp", width)).count()
        assert sum(row["count"] for row in frame.collect()) == 2 + len(WILD_MS)


@pytest.mark.slow
def test_wild_times_can_be_written_to_parquet(
    spark: Any, wild: PartitionFiles, tmp_path: Path
) -> None:
    frame = load(spark, wild, includeTimestampMs="true", includeHeaders="true")
    frame.write.parquet(str(tmp_path / "out"))
    again = spark.read.parquet(str(tmp_path / "out"))
    key = ["offset", "timestampMs", "timestamp"]
    assert sorted(again.select(key).collect()) == sorted(frame.select(key).collect())


@pytest.mark.slow
def test_wild_times_can_be_had_in_pandas(spark: Any, wild: PartitionFiles) -> None:
    frame = load(spark, wild, includeTimestampMs="true").toPandas()
    assert set(WILD_MS.values()) <= set(frame["timestampMs"])
    assert frame["timestamp"].notna().sum() == 2 + len(WILD_MS)


@pytest.mark.slow
def test_wild_times_do_not_disturb_a_range_of_time(spark: Any, wild: PartitionFiles) -> None:
    frame = load(spark, wild, includeTimestampMs="true")
    good = "timestamp between '2023-11-14 22:13:20' and '2023-11-14 22:13:21'"
    assert frame.where(good).count() == len(WILD_MS)
    for timestamp_ms in WILD_MS.values():
        assert frame.where(F.col("timestampMs") == timestamp_ms).count() == 1


def test_a_day_at_either_end_of_time_is_kept_for_zones_and_windows(spark: Any) -> None:
    first = datetime.fromtimestamp(columns.FIRST_TIMESTAMP_MS / 1000, UTC)
    assert (first.year, first.month, first.day) == (1, 1, 2)
    assert columns.LAST_TIMESTAMP_MS + 1 + 86_400_000 == 253_402_300_800_000


# Around the format.


@pytest.mark.slow
def test_the_format_is_found_without_a_call(spark: Any, orders: PartitionFiles) -> None:
    """By `pyspark_horolog`, in a session that has neither registered it nor turned push-down on."""
    fresh = spark.newSession()
    fresh.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    frame = fresh.read.format("horolog").load(str(orders.log_dir))
    assert frame.count() == len(orders.rows)
    assert frame.where("offset >= 1290").count() == 10


@pytest.mark.slow
def test_register_may_be_called_again(spark: Any, orders: PartitionFiles) -> None:
    register(spark)
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert load(spark, orders).count() == len(orders.rows)


@pytest.mark.slow
def test_sql_reads_the_log_as_a_view(spark: Any, orders: PartitionFiles) -> None:
    path = orders.log_dir
    spark.sql(f"create temporary view in_sql using horolog options (path '{path}')")
    (few,) = spark.sql("select count(*) n from in_sql where offset < 1010").collect()
    (everything,) = spark.sql("select count(*) n from in_sql").collect()
    assert (few.n, everything.n) == (10, len(orders.rows))


def test_a_table_of_the_catalog_is_refused_in_favour_of_a_view(
    spark: Any, orders: PartitionFiles, tmp_path: Path
) -> None:
    """Spark hands its options to no query (PythonTable.newScanBuilder)."""
    instead = "use CREATE TEMPORARY VIEW name USING horolog OPTIONS"
    using = f"using horolog options (path '{orders.log_dir}')"
    with pytest.raises(PySparkException, match=instead):
        spark.sql(f"create table in_catalog {using}")
    spark.sql(f"create table in_catalog (offset bigint) {using}")  # which asks no source
    try:
        for statement in ("select * from in_catalog", "insert into in_catalog values (1)"):
            with pytest.raises(PySparkException, match=instead):
                spark.sql(statement).collect()
        stream = spark.readStream.table("in_catalog").writeStream.format("noop")
        query = stream.option("checkpointLocation", str(tmp_path)).start()
        with pytest.raises(PySparkException, match=instead):
            query.processAllAvailable()
    finally:
        spark.sql("drop table in_catalog")


@pytest.mark.slow
def test_several_paths_are_one_read(spark: Any, orders: PartitionFiles) -> None:
    paths = [str(path) for path in orders.logs[:2]]
    assert spark.read.format("horolog").load(paths).count() == 200


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "/nowhere/at/all"}, "There is no path /nowhere/at/all"),
        ({}, "Option 'kafka.bootstrap.servers' must be specified"),
        ({"kafka.bootstrap.servers": "h:1"}, "One of the following options must be specified"),
        ({"path": "/tmp", "startingOffset": "earliest"}, "Unknown option 'startingOffset'; did"),
        ({"Bootstrap.Servers": "h:1"}, "Unknown option 'Bootstrap.Servers'; did you mean 'kafka."),
    ],
)
def test_a_mistake_is_reported_when_it_is_made_and_in_few_lines(
    spark: Any, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        spark.read.format("horolog").options(**options).load()
    assert str(raised.value).startswith(said)
    assert len(str(raised.value).splitlines()) == 1


def test_a_query_that_fails_has_one_sentence_without_a_traceback(
    spark: Any, tmp_path: Path
) -> None:
    files = PartitionFiles(tmp_path)
    files.add([1, 2])
    with pytest.raises(PySparkException, match="read from offset 5, and starts at 1000") as planned:
        load(spark, files, startingOffsets='{"orders":{"0":5}}').count()
    files.roll()
    files.add([3])
    content = bytearray(files.logs[0].read_bytes())
    content[70] ^= 1
    files.logs[0].write_bytes(content)
    with pytest.raises(PySparkException, match="cannot be read to its end") as read:
        load(spark, files).count()
    for raised in (planned, read):
        assert "Traceback" not in str(raised.value)
        assert len(str(raised.value).splitlines()) <= 3


def test_a_broker_and_its_files_give_the_same_rows(spark: Any, broker: RunningBroker) -> None:
    broker.create_topic("clicks", partitions=2)
    for number in range(40):
        records = [LogRecord(NINE_MS + (number * 7919) % 1000, b"k", b"v") for _ in range(5)]
        broker.client.produce("clicks", number % 2, build_batch(records))
    options = {"includeTimestampMs": "true", "includeHeaders": "true"}
    reader = spark.read.format("horolog").options(**options)
    files = reader.load(str(broker.log_dir))
    reader = spark.read.format("horolog").options(**options).option("subscribe", "clicks")
    live = reader.option("kafka.bootstrap.servers", broker.address).load()
    condition = "timestampMs between 1700000000100 and 1700000000500"
    everything = in_order(live)
    assert len(everything) == 200
    assert in_order(files) == everything
    some = in_order(live.where(condition))
    assert 0 < len(some) < 200
    assert in_order(files.where(condition)) == some
    assert live.where(condition).count() == len(some)


def test_what_spark_calls_is_what_this_source_has() -> None:
    """A renamed parameter would only show as "failed" in Spark."""
    for write in (LogSource.streamWriter, LogSource.writer):
        assert write.__code__.co_varnames[:3] == ("self", "schema", "overwrite")
    assert LogReader.read.__code__.co_varnames[:2] == ("self", "partition")
    assert LogSource.streamReader.__code__.co_varnames[:2] == ("self", "schema")


def test_both_clocks_are_read_and_ranges_of_append_time_leave_nothing_to_spark(
    spark: Any, broker: RunningBroker
) -> None:
    broker.create_topic("clocks")
    for number in range(20):
        broker.client.produce("clocks", 0, build_batch([LogRecord(number, None, b"v")]))
    asked = {"kafka.bootstrap.servers": broker.address, "subscribe": "clocks"}
    for given, paths in ((asked, ()), ({}, (str(broker.log_dir / "clocks-0"),))):
        reader = spark.read.format("horolog").options(includeAppendTime="true", **given)
        rows = reader.load(*paths)
        times = [row.appendTimeMs for row in rows.orderBy("offset").collect()]
        assert times == sorted(times)
        assert rows.where("createTime < appendTime and appendTime is not null").count() == 20
        middle = times[10]
        late = rows.where(rows.appendTimeMs >= middle)
        expected = [offset for offset, time in enumerate(times) if time >= middle]
        assert sorted(row.offset for row in late.collect()) == expected
        plan = late._jdf.queryExecution().executedPlan().toString()
        assert "Filter" not in plan.replace("RuntimeFilters", "")
