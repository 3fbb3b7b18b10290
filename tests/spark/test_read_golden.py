"""Directories that Apache Kafka wrote, read as Spark reads them, against Kafka's own answers."""

from pathlib import Path

import pytest
from log_reading import Read, moment, schema_of
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan

import golden
from horolog.errors import CorruptBatch, Misconfigured
from horolog.sources import columns

PARTITIONS = golden.partitions("clean", "killed")
ALL = schema_of(name for name in columns.TYPES if name not in columns.OF_STREAMS)


def told(row: dict) -> list:
    """A row as the answers write it."""
    headers = [[header["key"], golden.text(header["value"])] for header in row["headers"] or []]
    start = [row["offset"], row["timestampMs"], golden.text(row["key"]), golden.text(row["value"])]
    return [*start, headers] if headers else start


@pytest.mark.parametrize("partition", PARTITIONS, ids=lambda each: each.name)
def test_every_record_is_what_apache_kafka_served(partition: golden.GoldenPartition) -> None:
    rows = Read(partition.path, schema=ALL).rows()
    assert [told(row) for row in rows] == partition.answers["records"]
    assert {(row["topic"], row["partition"]) for row in rows} <= {
        (partition.topic, partition.partition)
    }


def test_a_whole_log_directory_is_every_partition_of_it() -> None:
    rows = Read(golden.GOLDEN / "clean", schema=ALL).rows()
    for partition in golden.partitions("clean"):
        mine = [
            told(row)
            for row in rows
            if (row["topic"], row["partition"]) == (partition.topic, partition.partition)
        ]
        assert mine == partition.answers["records"]


@pytest.mark.parametrize(
    "partition",
    [each for each in PARTITIONS if each.answers["committed_offsets"] is not None],
    ids=lambda each: each.name,
)
def test_committed_records_are_those_that_apache_kafka_calls_so(
    partition: golden.GoldenPartition,
) -> None:
    read = Read(partition.path, kafka__isolation__level="read_committed")
    assert read.offsets() == partition.answers["committed_offsets"]


@pytest.mark.parametrize("partition", PARTITIONS, ids=lambda each: each.name)
def test_times_in_options_find_the_offsets_that_apache_kafka_found(
    partition: golden.GoldenPartition,
) -> None:
    if partition.name in golden.HIDDEN_FROM_KAFKA:
        pytest.skip("Kafka's own answer is not the exact one there")
    lookups = partition.answers["lookups"]
    for timestamp_ms, offset, *_ in lookups[:: max(1, len(lookups) // 8)]:
        if offset < 0:
            with pytest.raises(Misconfigured, match="No offset of"):
                Read(partition.path, startingTimestamp=timestamp_ms).plan()
        else:
            _, partitions = Read(partition.path, startingTimestamp=timestamp_ms).plan()
            assert min(stretch.start for each in partitions for stretch in each.value) == offset


@pytest.mark.parametrize("partition", PARTITIONS, ids=lambda each: each.name)
def test_a_range_of_time_is_what_a_filter_over_all_records_leaves(
    partition: golden.GoldenPartition,
) -> None:
    read = Read(partition.path)
    records = partition.answers["records"]
    times = sorted({at for _, at, *_ in records if columns.FIRST_TIMESTAMP_MS < at < 10**13})
    for from_ms in times[:: max(1, len(times) // 6)]:
        filters = [
            GreaterThanOrEqual(("timestamp",), moment(from_ms)),
            LessThan(("timestamp",), moment(from_ms + 5_000)),
        ]
        within = range(from_ms, from_ms + 5_000)
        kept = [offset for offset, at, *_ in records if at in within and at != -1]
        rows = read.rows(*filters)
        if from_ms >= 0:  # else Spark applies the filter again
            assert len(rows) == len(kept)
        shown = [row for row in rows if row["timestamp"] is not None]
        assert [row["offset"] for row in shown if row["timestampMs"] in within] == kept


def test_the_log_that_a_killed_kafka_left_is_read_to_its_last_whole_batch(tmp_path: Path) -> None:
    log_dir = golden.extract_killed(tmp_path)
    damaged = {"flipped"}  # in the middle; Kafka's recovery cuts off what follows
    for partition in golden.partitions("killed"):
        if partition.topic not in damaged:
            rows = Read(log_dir, schema=ALL, subscribe=partition.topic).rows()
            assert [told(row) for row in rows] == partition.answers["records"]
    with pytest.raises(CorruptBatch, match=r"flipped-0/\d+.log .* the batch at offset 1\d\d"):
        Read(log_dir, subscribe="flipped").rows()
    rows = Read(log_dir, schema=ALL, subscribe="flipped", failOnDataLoss="false").rows()
    (flipped,) = (each for each in golden.partitions("killed") if each.topic == "flipped")
    assert [told(row) for row in rows][: len(flipped.answers["records"])] == (
        flipped.answers["records"]
    )


@pytest.mark.parametrize("partition", golden.partitions("old-formats"), ids=lambda each: each.name)
def test_old_formats_are_read_with_their_times_and_types(
    partition: golden.GoldenPartition,
) -> None:
    rows = Read(partition.path, schema=ALL).rows()
    # The client that was asked says 0 where a record has no timestamp.
    ours = [told(row | {"timestampMs": max(0, row["timestampMs"])}) for row in rows]
    assert ours == partition.answers["records"]
    for row in rows:
        assert (row["timestampType"] == -1) == (row["timestampMs"] == -1)
    times = sorted(row["timestampMs"] for row in rows)
    middle = times[len(times) // 2]
    later = Read(partition.path, schema=ALL).rows(
        GreaterThanOrEqual((columns.TIMESTAMP_MS,), middle)
    )
    assert [told(row) for row in later] == [
        told(row) for row in rows if row["timestampMs"] >= middle
    ]
    offset = rows[len(rows) // 3]["offset"]
    before = Read(partition.path, schema=ALL).rows(LessThan((columns.OFFSET,), offset))
    assert [told(row) for row in before] == [told(row) for row in rows if row["offset"] < offset]
