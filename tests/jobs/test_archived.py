"""An archive and its log as one DataFrame: no gap, no double, and little read."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from in_process_spark import InProcessSpark
from log_reading import Read, moment, schema_of
from partition_files import PartitionFiles
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, LessThan
from running_broker import MakeBroker, RunningBroker, a_broker

from horolog.client import Client
from horolog.clock import ManualClock
from horolog.errors import Misconfigured
from horolog.jobs import archive, archived, merge_archive
from horolog.jobs.archives.planning import COMMITTED
from horolog.jobs.archives.view import ArchivedSource
from horolog.record import LogRecord, build_batch
from horolog.sources import DataLost

NINE_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
TIME, OFFSET = ("timestamp",), ("offset",)


class View(Read):
    """As Spark's planner and tasks do it."""

    source_class = ArchivedSource

    def __init__(self, tmp_path: Path, source: Path | str | None = None, **options: Any) -> None:
        given = {"horolog.archive": tmp_path / "archive", "subscribe": "clicks"} | COMMITTED
        given["horolog.archive.only"] = str(source is None).lower()
        if isinstance(source, str):
            given["kafka.bootstrap.servers"] = source
        else:
            given["path"] = source or tmp_path / "archive"
        super().__init__(**given | options)

    def found(self, *filters: Filter) -> list[tuple[int, int]]:
        rows = self.rows(*filters)
        return sorted((row["partition"], row["offset"]) for row in rows)


broker = a_broker(
    "clicks",
    partitions=2,
    of_topics={"retention_ms": "-1", "segment_bytes": "1000"},
    now_ms=None,
)


def fill(client: Client, count: int, start_ms: int, partition: int = 0) -> None:
    for start in range(0, count, 10):
        records = [LogRecord(start_ms + start + n, b"k", b"v" * 50) for n in range(10)]
        client.produce("clicks", partition, build_batch(records))


def run(source: Path | str, tmp_path: Path, **more: Any) -> None:
    where = {"archive": tmp_path / "archive", "state": tmp_path / "state"}
    archive(InProcessSpark(), source=source, topics="clicks", **where | more)


def test_what_is_not_archived_comes_from_the_log(
    broker: RunningBroker, client: Client, tmp_path: Path
) -> None:
    fill(client, 50, NINE_MS)
    run(broker.address, tmp_path)
    fill(client, 30, NINE_MS + HOUR_MS)
    fill(client, 10, NINE_MS, partition=1)
    both = View(tmp_path, broker.address)
    expected = [(0, offset) for offset in range(80)] + [(1, offset) for offset in range(10)]
    assert both.found() == expected
    assert both.rows() == Read(subscribe="clicks", kafka__bootstrap__servers=broker.address).rows()
    assert View(tmp_path).found() == expected[:50]
    run(broker.address, tmp_path)
    assert both.found() == View(tmp_path).found() == expected


def test_limits_of_append_times_hold_for_the_archive_and_the_log(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(clock=(clock := ManualClock(NINE_MS)))
    broker.create_topic("clicks", retention_ms="-1")
    for step in range(8):
        fill(broker.client, 10, 5)
        clock.advance(1_000)
        if step == 3:
            run(broker.address, tmp_path)
    range_ms = {"fromAppendTime": str(NINE_MS + 2_000), "toAppendTime": str(NINE_MS + 6_000)}
    assert View(tmp_path, broker.address, **range_ms).found() == [(0, n) for n in range(20, 60)]
    assert View(tmp_path, **range_ms).found() == [(0, n) for n in range(20, 40)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingOffsets", '{"clicks":{"0":20}}'),
        ("endingOffsets", '{"clicks":{"0":20}}'),
        ("startingOffsets", "latest"),
        ("startingTimestamp", str(NINE_MS)),
        ("endingTimestamp", str(NINE_MS)),
        ("startingOffsetsByTimestamp", '{"clicks":{"0":20}}'),
        ("endingOffsetsByTimestamp", '{"clicks":{"0":20}}'),
        ("backfillFromTimestamp", "1"),
        ("stopAtTimestamp", "1"),
        ("asOf", "1"),
        ("latestAsOf", "1"),
    ],
)
def test_options_that_say_where_a_read_begins_or_ends_are_refused_by_name(
    broker: RunningBroker, client: Client, tmp_path: Path, name: str, value: str
) -> None:
    fill(client, 10, NINE_MS)
    run(broker.address, tmp_path)
    whole = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    assert len(View(tmp_path, broker.address, **whole).found()) == 10
    with pytest.raises(Misconfigured, match=f"{name} is for reads of a log"):
        View(tmp_path, broker.address, **{name: value}).found()
    with pytest.raises(Misconfigured, match=f"{name} is for reads of a log"):
        archived(InProcessSpark(), archive=tmp_path / "archive", settings={name: value})


def test_what_retention_has_removed_comes_from_the_archive(
    broker: RunningBroker, client: Client, tmp_path: Path
) -> None:
    fill(client, 50, NINE_MS)
    run(broker.address, tmp_path)
    fill(client, 30, NINE_MS + HOUR_MS)
    broker.delete_records("clicks", 40)
    assert View(tmp_path, broker.address).found() == [(0, offset) for offset in range(80)]
    broker.delete_records("clicks", 60)
    with pytest.raises(DataLost, match="Offsets 50 to 59 of clicks-0 are neither"):
        View(tmp_path, broker.address).found()
    left = View(tmp_path, broker.address, failOnDataLoss="false").found()
    assert left == [(0, offset) for offset in (*range(50), *range(60, 80))]


def test_a_plan_that_was_made_before_the_archive_grew_gives_each_record_once(
    broker: RunningBroker, client: Client, tmp_path: Path
) -> None:
    fill(client, 50, NINE_MS)
    run(broker.address, tmp_path)
    fill(client, 30, NINE_MS + HOUR_MS)
    reader, partitions = View(tmp_path, broker.address).plan()
    run(broker.address, tmp_path)
    tables = [table for partition in partitions for table in reader.read(partition)]
    offsets = sorted(row["offset"] for table in tables for row in table.to_pylist())
    assert offsets == list(range(80))


def test_filters_leave_out_files_and_narrow_the_log(
    broker: RunningBroker, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hour in range(5):
        fill(client, 50, NINE_MS + hour * HOUR_MS)
    run(broker.address, tmp_path)
    fill(client, 50, NINE_MS + 5 * HOUR_MS)
    fill(client, 50, NINE_MS + 6 * HOUR_MS)
    first, last = NINE_MS + 4 * HOUR_MS, NINE_MS + 5 * HOUR_MS + 20
    view = View(tmp_path, broker.address)
    filters = (GreaterThanOrEqual(TIME, moment(first)), LessThan(TIME, moment(last)))
    _, partitions = view.plan(*filters)
    files = [each.value.files for each in partitions if hasattr(each.value, "files")]
    assert [len(each) for each in files] == [1]
    log = [each.value for each in partitions if not hasattr(each.value, "files")]
    assert min(each.start for task in log for each in task) == 250
    assert max(each.end for task in log for each in task) < 350
    rows = [row["offset"] for row in view.rows(*filters)]
    assert set(rows) >= set(range(200, 270))
    assert view.left == list(filters)
    assert view.found(EqualTo(OFFSET, 7)) == [(0, 7)]
    assert view.found(EqualTo(("partition",), 1)) == []
    assert view.found(EqualTo(("topic",), "other")) == []


def test_an_archive_of_a_range_of_time_limits_the_log_likewise(
    broker: RunningBroker, client: Client, tmp_path: Path
) -> None:
    fill(client, 50, NINE_MS)
    run(broker.address, tmp_path, from_=NINE_MS + 20)
    fill(client, 50, NINE_MS)
    expected = [(0, offset) for offset in (*range(20, 50), *range(70, 100))]
    assert View(tmp_path, broker.address).found() == expected
    narrow = View(tmp_path, broker.address, toTimestamp=str(NINE_MS + 30))
    assert narrow.found() == [(0, offset) for offset in (*range(20, 30), *range(70, 80))]


def test_all_columns_are_those_of_a_read(
    broker: RunningBroker, client: Client, tmp_path: Path
) -> None:
    broker.create_topic("stamped", message_timestamp_type="LogAppendTime")
    headers = (("a", b"1"), ("b", None))
    records = [
        LogRecord(NINE_MS, b"k", b"v", headers),
        LogRecord(-1, None, None),
        LogRecord(-5, b"", b""),
    ]
    for topic in ("clicks", "stamped"):
        client.produce(topic, 0, build_batch(records))
    where = {"archive": tmp_path / "archive", "state": tmp_path / "state"}
    archive(InProcessSpark(), source=broker.address, topics="clicks,stamped", **where)
    names = ("topic", "offset", "timestamp", "timestampType", "timestampMs", "headers", "key")
    names += ("value", "partition", "appendTime", "appendTimeMs", "createTime", "createTimeMs")
    schema = schema_of(names)
    options = {"subscribe": "clicks,stamped", "schema": schema}
    read = Read(kafka__bootstrap__servers=broker.address, **options)
    for view in (View(tmp_path, **options), View(tmp_path, broker.address, **options)):
        rows = sorted(view.rows(), key=lambda row: (row["topic"], row["offset"]))
        assert rows == sorted(read.rows(), key=lambda row: (row["topic"], row["offset"]))


def test_producers_are_those_of_a_read_from_files_of_many_hours_and_after_a_merge(
    broker: RunningBroker, client: Client, tmp_path: Path
) -> None:
    rng = random.Random(5)
    sequences: dict[int, int] = {}
    for number in range(60):
        producer = rng.choice([-1, 7, 9, (1 << 40) + 1])
        count = rng.randrange(1, 6)
        # The records of a batch fall into several hours, and those of an hour are far apart.
        records = [
            LogRecord(NINE_MS + rng.randrange(4) * HOUR_MS, b"k", b"%d" % number)
            for _ in range(count)
        ]
        more = {"producer_id": producer, "producer_epoch": 3}
        if producer != -1:
            more["base_sequence"] = sequences.get(producer, 0)
            sequences[producer] = more["base_sequence"] + count
        client.produce("clicks", 0, build_batch(records, **(more if producer != -1 else {})))
        if number in (20, 40):
            run(broker.address, tmp_path)
    names = ("partition", "offset", "value", "producerId", "producerEpoch", "sequence")
    options = {"subscribe": "clicks", "schema": schema_of(names)}

    def rows(read: Read) -> list[dict[str, Any]]:
        return sorted(read.rows(), key=lambda row: (row["partition"], row["offset"]))

    expected = rows(Read(kafka__bootstrap__servers=broker.address, **options))
    assert {row["producerId"] for row in expected} == {None, 7, 9, (1 << 40) + 1}
    both = View(tmp_path, broker.address, **options)
    assert rows(both) == expected
    archived = rows(View(tmp_path, **options))
    assert archived == expected[: len(archived)] != []
    merge_archive(InProcessSpark(), archive=tmp_path / "archive")
    assert rows(both) == expected
    (row,) = [row for row in both.rows(EqualTo(OFFSET, 33)) if row["offset"] == 33]
    assert row == expected[33]
    one = View(tmp_path, schema=schema_of(("sequence",)), subscribe="clicks").rows()
    assert Counter(row["sequence"] for row in one) == Counter(row["sequence"] for row in archived)


def test_a_log_in_files_is_joined_as_well(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path / "log", topic="clicks")
    files.add([NINE_MS] * 5)
    files.roll()
    run(files.log_dir, tmp_path)
    files.add([NINE_MS] * 5)
    files.write_indexes()
    found = View(tmp_path, files.log_dir).found()
    assert found == [(0, offset) for offset in range(1_000, 1_010)]


def test_another_log_is_refused(broker: RunningBroker, client: Client, tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path / "log", topic="clicks")
    files.add([NINE_MS] * 5)
    files.write_indexes()
    run(files.log_dir, tmp_path)
    with pytest.raises(Misconfigured, match="is of another log"):
        View(tmp_path, broker.address).found()
    run(broker.address, tmp_path, archive=tmp_path / "two", state=tmp_path / "three")
    client.delete_topics(["clicks"])
    broker.create_topic("clicks")
    for source in (broker.address, broker.log_dir):
        with pytest.raises(Misconfigured, match="deleted and created again"):
            View(tmp_path, source, **{"horolog.archive": tmp_path / "two"}).found()


@pytest.mark.spark
def test_it_is_one_data_frame(
    broker: RunningBroker, client: Client, tmp_path: Path, spark: Any
) -> None:
    fill(client, 50, NINE_MS)
    run(broker.address, tmp_path)
    fill(client, 30, NINE_MS + HOUR_MS)
    both = archived(spark, archive=tmp_path / "archive", source=broker.address, topics="clicks")
    late = both.where(f"timestampMs >= {NINE_MS + HOUR_MS}")
    assert (both.count(), late.count(), both.count()) == (80, 30, 80)
    assert both.selectExpr("count(distinct offset)").first()[0] == 80
    alone = archived(spark, archive=tmp_path / "archive")
    assert alone.where(f"timestamp >= timestamp_millis({NINE_MS + 45})").count() == 5
    with pytest.raises(Misconfigured, match="no archive"):
        archived(spark, archive=tmp_path / "none")


def test_a_topic_that_is_gone_from_the_broker_comes_from_the_archive(
    broker: RunningBroker, client: Client, tmp_path: Path
) -> None:
    fill(client, 20, NINE_MS)
    run(broker.address, tmp_path)
    client.delete_topics(["clicks"])
    expected = [(0, offset) for offset in range(20)]
    assert View(tmp_path, broker.address).found() == expected
    with pytest.raises(Misconfigured, match="neither in the archive nor in the log"):
        View(tmp_path, broker.address, subscribe="clicks,views").found()
