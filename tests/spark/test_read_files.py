import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from crc32c import crc32c
from examples import stride
from log_reading import Read, moment, schema_of
from overrides import override
from partition_files import BASE_OFFSET, PartitionFiles, flip
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    StringStartsWith,
)

from horolog.clock import SystemClock
from horolog.errors import CorruptBatch, Misconfigured
from horolog.record import HEADER_SIZE, Codec, LogRecord, build_batch, iter_headers
from horolog.sources import DataLost, file_systems, scan
from horolog.spark.read.batch import LogReader
from horolog.storage import FileEntry

NINE_MS = 1_700_000_000_000
TIME, TIME_MS, OFFSET = ("timestamp",), ("timestampMs",), ("offset",)


@pytest.fixture
def orders(tmp_path: Path) -> PartitionFiles:
    """Four segments of five batches; times rise by a second a batch, with some far behind."""
    files = PartitionFiles(tmp_path / "data")
    rng = random.Random(7)
    for number in range(20):
        times = [NINE_MS + 1000 * number + rng.randrange(-700, 700) for _ in range(10)]
        times[3] -= rng.choice([0, 5_000, 86_400_000])
        codec = [Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.GZIP, Codec.SNAPPY][number % 5]
        files.add(times, codec=codec)
        if number % 5 == 4 and number < 19:
            files.roll()
    files.write_indexes()
    return files


def within(files: PartitionFiles, from_ms: int, to_ms: int) -> list[int]:
    return [row.offset for row in files.rows if from_ms <= row.timestamp_ms < to_ms]


def offsets_of(reader: LogReader, partitions: list[InputPartition]) -> list[int]:
    tables = (table for partition in partitions for table in reader.read(partition))
    return [offset for table in tables for offset in table.column("offset").to_pylist()]


def between(from_ms: int, to_ms: int) -> list:
    return [GreaterThanOrEqual(TIME, moment(from_ms)), LessThan(TIME, moment(to_ms))]


# Everything that is there, once.


def test_every_record_comes_back_as_it_was_written(orders: PartitionFiles) -> None:
    rows = Read(orders.log_dir).rows()
    assert [
        (
            row["topic"],
            row["partition"],
            row["offset"],
            row["timestampMs"],
            row["timestampType"],
            row["key"],
            row["value"],
        )
        for row in rows
    ] == [row[:-1] for row in orders.rows]
    assert [row["timestamp"] for row in rows] == [moment(row.timestamp_ms) for row in orders.rows]


def test_headers_come_back_where_they_are_asked_for(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path)
    files.add([1], headers=(("a", b"1"), ("a", None)))
    files.add([2])
    read = Read(tmp_path, schema=schema_of(["headers", "offset"]))
    assert [row["headers"] for row in read.rows()] == [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        None,
    ]


def test_a_path_is_a_log_directory_a_partition_a_segment_or_above_them(
    orders: PartitionFiles,
) -> None:
    everything = [row.offset for row in orders.rows]
    assert Read(orders.log_dir.parent).offsets() == everything
    assert Read(f"{orders.log_dir}/").offsets() == everything
    assert Read(f"file://{orders.log_dir}").offsets() == everything
    assert Read(orders.directory).offsets() == everything
    second = [row.offset for row in orders.rows[50:100]]
    assert Read(orders.logs[1]).offsets() == second
    assert Read(orders.logs[1], orders.logs[3]).offsets() == [*second, *everything[150:]]


def test_a_path_may_be_a_pattern_as_of_sparks_file_sources(tmp_path: Path) -> None:
    for broker in ("a", "b"):
        for topic in ("orders", "clicks"):
            for partition in (0, 1):
                files = PartitionFiles(
                    tmp_path / broker, topic=f"{broker}-{topic}", partition=partition
                )
                files.add([NINE_MS])
                files.roll()
                files.add([NINE_MS])
    PartitionFiles(tmp_path / "a", topic="__consumer_offsets").add([NINE_MS])
    (tmp_path / "a" / "notes").mkdir()
    (tmp_path / "a" / "meta.properties").write_text("version=0")

    def found(*patterns: str) -> set[str]:
        read = Read(*(f"{tmp_path}/{pattern}" for pattern in patterns))
        return {f"{row['topic']}-{row['partition']}" for row in read.rows()}

    orders = {"a-orders-0", "a-orders-1", "b-orders-0", "b-orders-1"}
    clicks = {each.replace("orders", "clicks") for each in orders}
    assert found("*/*-orders-*") == orders
    assert found("?/*-orders-[^1]") == {"a-orders-0", "b-orders-0"}
    assert found("{a,b}/*-{or{d,x}ers,clicks}-0/") == {
        *("a-orders-0", "b-orders-0"),
        *("a-clicks-0", "b-clicks-0"),
    }
    assert found("[a-z]") == found("*", "a") == orders | clicks
    assert found("a/*") == {each for each in orders | clicks if each.startswith("a")}
    assert found("a/__consumer*") == {"__consumer_offsets-0"}
    assert found("b/b-orders-0/*1.log") == {"b-orders-0"}
    assert found("b/b-orders-0/*") == {"b-orders-0"}


def test_a_path_that_is_there_literally_is_no_pattern(tmp_path: Path) -> None:
    for directory in ("[ab]", "a"):
        PartitionFiles(tmp_path / directory, topic=f"in-{len(directory)}").add([NINE_MS])
    assert {row["topic"] for row in Read(tmp_path / "[ab]").rows()} == {"in-4"}
    assert {row["topic"] for row in Read(tmp_path / "[ab]*").rows()} == {"in-1"}


def test_a_pattern_that_nothing_matches_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"No path matches .*/none-\*"):
        Read(tmp_path / "none-*")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with pytest.raises(Misconfigured, match=r"Nothing that matches .*/\* is or holds a Kafka log"):
        Read(tmp_path / "*").plan()
    with pytest.raises(Misconfigured, match="more than 1000 alternatives"):
        Read(tmp_path / ("{a,b}" * 40))


def test_a_path_without_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=f"There is no path {tmp_path}/x"):
        Read(tmp_path / "x")
    with pytest.raises(Misconfigured, match="There is no Kafka log at"):
        Read(tmp_path).plan()
    (tmp_path / "copied").mkdir()
    (tmp_path / "copied" / f"{5:020d}.log").touch()
    with pytest.raises(Misconfigured, match="copied holds segments, but its name is not"):
        Read(tmp_path).plan()
    with pytest.raises(Misconfigured, match="no file system that pyarrow can open"):
        Read("nosuch://bucket/logs")


@pytest.mark.parametrize("what", ["segment", "partition", "fifo"])
def test_what_is_no_file_is_named_and_never_waited_for(
    orders: PartitionFiles, tmp_path: Path, what: str
) -> None:
    """Left out without a word, its records would be missing."""
    if what == "partition":
        place = orders.log_dir / "linked-0"
        place.symlink_to(orders.directory)
    else:
        place = orders.logs[1]
        place.rename(tmp_path / place.name)
        place.symlink_to(tmp_path / place.name) if what == "segment" else os.mkfifo(place)
    with pytest.raises(Misconfigured, match=f"{place} is "):
        Read(orders.log_dir).rows()


def test_links_and_fifos_of_other_names_are_skipped(orders: PartitionFiles, tmp_path: Path) -> None:
    (orders.log_dir / "latest").symlink_to(orders.directory)
    os.mkfifo(orders.directory / "pipe")
    link = tmp_path / "link"
    link.symlink_to(orders.log_dir)
    everything = [row.offset for row in orders.rows]
    assert Read(orders.log_dir).offsets() == everything
    assert Read(link).offsets() == everything


def test_directories_set_aside_and_internal_topics_are_skipped(orders: PartitionFiles) -> None:
    PartitionFiles(orders.log_dir, topic="__consumer_offsets").add([1])
    aside = PartitionFiles(orders.log_dir, topic="gone")
    aside.add([1])
    aside.directory.rename(orders.log_dir / f"gone-0.{'0' * 32}-delete")
    rows = Read(orders.log_dir).rows()
    assert {row["topic"] for row in rows} == {"orders"}
    assert len(Read(orders.log_dir, subscribe="__consumer_offsets").rows()) == 1
    assert len(Read(orders.log_dir / "__consumer_offsets-0").rows()) == 1


def test_a_subscription_picks_among_the_topics_of_a_path(orders: PartitionFiles) -> None:
    for topic, partition in (("clicks", 0), ("clicks", 1), ("organ", 0)):
        PartitionFiles(orders.log_dir, topic=topic, partition=partition).add([1])

    def topics(**options: str) -> set:
        rows = Read(orders.log_dir, **options).rows()
        return {(row["topic"], row["partition"]) for row in rows}

    assert topics(subscribe="clicks,organ") == {("clicks", 0), ("clicks", 1), ("organ", 0)}
    assert topics(subscribePattern="or.*") == {("orders", 0), ("organ", 0)}
    assert topics(assign='{"clicks":[1]}') == {("clicks", 1)}
    with pytest.raises(Misconfigured, match="no topic coins below"):
        Read(orders.log_dir, subscribe="clicks,coins").plan()
    with pytest.raises(Misconfigured, match="no partition clicks-7 below"):
        Read(orders.log_dir, assign='{"clicks":[7]}').plan()


def test_filters_on_topic_and_partition_pick_directories(orders: PartitionFiles) -> None:
    for partition in range(3):
        PartitionFiles(orders.log_dir, topic="clicks", partition=partition).add([1, 2])
    read = Read(orders.log_dir)
    clicks = read.rows(StringStartsWith(("topic",), "cl"), In(("partition",), (0, 2)))
    assert [(row["topic"], row["partition"]) for row in clicks] == [("clicks", 0)] * 2 + [
        ("clicks", 2)
    ] * 2


# Time.


@pytest.mark.parametrize("indexes", ["kept", "missing", "lying"])
def test_a_range_of_time_is_exact_wherever_it_is(orders: PartitionFiles, indexes: str) -> None:
    rng = random.Random(3)
    for path in orders.directory.glob("*index"):
        if indexes == "missing":
            path.unlink()
        elif indexes == "lying":
            path.write_bytes(rng.randbytes(path.stat().st_size))
    read = Read(orders.log_dir)
    moments = [NINE_MS + 997 * number for number in range(-3, 23)]
    for from_ms in moments:
        for to_ms in (from_ms + 1, from_ms + 1500, NINE_MS + 10**9):
            rows = within(orders, from_ms, to_ms)
            assert read.offsets(*between(from_ms, to_ms)) == rows
    old = within(orders, 0, NINE_MS - 3_000)
    assert old, "the fixture has late records"
    assert read.offsets(LessThan(TIME, moment(NINE_MS - 3_000))) == old


def test_a_time_index_that_ends_too_early_is_not_trusted(orders: PartitionFiles) -> None:
    """As after a crash, or a copy that was broken off."""
    for path in orders.directory.glob("*.timeindex"):
        path.write_bytes(path.read_bytes()[:12])
    late = NINE_MS + 18_000
    assert Read(orders.log_dir).offsets(GreaterThan(TIME_MS, late)) == within(
        orders, late + 1, 1 << 62
    )


def test_a_time_index_that_names_too_early_a_time_is_not_trusted(orders: PartitionFiles) -> None:
    for path in orders.directory.glob("*.timeindex"):
        data = path.read_bytes()
        at, offset = struct.unpack(">qi", data[-12:])
        path.write_bytes(data[:-12] + struct.pack(">qi", at - 500, offset))
    late = [row.timestamp_ms for row in orders.rows[40:50]]
    assert Read(orders.log_dir).offsets(GreaterThanOrEqual(TIME_MS, max(late))) == within(
        orders, max(late), 1 << 62
    )


def test_records_with_wild_times_are_read_and_filtered_exactly(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path)
    wild = [-1, 0, -2, NINE_MS, NINE_MS * 1_000_000, -(1 << 63), (1 << 63) - 1, -62135596800001]
    for number, first in enumerate(wild):
        files.add([first, NINE_MS + number, -1])
        files.add([first])
    files.write_indexes()
    read = Read(tmp_path)
    assert [row["timestampMs"] for row in read.rows()] == [row.timestamp_ms for row in files.rows]
    for edge in wild:
        rows = read.rows(EqualTo(TIME_MS, edge))
        # Where -1 is asked for, Spark applies the filter again.
        offsets = [row["offset"] for row in rows if edge != -1 or row["timestampMs"] == -1]
        assert offsets == [row.offset for row in files.rows if row.timestamp_ms == edge]
        kept = [row.offset for row in files.rows if row.timestamp_ms >= edge]
        assert set(kept) <= set(read.offsets(GreaterThanOrEqual(TIME_MS, edge)))


def test_append_times_are_those_that_filters_see(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path)
    for number in range(5):
        files.add([5, NINE_MS * 2], append_ms=NINE_MS + number)
    read = Read(tmp_path)
    assert read.offsets(*between(NINE_MS + 2, NINE_MS + 4)) == within(
        files, NINE_MS + 2, NINE_MS + 4
    )
    assert {row["timestampType"] for row in read.rows()} == {1}


def test_real_times_far_out_of_order_are_filtered_as_a_full_scan_would(
    tmp_path: Path, commit_times: list[int]
) -> None:
    files = PartitionFiles(tmp_path, interval_bytes=4096)
    for start in range(0, len(commit_times), 100):
        files.add(commit_times[start : start + 100], value_bytes=0)
        if start % 2000 == 1900:
            files.roll()
    files.write_indexes()
    read = Read(tmp_path)
    ordered = sorted(commit_times)
    for part in range(0, 100, 9):
        from_ms = ordered[len(ordered) * part // 100]
        to_ms = ordered[min(len(ordered) * (part + 1) // 100, len(ordered) - 1)]
        assert read.offsets(*between(from_ms, to_ms)) == within(files, from_ms, to_ms)


# Offsets.


def test_offsets_may_be_bounded_by_options_and_filters(orders: PartitionFiles) -> None:
    read = Read(
        orders.log_dir,
        startingOffsets='{"orders":{"0":1013}}',
        endingOffsets='{"orders":{"0":1127}}',
    )
    assert read.offsets() == [*range(1013, 1127)]
    assert read.offsets(GreaterThan(OFFSET, 1099), LessThan(OFFSET, 1102)) == [1100, 1101]
    assert read.offsets(GreaterThan(OFFSET, 1126)) == []


@pytest.mark.parametrize("indexes", ["kept", "missing", "lying"])
@pytest.mark.parametrize("start", [1000, 1001, 1010, 1049, 1050, 1123, 1199])
def test_a_read_may_start_at_any_offset(orders: PartitionFiles, indexes: str, start: int) -> None:
    for path in orders.directory.glob("*.index"):
        if indexes == "missing":
            path.unlink()
        elif indexes == "lying":
            path.write_bytes(bytes([0, 0, 0, 9, 0, 0, 0, 77]))
    read = Read(orders.log_dir, startingOffsets=json.dumps({"orders": {"0": start}}))
    assert read.offsets() == [*range(start, 1200)]


def test_times_in_options_become_offsets_of_first_records_that_late(orders: PartitionFiles) -> None:
    late = [row.offset for row in orders.rows if row.timestamp_ms >= NINE_MS + 9_000]
    later = [row.offset for row in orders.rows if row.timestamp_ms >= NINE_MS + 13_000]
    read = Read(orders.log_dir, startingTimestamp=NINE_MS + 9_000, endingTimestamp=NINE_MS + 13_000)
    assert read.offsets() == [*range(late[0], later[0])]
    with pytest.raises(Misconfigured, match="No offset of orders-0"):
        Read(orders.log_dir, startingTimestamp=NINE_MS * 2).plan()


def test_the_log_start_offset_is_honoured(orders: PartitionFiles) -> None:
    checkpoint = orders.log_dir / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\norders 0 1037\n")
    assert Read(orders.log_dir).offsets() == [*range(1037, 1200)]
    assert Read(orders.directory).offsets() == [*range(1037, 1200)]
    assert Read(orders.logs[0]).offsets() == [*range(1037, 1050)]
    assert Read(orders.log_dir, startingTimestamp=0).offsets() == [*range(1037, 1200)]
    checkpoint.write_text("nonsense")
    assert Read(orders.log_dir).offsets() == [*range(1000, 1200)]


def test_tasks_cut_the_log_without_losing_or_doubling_a_record(orders: PartitionFiles) -> None:
    read = Read(orders.log_dir, minPartitions=13)
    reader, partitions = read.plan()
    assert len(partitions) >= 12
    assert offsets_of(reader, partitions) == [*range(1000, 1200)]
    reader, partitions = Read(orders.log_dir, maxRecordsPerPartition=30).plan()
    sizes = [sum(table.num_rows for table in reader.read(part)) for part in partitions]
    assert max(sizes) == 30
    assert sum(sizes) == 200


# Ends, and logs that change.


TORN = {
    "a part of a batch": lambda batch: batch[:-3],
    "less than a header": lambda batch: batch[:40],
    "zeros": lambda _: bytes(4096),
    "garbage": lambda _: b"\xff" * 500,
}


@pytest.mark.parametrize("torn", TORN)
@pytest.mark.parametrize("indexes", [True, False])
def test_a_read_stops_at_a_torn_tail(orders: PartitionFiles, torn: str, indexes: bool) -> None:
    batch = build_batch([LogRecord(5, None, b"x" * 99)] * 3, base_offset=orders.next_offset)
    with orders.log.open("ab") as log:
        log.write(TORN[torn](batch))
    if not indexes:
        for path in orders.directory.glob("*index"):
            path.unlink()
    assert Read(orders.log_dir).offsets() == [*range(1000, 1200)]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda size: (size + 100, bytes(4000)), id="a hole in it"),
        pytest.param(lambda size: (size, b"\xff" * 61), id="no header"),
        pytest.param(lambda size: (size + 8, bytes(4)), id="no length"),
        pytest.param(lambda size: (size + 8, b"\x7f\xff\xff\xff"), id="too great a length"),
    ],
)
@pytest.mark.parametrize("indexes", [True, False])
def test_a_damaged_batch_before_whole_ones_is_not_the_end_of_the_log(
    orders: PartitionFiles, damage: Callable[[int], tuple[int, bytes]], indexes: bool
) -> None:
    position, data = damage(orders.log.stat().st_size)
    orders.add([NINE_MS], value_bytes=5000)
    orders.add([NINE_MS])
    orders.add([NINE_MS])
    with orders.log.open("r+b") as log:
        log.seek(position)
        log.write(data)
    if not indexes:
        for path in orders.directory.glob("*index"):
            path.unlink()
    with pytest.raises(CorruptBatch, match=f"{orders.log} cannot be read to its end"):
        Read(orders.log_dir).rows()
    left = Read(orders.log_dir, failOnDataLoss="false").offsets()
    assert {*range(1000, 1200)} <= set(left) <= {*range(1000, 1200), 1201, 1202}


def test_a_damaged_batch_beyond_the_offsets_that_are_asked_for_is_not_met(
    orders: PartitionFiles,
) -> None:
    size = orders.log.stat().st_size
    orders.add([NINE_MS])
    orders.add([NINE_MS])
    with orders.log.open("r+b") as log:
        log.seek(size)
        log.write(bytes(61))
    read = Read(orders.log_dir, endingOffsets='{"orders": {"0": 1200}}')
    assert read.offsets() == [*range(1000, 1200)]


@pytest.mark.parametrize("indexes", [True, False])
def test_messages_of_an_older_format_are_no_torn_tail(
    orders: PartitionFiles, indexes: bool
) -> None:
    """Kafka's own bytes of a message of format v1."""
    message = "00000000000004b0 00000018 e4e321bc 01 00 00000000000003e8 00000001 6b 00000001 76"
    with orders.log.open("ab") as log:
        log.write(bytes.fromhex(message))
    if not indexes:
        for path in orders.directory.glob("*index"):
            path.unlink()
    rows = Read(orders.log_dir).rows()
    assert [row["offset"] for row in rows] == [*range(1000, 1201)]
    assert (rows[-1]["timestampMs"], rows[-1]["key"], rows[-1]["value"]) == (1000, b"k", b"v")


def test_an_empty_log_has_no_rows(tmp_path: Path) -> None:
    PartitionFiles(tmp_path)
    assert Read(tmp_path).rows() == []


def test_every_query_sees_the_log_as_it_is_when_it_is_planned(orders: PartitionFiles) -> None:
    read = Read(orders.log_dir)
    ending = Read(orders.log_dir, endingOffsets='{"orders":{"0":1200}}')
    reader, partitions = read.plan()
    orders.add([NINE_MS])
    orders.roll()
    orders.add([NINE_MS])
    assert offsets_of(reader, partitions) == [*range(1000, 1200)]
    assert read.offsets() == [*range(1000, 1202)]
    assert read.offsets(GreaterThan(OFFSET, 1198)) == [1199, 1200, 1201]
    assert ending.offsets() == [*range(1000, 1200)]


def test_a_relative_time_is_that_of_the_load(
    orders: PartitionFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Read(orders.log_dir, endingTimestamp="-0s")
    later = SystemClock().now_ms() + 3_600_000
    orders.add([later])
    monkeypatch.setattr(SystemClock, "now_ms", lambda clock: later + 1)
    assert read.offsets() == [*range(1000, 1200)]


def test_a_start_that_is_gone_is_lost_data(orders: PartitionFiles) -> None:
    start = '{"orders":{"0":1000}}'
    strict = Read(orders.log_dir, startingOffsets=start)
    lenient = Read(orders.log_dir, startingOffsets=start, failOnDataLoss="false")
    earliest = Read(orders.log_dir)
    orders.logs[0].unlink()
    with pytest.raises(DataLost, match="read from offset 1000, and starts at 1050 now"):
        strict.plan()
    assert lenient.offsets() == earliest.offsets() == [*range(1050, 1200)]


def test_a_segment_deleted_after_planning_is_lost_data(orders: PartitionFiles) -> None:
    for fail in ("true", "false"):
        reader, partitions = Read(orders.log_dir, failOnDataLoss=fail).plan()
        data = orders.logs[1].read_bytes()
        gone = orders.logs[1]
        gone.unlink()
        if fail == "true":
            with pytest.raises(DataLost, match="was deleted before it was read"):
                offsets_of(reader, partitions)
        else:
            left = [*range(1000, 1050), *range(1100, 1200)]
            assert offsets_of(reader, partitions) == left
        gone.write_bytes(data)


def test_a_segment_that_waits_for_its_deletion_is_still_read(orders: PartitionFiles) -> None:
    reader, partitions = Read(orders.log_dir).plan()
    gone = orders.logs[1]
    gone.rename(f"{gone}.deleted")
    assert offsets_of(reader, partitions) == [*range(1000, 1200)]


def test_a_worker_without_the_path_fails_with_its_name(orders: PartitionFiles) -> None:
    reader, partitions = Read(orders.log_dir, failOnDataLoss="false").plan()
    orders.log_dir.rename(f"{orders.log_dir}-elsewhere")
    with pytest.raises(Misconfigured, match=r"does not exist on .*: every worker has to see it"):
        offsets_of(reader, partitions)


def test_damage_in_the_middle_ends_a_read_unless_losses_are_accepted(
    orders: PartitionFiles,
) -> None:
    second = orders.logs[1]
    data = bytearray(second.read_bytes())
    data[-20] ^= 0xFF
    second.write_bytes(data)
    with pytest.raises(CorruptBatch, match=f"{second} cannot be read to its end.*failOnDataLoss"):
        Read(orders.log_dir).rows()
    left = Read(orders.log_dir, failOnDataLoss="false").offsets()
    assert left == sorted(left)
    assert {*range(1000, 1050), *range(1100, 1200)} <= set(left) < {*range(1000, 1200)}


def test_a_finished_segment_without_its_end_is_lost_data(orders: PartitionFiles) -> None:
    second = orders.logs[1]
    second.write_bytes(second.read_bytes()[:-10])
    with pytest.raises(CorruptBatch, match="does not fit: only"):
        Read(orders.log_dir).rows()
    assert Read(orders.log_dir, failOnDataLoss="false").offsets() == [
        *range(1000, 1090),
        *range(1100, 1200),
    ]


# Transactions.


def transactions(log_dir: Path) -> tuple[PartitionFiles, list[int]]:
    """Two producers whose transactions overlap, and one that has not ended; committed offsets."""
    files = PartitionFiles(log_dir)
    files.add([1, 2])
    aborted = files.add([3, 4], producer_id=7)
    files.add([5], producer_id=8)
    files.roll()
    files.end_transaction(7, commit=False)
    files.add([6], producer_id=7)
    files.end_transaction(8, commit=True)
    files.end_transaction(7, commit=True)
    files.add([7])
    files.write_indexes()
    return files, [row.offset for row in files.rows if row.offset not in (aborted, aborted + 1)]


def test_control_batches_are_never_shown(tmp_path: Path) -> None:
    files, _ = transactions(tmp_path)
    assert Read(tmp_path).offsets() == [row.offset for row in files.rows]


def test_records_of_aborted_transactions_are_left_out_of_committed_reads(tmp_path: Path) -> None:
    _, committed = transactions(tmp_path)
    assert Read(tmp_path, kafka__isolation__level="read_committed").offsets() == committed
    later = Read(
        tmp_path,
        kafka__isolation__level="read_committed",
        startingOffsets='{"orders":{"0":1003}}',
        endingOffsets='{"orders":{"0":1006}}',
    )
    assert later.offsets() == [offset for offset in committed if 1003 <= offset < 1006]


def test_a_committed_read_ends_where_an_undecided_transaction_begins(tmp_path: Path) -> None:
    files, committed = transactions(tmp_path)
    files.add([8], producer_id=9)
    files.add([9])
    assert Read(tmp_path, kafka__isolation__level="read_committed").offsets() == committed
    assert len(Read(tmp_path).offsets()) == len(files.rows)


def committed_or_refused(log_dir: Path, start: int) -> list[int] | None:
    """What a committed read from an offset on gives; None if it is refused."""
    try:
        tables = scan(log_dir, "orders", read_committed=True, starting_offsets={0: start})
        return [*tables.read_all()["offset"].to_pylist()]
    except (CorruptBatch, DataLost):
        return None


def test_no_flipped_bit_of_a_marker_changes_what_is_committed(tmp_path: Path) -> None:
    files, committed = transactions(tmp_path)
    files.roll()
    committed.append(files.add([8]))
    files.write_indexes()
    log = files.logs[1]
    whole = log.read_bytes()
    markers = [at for at, header in iter_headers(whole) if header.is_control]
    bits = [at * 8 + bit for at in markers for bit in range(78 * 8)]
    refused = 0
    for bit in bits[:: stride(11)]:
        flip(log, bit // 8, 1 << bit % 8)
        found = [committed_or_refused(tmp_path, start) for start in (1_000, 1_007)]
        expected = [[each for each in committed if each >= start] for start in (1_000, 1_007)]
        assert all(it in (None, its) for it, its in zip(found, expected, strict=True)), bit
        refused += None in found
        log.write_bytes(whole)
    assert refused, "most flips are seen"


def test_no_flipped_bit_of_a_header_changes_what_is_read(tmp_path: Path) -> None:
    files, committed = transactions(tmp_path)
    files.roll()
    files.add([8], producer_id=9)
    files.add([9])
    files.write_indexes()
    everything = [row.offset for row in files.rows]
    levels = {"read_committed": committed, "read_uncommitted": everything}
    for log in files.logs[:2]:
        whole = log.read_bytes()
        bits = [
            at * 8 + bit for at, _ in iter_headers(whole) for bit in range(21 * 8, HEADER_SIZE * 8)
        ]
        for bit in bits[:: stride(7)]:
            flip(log, bit // 8, 1 << bit % 8)
            for level, expected in levels.items():
                asked = {"kafka.isolation.level": level}
                try:
                    found = Read(tmp_path, **asked).offsets()
                except (CorruptBatch, DataLost):
                    found = expected
                assert found == expected, (log.name, bit, level)
                left = Read(tmp_path, **asked, failOnDataLoss="false").offsets()
                assert set(left) <= set(expected), (log.name, bit, level)
            log.write_bytes(whole)


def test_a_lost_marker_before_an_open_transaction_of_its_producer_is_lost_data(
    tmp_path: Path,
) -> None:
    files = PartitionFiles(tmp_path)
    first = files.add([1], producer_id=7)
    files.roll()
    files.end_transaction(7, commit=True)
    files.roll()
    behind = files.add([2])
    files.add([3], producer_id=7)
    files.write_indexes()
    flip(files.logs[1], HEADER_SIZE + 2, 1)
    level = {"kafka.isolation.level": "read_committed"}
    with pytest.raises(DataLost, match=f"is unknown from offset {first} on"):
        Read(tmp_path, **level).offsets()
    assert Read(tmp_path, **level, failOnDataLoss="false").offsets() == [behind]


def aborted_behind(files: PartitionFiles) -> int:
    """A segment of four plain batches, and one with an aborted transaction: where that begins."""
    for number in range(4):
        files.add([number])
    files.roll()
    start = files.add([5], producer_id=7)
    files.end_transaction(7, commit=False)
    files.add([6])
    files.write_indexes()
    return start


def test_damage_before_a_committed_read_is_lost_data(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path)
    start = aborted_behind(files)
    flip(files.logs[0], 16, 8)  # the format of the first batch
    level = {"kafka.isolation.level": "read_committed"}
    behind = {"startingOffsets": f'{{"orders": {{"0": {start}}}}}', **level}
    with pytest.raises(DataLost, match="Which transactions of orders-0 are committed is unknown"):
        Read(tmp_path, **behind).offsets()
    assert Read(tmp_path, failOnDataLoss="false", **behind).offsets() == [start + 2]
    with pytest.raises(DataLost, match="Which transactions"):
        Read(tmp_path, **level, endingOffsets='{"orders": {"0": 1001}}').offsets()


def test_bytes_behind_all_offsets_of_a_segment_hide_no_transaction(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path)
    start = aborted_behind(files)
    for junk in (bytes(4096), b"\xff" * 100, b"x"):
        with files.logs[0].open("ab") as log:
            log.write(junk)
        read = Read(tmp_path, kafka__isolation__level="read_committed")
        assert read.offsets() == [*range(BASE_OFFSET, start), start + 2]


def test_a_marker_cut_off_a_middle_segment_ends_no_committed_read_in_silence(
    tmp_path: Path,
) -> None:
    files = PartitionFiles(tmp_path)
    start = files.add([1], producer_id=7)
    cut = files.log.stat().st_size
    files.end_transaction(7, commit=False)
    log = files.log
    files.roll()
    files.add([2])
    os.truncate(log, cut)
    level = {"kafka.isolation.level": "read_committed"}
    for end in (start + 1, start + 3):
        ending = {"endingOffsets": f'{{"orders": {{"0": {end}}}}}'}
        with pytest.raises(DataLost, match=rf"offsets {start + 1} to {start + 1} are in none"):
            Read(tmp_path, **level, **ending).offsets()
    behind = Read(tmp_path, **level, failOnDataLoss="false").offsets()
    assert start + 2 in behind, "what is left is read, and what is damaged is named"


# Replicas.


def test_replicas_under_several_paths_are_one_log(tmp_path: Path) -> None:
    both = []
    for name, dropped in (("one", 0), ("two", 3)):
        files = PartitionFiles(tmp_path / name)
        for number in range(9):
            files.add([NINE_MS + number] * 10)
            if number % 3 == 2:
                files.roll()
        files.logs[dropped].unlink()
        both.append(files)
    everything = [*range(BASE_OFFSET, BASE_OFFSET + 90)]
    assert Read(*(files.log_dir for files in both)).offsets() == everything
    assert Read(tmp_path).offsets() == everything
    assert Read(tmp_path, both[0].directory).offsets() == everything


@pytest.mark.parametrize("checkpoints", ["right", "wrong", "none"])
def test_of_replicas_that_differ_the_higher_leader_epoch_is_read(
    tmp_path: Path, checkpoints: str
) -> None:
    follower = PartitionFiles(tmp_path / "follower")
    follower.add([1] * 100)
    follower.add([2] * 100)
    leader = PartitionFiles(tmp_path / "leader")
    leader.add([1] * 100)
    leader.leader_epoch = 4
    leader.add([3] * 50)
    if checkpoints != "none":
        leaders = "0\n2\n0 1000\n4 1100\n" if checkpoints == "right" else "0\n1\n0 1000\n"
        for files, text in ((follower, "0\n1\n0 1000\n"), (leader, leaders)):
            (files.directory / "leader-epoch-checkpoint").write_text(text)
    rows = Read(follower.log_dir, leader.log_dir).rows()
    assert [row["timestampMs"] for row in rows] == [1] * 100 + [3] * 50


def test_offsets_that_no_replica_has_are_lost_data(tmp_path: Path) -> None:
    first = PartitionFiles(tmp_path / "first")
    first.add([1] * 10)
    second = PartitionFiles(tmp_path / "second", base_offset=BASE_OFFSET + 20)
    second.add([2] * 10)
    with pytest.raises(DataLost, match="Offsets 1010 to 1019 of orders-0 are in none"):
        Read(first.log_dir, second.log_dir).rows()


# Other file systems.


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    system = pafs.SubTreeFileSystem("/", pafs.LocalFileSystem())
    override(
        monkeypatch,
        "horolog.sources",
        system_of=lambda uri, store: (system, uri.removeprefix("elsewhere://")),
    )


@pytest.mark.usefixtures("elsewhere")
def test_any_file_system_of_pyarrow_is_read(orders: PartitionFiles) -> None:
    (orders.log_dir / "log-start-offset-checkpoint").write_text("0\n1\norders 0 1037\n")
    read = Read(f"elsewhere://{orders.log_dir}")
    assert read.offsets() == [*range(1037, 1200)]
    from_ms, to_ms = NINE_MS + 3000, NINE_MS + 9000
    assert read.offsets(*between(from_ms, to_ms)) == [
        offset for offset in within(orders, from_ms, to_ms) if offset >= 1037
    ]
    reader, partitions = read.plan()
    orders.logs[1].unlink()
    with pytest.raises(DataLost, match="was deleted before it was read"):
        offsets_of(reader, partitions)


# A segment in the middle is missing.


def without_a_middle_segment(files: PartitionFiles) -> None:
    files.logs[1].unlink()  # offsets 1050 to 1099


@pytest.mark.parametrize("indexes", ["kept", "missing"])
@pytest.mark.parametrize("when", ["all", "beside", "within"])
def test_a_segment_missing_in_the_middle_is_lost_data(
    orders: PartitionFiles, indexes: str, when: str
) -> None:
    """Whether the range is all times, or is in neighbouring segments, or within it."""
    first, last = {"all": (0, 10**6), "beside": (3, 12), "within": (6, 9)}[when]
    filters = between(NINE_MS + 1000 * first, NINE_MS + 1000 * last)
    if indexes == "missing":
        for path in orders.directory.glob("*index"):
            path.unlink()
    without_a_middle_segment(orders)
    with pytest.raises(DataLost, match="Offsets 1050 to 1099 of orders-0 are in none of the files"):
        Read(orders.log_dir).offsets(*filters)
    left = [
        offset
        for offset in within(orders, NINE_MS + 1000 * first, NINE_MS + 1000 * last)
        if not 1050 <= offset < 1100
    ]
    assert Read(orders.log_dir, failOnDataLoss="false").offsets(*filters) == left


def test_what_is_missing_outside_of_the_offsets_that_are_asked_for_is_not_lost(
    orders: PartitionFiles,
) -> None:
    without_a_middle_segment(orders)
    for start, end in ((1000, 1050), (1100, 1200), (1120, 1150)):
        limits = {
            "startingOffsets": json.dumps({"orders": {"0": start}}),
            "endingOffsets": json.dumps({"orders": {"0": end}}),
        }
        assert Read(orders.log_dir, **limits).offsets() == [*range(start, end)]
    limits = {
        "startingOffsets": json.dumps({"orders": {"0": 1040}}),
        "endingOffsets": json.dumps({"orders": {"0": 1060}}),
    }
    with pytest.raises(DataLost, match="Offsets 1050 to 1059 of orders-0"):
        Read(orders.log_dir, **limits).offsets()


def test_segments_that_are_named_need_not_follow_each_other(orders: PartitionFiles) -> None:
    named = orders.logs[0], orders.logs[2]
    assert Read(*named).offsets() == [*range(1000, 1050), *range(1100, 1150)]


@pytest.mark.parametrize("known_by", ["cleaner", "hole", "hole in a batch"])
def test_compaction_leaves_offsets_out(tmp_path: Path, known_by: str) -> None:
    files = PartitionFiles(tmp_path / "data")
    files.add([NINE_MS] * 10)
    if known_by == "hole":
        files.next_offset += 3
        files.add([NINE_MS] * 10)
    files.next_offset += 5  # the end of the segment has been emptied
    files.roll()
    files.add([NINE_MS] * 10)
    if known_by == "cleaner":
        (files.log_dir / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 1000\n")
    if known_by == "hole in a batch":
        log = bytearray(files.logs[1].read_bytes())
        struct.pack_into(">i", log, 23, 11)  # last offset delta
        struct.pack_into(">I", log, 17, crc32c(bytes(log[21:])))
        files.logs[1].write_bytes(log)
    assert len(Read(files.log_dir).offsets()) == (30 if known_by == "hole" else 20)


def test_a_segment_that_was_listed_before_its_last_append_is_read_to_its_end(
    orders: PartitionFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It grows and another one is begun while the directory is listed."""
    entries = file_systems.Root.entries
    last = orders.logs[1]

    def early(root: file_systems.Root, **how: bool) -> list[FileEntry]:
        return [
            entry._replace(size=entry.size // 2) if entry.path == str(last) else entry
            for entry in entries(root, **how)
        ]

    monkeypatch.setattr(file_systems.Root, "entries", early)
    assert Read(orders.log_dir).offsets() == [*range(1000, 1200)]


@pytest.mark.parametrize(
    ("option", "offsets"),
    [
        ("fromTimestamp", [1, 2]),
        ("toTimestamp", [0]),
        ("startingTimestamp", [1, 2]),
        ("endingTimestamp", [0]),
    ],
)
def test_a_bound_between_two_milliseconds_lies_between_their_records(
    tmp_path: Path, option: str, offsets: list[int]
) -> None:
    files = PartitionFiles(tmp_path)
    files.add([NINE_MS, NINE_MS + 1, NINE_MS + 2])
    read = Read(files.log_dir, **{option: "2023-11-14T22:13:20.0005Z"})
    assert read.offsets() == [BASE_OFFSET + each for each in offsets]


@pytest.mark.parametrize("option", ["fromTimestamp", "toTimestamp"])
def test_a_range_to_either_end_of_64_bits_has_no_record_without_a_time(
    tmp_path: Path, option: str
) -> None:
    files = PartitionFiles(tmp_path)
    files.add([-(1 << 63), -1, 0, (1 << 63) - 1])
    limit = -(1 << 63) if option == "fromTimestamp" else (1 << 63) - 1
    found = [0, 2, 3] if option == "fromTimestamp" else [0, 2]
    read = Read(files.log_dir, **{option: limit})
    assert read.offsets() == [BASE_OFFSET + each for each in found]
