"""What is not asked for is not read: by the bytes that the kernel counts for this process."""

from pathlib import Path

import pytest
from faulty_calls import noted_calls
from log_reading import Read, bytes_read_by, moment, schema_of
from partition_files import PartitionFiles
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, LessThan
from storelogs import ANY_TIME, append, new_log

from horolog.config import TopicConfig
from horolog.record import COLUMN_KERNELS

NINE_MS = 1_700_000_000_000
BATCH_BYTES = 40_000
BATCHES = 120
TIME, OFFSET = ("timestamp",), ("offset",)

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/io").exists(), reason="only Linux counts what a process reads"
)


def write(log_dir: Path, *, append_time: bool = False) -> PartitionFiles:
    """Three segments; every batch is a minute later than the one before."""
    files = PartitionFiles(log_dir, interval_bytes=4096)
    for number in range(BATCHES):
        minute = NINE_MS + 60_000 * number
        files.add(
            [minute + second * 1000 for second in range(10)],
            value_bytes=BATCH_BYTES // 10,
            append_ms=minute if append_time else None,
        )
        if number % 40 == 39:
            files.roll()
    files.write_indexes()
    return files


def minute(number: int) -> object:
    return moment(NINE_MS + 60_000 * number)


def cost(read: Read, *filters) -> int:
    """Bytes that planning and all tasks read."""
    COLUMN_KERNELS.load()
    read.rows()  # so that nothing is imported for the first time
    return bytes_read_by(lambda: read.rows(*filters))


@pytest.mark.parametrize("indexes", [True, False])
def test_batches_that_are_too_early_are_skipped_by_their_headers(
    tmp_path: Path, indexes: bool
) -> None:
    files = write(tmp_path)
    for path in [] if indexes else files.directory.glob("*index"):
        path.unlink()
    late = GreaterThanOrEqual(TIME, minute(BATCHES - 6))
    read = Read(tmp_path)
    assert len(read.rows(late)) == 60
    everything = cost(read)
    assert everything > BATCHES * BATCH_BYTES
    # The bodies of six batches, 61 bytes of each other one, and what the indexes hold.
    assert cost(read, late) < 8 * BATCH_BYTES


def test_late_records_cost_no_more_than_their_own_batches(tmp_path: Path) -> None:
    files = write(tmp_path)
    files.roll()
    files.add([NINE_MS] * 5, value_bytes=10)
    read = Read(tmp_path)
    newest = GreaterThanOrEqual(TIME, minute(BATCHES))
    assert read.rows(newest) == []
    assert cost(read, newest) < 2 * BATCH_BYTES


def test_the_end_of_a_log_without_indexes_is_found_by_headers_alone(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path, interval_bytes=4096)
    for number in range(600):
        files.add([NINE_MS + 60_000 * number], value_bytes=8_000)
    read = Read(tmp_path)
    first = [GreaterThanOrEqual(TIME, minute(0)), LessThan(TIME, minute(6))]
    assert len(read.rows(*first)) == 6
    assert cost(read, *first) < 80 * 8_000, "one block, and 61 bytes of each batch of the log"


def test_segments_that_are_too_early_as_a_whole_are_not_even_planned(tmp_path: Path) -> None:
    files = write(tmp_path)
    _, partitions = Read(tmp_path).plan(GreaterThanOrEqual(TIME, minute(85)))
    paths = {stretch.path for partition in partitions for stretch in partition.value}
    assert paths == {str(files.logs[2])}


def test_both_ends_of_a_range_of_append_times_are_skipped_by_headers(tmp_path: Path) -> None:
    write(tmp_path, append_time=True)
    read = Read(tmp_path)
    hour = [GreaterThanOrEqual(TIME, minute(50)), LessThan(TIME, minute(53))]
    assert len(read.rows(*hour)) == 30
    assert cost(read, *hour) < 5 * BATCH_BYTES


def test_a_few_offsets_are_found_by_the_index(tmp_path: Path) -> None:
    files = write(tmp_path)
    read = Read(tmp_path)
    one = EqualTo(OFFSET, files.base_offset + 777)
    assert len(read.rows(one)) == 1
    # The tail of the log, the batch that the index points to, and the one itself.
    assert cost(read, one) < 6 * BATCH_BYTES


def test_small_batches_are_not_read_one_by_one(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path)
    for number in range(300):
        files.add([NINE_MS + number], value_bytes=10)
    read = Read(tmp_path)
    from horolog.storage import Files  # noqa: PLC0415 - patched for the moment

    with pytest.MonkeyPatch.context() as patch:
        reads = noted_calls(patch, Files, "read_at")
        assert len(read.rows(GreaterThanOrEqual(TIME, moment(NINE_MS + 290)))) == 10
    assert len(reads) < 30


def test_after_the_first_range_of_create_times_only_its_blocks_are_read(tmp_path: Path) -> None:
    """A header has no smallest time: Apache Kafka's log is mapped once, in the user's cache."""
    files = write(tmp_path)
    files.add([NINE_MS + 60_000 * 10 + 1], value_bytes=10)  # a late one, at the log's end
    before = sorted(path.name for path in files.directory.iterdir())
    read = Read(tmp_path)
    hour = [GreaterThanOrEqual(TIME, minute(10)), LessThan(TIME, minute(11))]
    rows = read.rows(*hour)
    assert len(rows) == 11
    # Two blocks of up to 256 KiB, the maps, headers at the end of what may be appended to.
    assert cost(read, *hour) < 16 * BATCH_BYTES
    assert read.rows(*hour) == rows
    assert sorted(path.name for path in files.directory.iterdir()) == before
    for name in ("middle", "end"):
        first = {"middle": 60, "end": 117}[name]
        window = [GreaterThanOrEqual(TIME, minute(first)), LessThan(TIME, minute(first + 1))]
        assert len(read.rows(*window)) == 10
        assert cost(read, *window) < 16 * BATCH_BYTES


def test_of_a_log_that_horolog_writes_even_the_first_range_reads_only_its_blocks(
    tmp_path: Path,
) -> None:
    config = TopicConfig(**ANY_TIME)
    with new_log(tmp_path, config) as log:
        for number in range(BATCHES):
            times = [NINE_MS + 60_000 * number + second * 1000 for second in range(10)]
            append(log, *times, value=bytes(BATCH_BYTES // 10))
        read = Read(tmp_path)
        window = [GreaterThanOrEqual(TIME, minute(30)), LessThan(TIME, minute(31))]
        assert len(read.rows(*window)) == 10
        assert cost(read, *window) < 30 * BATCH_BYTES  # and what is not mapped yet at the end


WITH_APPEND_TIMES = schema_of(["offset", "timestampMs", "appendTimeMs"])
APPENDED = ("appendTimeMs",)


def appended_in(first: int, last: int) -> list[Filter]:
    """Between two minutes."""
    return [
        GreaterThanOrEqual(APPENDED, NINE_MS + 60_000 * first),
        LessThan(APPENDED, NINE_MS + 60_000 * last),
    ]


@pytest.mark.parametrize("first", [0, 60, 117])
def test_a_range_of_append_times_in_files_of_horolog_reads_its_batches(
    tmp_path: Path, first: int
) -> None:
    with new_log(tmp_path, TopicConfig(**ANY_TIME)) as log:
        for number in range(BATCHES):
            times = [NINE_MS - 1000 * (number % 7) - second for second in range(10)]
            now = NINE_MS + 60_000 * number
            append(log, *times, value=bytes(BATCH_BYTES // 10), now=now)
            if number % 40 == 39:
                log.roll(now)
        read = Read(tmp_path, schema=WITH_APPEND_TIMES)
        window = appended_in(first, first + 1)
        assert len(read.rows(*window)) == 10
        _, partitions = read.plan(*window)
        assert sum(len(partition.value) for partition in partitions) == 1, "of three segments"
        assert cost(read, *window) < 6 * BATCH_BYTES
        begin = NINE_MS + 60_000 * first
        by_options = Read(
            tmp_path,
            schema=WITH_APPEND_TIMES,
            fromAppendTime=begin,
            toAppendTime=begin + 60_000,
        )
        assert len(by_options.rows()) == 10
        _, partitions = by_options.plan()
        assert sum(len(partition.value) for partition in partitions) == 1
        both = [*window, EqualTo(("timestampMs",), NINE_MS - 1000 * (first % 7) - 3)]
        assert len(read.rows(*both)) == 1
        assert cost(read, *both) < 6 * BATCH_BYTES
        assert read.rows(*window, GreaterThanOrEqual(TIME, minute(1))) == []


def test_a_range_of_append_times_in_a_stamped_log_of_kafka_reads_its_blocks(
    tmp_path: Path,
) -> None:
    write(tmp_path, append_time=True)
    read = Read(tmp_path, schema=WITH_APPEND_TIMES)
    for first in (0, 60, 117):
        window = appended_in(first, first + 1)
        assert len(read.rows(*window)) == 10
        assert cost(read, *window) < 16 * BATCH_BYTES


def test_of_a_log_without_append_times_no_records_are_read_for_a_range_of_them(
    tmp_path: Path,
) -> None:
    write(tmp_path)
    read = Read(tmp_path, schema=WITH_APPEND_TIMES)
    window = appended_in(0, BATCHES)
    assert read.rows(*window) == []
    assert cost(read, *window) < 4 * BATCH_BYTES
