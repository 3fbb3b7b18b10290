"""Topics to Parquet by date and hour, and what a manifest says of them."""

import json
import shutil
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archive_reading import manifest_of, positions_of, records_of
from batches import numbered_batch
from crc32c import crc32c
from examples import examples, stride
from hypothesis import given
from hypothesis import strategies as st
from in_process_spark import InProcessSpark
from log_reading import Read
from overrides import override
from partition_files import PartitionFiles, Row, flip, odd_records
from running_broker import MakeBroker, RunningBroker

from horolog.buffers import Buffer
from horolog.client import Client
from horolog.errors import CorruptFile, Misconfigured, StorageFailed
from horolog.jobs import archive
from horolog.jobs.archives import archiving
from horolog.jobs.archives.hours import END_MS, FIRST_MS, Hours, directory_of, name_of
from horolog.jobs.archives.reading import RangeReader
from horolog.jobs.archives.store import ArchiveStore
from horolog.jobs.spread import spread
from horolog.record import Codec, convert_all, iter_headers
from horolog.sources import Batches

NINE_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z
HOUR_MS = 3_600_000
GOLDEN = Path(__file__).parents[1] / "golden"


def run(source: Path | str, directory: Path, **more: Any) -> archiving.Archived:
    session = more.pop("session", None) or InProcessSpark()
    where = {"state": directory / "state", "archive": directory / "archive"} | more
    return archive(session, source=source, **where)


def as_row(found: dict[str, Any]) -> Row:
    return Row(
        found["topic"],
        found["partition"],
        found["offset"],
        found["timestampMs"],
        found["timestampType"],
        found["key"],
        found["value"],
        tuple((each["key"], each["value"]) for each in found["headers"] or ()),
    )


@pytest.fixture
def files(tmp_path: Path) -> PartitionFiles:
    """A partition with all kinds of batches and times, in three segments."""
    files = PartitionFiles(tmp_path / "log")
    files.add([NINE_MS, NINE_MS - 5 * HOUR_MS, NINE_MS + 1])
    files.add([-1, NINE_MS, -2, -500_000_000_000], codec=Codec.GZIP)
    files.roll()
    files.add_records(odd_records(NINE_MS), codec=Codec.ZSTD)
    files.add([5, 6], append_ms=NINE_MS + HOUR_MS, codec=Codec.LZ4)
    files.roll()
    files.add([(1 << 63) - 1, -(1 << 63), END_MS, END_MS - 1, FIRST_MS, FIRST_MS - 1])
    files.add([0], codec=Codec.SNAPPY, value_bytes=100_000)
    files.write_indexes()
    return files


def test_every_record_is_archived_with_its_times(files: PartitionFiles, tmp_path: Path) -> None:
    done = run(files.log_dir, tmp_path)
    found = records_of(tmp_path / "archive")
    assert [as_row(row) for row in found] == files.rows
    assert done.records == len(files.rows)
    stamped = [row for row in found if row["timestampType"] == 1]
    assert [row["createTimeMs"] for row in stamped] == [5, 6]
    assert [row["appendTimeMs"] for row in stamped] == [NINE_MS + HOUR_MS] * 2
    assert {row["createTimeMs"] for row in found if row["timestampType"] == 0} == {None}


def test_directories_are_hours_of_event_time(files: PartitionFiles, tmp_path: Path) -> None:
    run(files.log_dir, tmp_path)
    (state,) = manifest_of(tmp_path / "archive").partitions().values()
    directories = {file.path.split("/", 2)[2].rpartition("/")[0] for file in state.records}
    assert directories == {
        "date=0001-01-01/hour=00",
        "date=1954-02-26/hour=23",
        "date=1969-12-31/hour=23",
        "date=1970-01-01/hour=00",
        "date=2023-11-14/hour=17",
        "date=2023-11-14/hour=22",
        "date=2023-11-14/hour=23",
        "date=9999-12-31/hour=23",
        "date=outside",
        "date=untimed",
    }
    for file in state.records:
        if file.hour not in ("untimed", "outside"):
            assert file.first_ms is not None
            assert file.first_ms // HOUR_MS == (file.last_ms or 0) // HOUR_MS


def test_times_outside_a_window_are_in_a_partition_of_their_own(
    files: PartitionFiles, tmp_path: Path
) -> None:
    run(files.log_dir, tmp_path, window="2023-01-01T00:00Z..2023-11-14T23:00Z")
    (state,) = manifest_of(tmp_path / "archive").partitions().values()
    assert {file.hour for file in state.records} == {
        "2023-11-14T17",
        "2023-11-14T22",
        "outside",
        "untimed",
    }
    assert [as_row(row) for row in records_of(tmp_path / "archive")] == files.rows


@pytest.mark.parametrize("window", ["2023", "2023-01-01T00:00Z..2022-01-01T00:00Z", "a..b"])
def test_a_window_that_cannot_be_is_refused(window: str) -> None:
    with pytest.raises(Misconfigured):
        Hours.parse(window, 0)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1))
def test_every_time_has_an_hour_with_a_name(times: list[int]) -> None:
    for hour in Hours().of(np.array(times, np.int64)).tolist():
        assert directory_of(name_of(hour)).startswith("date=")


@st.composite
def logs_of_any_formats(draw: st.DrawFn) -> list[bytes]:
    """Batches that follow one another from offset 1,000 on; v0 and v1 where a format changed."""
    batches, offset = [], 1_000
    kinds = st.tuples(
        st.integers(0, 2), st.sampled_from([Codec.NONE, Codec.GZIP]), st.integers(1, 5)
    )
    for magic, codec, count in draw(st.lists(kinds, min_size=2, max_size=6)):
        made = numbered_batch(count, base_offset=offset, codec=codec)
        for part in convert_all(made, magic, least_offset=offset):
            batches += [bytes(part.data)[at : at + size] for at, size in wholes(part.data)]
        offset += count
    return batches


def wholes(data: Buffer) -> list[tuple[int, int]]:
    return [(position, header.size) for position, header in iter_headers(data)]


@examples(1)
@given(log=logs_of_any_formats(), together=st.sampled_from([1, 3, 100]))
def test_stretches_cut_anywhere_read_each_batch_once(log: list[bytes], together: int) -> None:
    last_offsets: list[int] = []
    types: list[int] = []
    for each in log:
        (_, header), *_ = iter_headers(each)
        records = header.last_offset - (last_offsets[-1] if last_offsets else 999)
        types += [0 if header.magic else -1] * records
        last_offsets.append(header.last_offset)
    end = last_offsets[-1] + 1

    def batches(from_offset: int) -> Iterator[Batches]:
        """As a broker gives them: from the batch that holds an offset on, some at a time."""
        first = bisect_left(last_offsets, from_offset)
        for at in range(first, len(log), together):
            yield Batches(b"".join(log[at : at + together]), from_offset, end, None)

    inside = range(1_001, end)
    some = inside[:: stride(3)]
    for cuts in [(cut,) for cut in some] + [(cut, cut + 1) for cut in some[:-1]] + [inside]:
        position, offsets, kinds = 1_000, [], []
        for start, stop in pairwise((1_000, *cuts, end)):
            reader = RangeReader(start, stop, floor=1_000)
            for rows in reader.rows(batches(start)):
                offsets += rows.column("offset").to_pylist()
                kinds += rows.column("timestamp_type").to_pylist()
            (found,) = reader.ranges
            assert found.start == position
            position = found.end
        assert offsets == list(range(1_000, end))
        assert kinds == types
        assert position == end


def test_a_second_run_goes_on_where_the_archive_ends(broker: RunningBroker, tmp_path: Path) -> None:
    broker.create_topic("clicks", partitions=2)
    for partition in (0, 1):
        broker.client.produce("clicks", partition, numbered_batch(20))
    first = run(broker.address, tmp_path, topics="clicks")
    assert (first.records, first.ends) == (40, {"clicks-0": 20, "clicks-1": 20})
    nothing = run(broker.address, tmp_path, topics="clicks")
    assert (nothing.records, nothing.manifest) == (0, first.manifest)
    broker.client.produce("clicks", 1, numbered_batch(5))
    second = run(broker.address, tmp_path, topics="clicks")
    assert (second.records, second.ends) == (5, {"clicks-0": 20, "clicks-1": 25})
    assert positions_of(tmp_path / "archive") == [
        *((0, offset) for offset in range(20)),
        *((1, offset) for offset in range(25)),
    ]
    assert all(row["appendTimeMs"] is not None for row in records_of(tmp_path / "archive"))


def test_aborted_transactions_are_left_out_and_open_ones_wait(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path / "log")
    for producer_id, commit in ((7, True), (8, False)):
        files.add([NINE_MS, NINE_MS], producer_id=producer_id)
        files.end_transaction(producer_id, commit=commit)
    kept = [row for row in files.rows if row.offset < 1_003]
    files.add([NINE_MS])
    kept.append(files.rows[-1])
    files.add([NINE_MS], producer_id=9)
    open_since = files.rows[-1].offset
    files.add([NINE_MS])
    files.write_indexes()
    done = run(files.log_dir, tmp_path)
    assert [as_row(row) for row in records_of(tmp_path / "archive")] == kept
    assert done.ends == {"orders-0": open_since}
    (state,) = manifest_of(tmp_path / "archive").partitions().values()
    assert state.ranges[-1].batches == 3  # the marker of the commit is kept
    files.end_transaction(9, commit=True)
    files.write_indexes()
    run(files.log_dir, tmp_path)
    assert [as_row(row) for row in records_of(tmp_path / "archive")] == [*kept, *files.rows[-2:]]


@pytest.mark.parametrize("from_ms", [None, NINE_MS + 6])
def test_transactions_are_told_apart_wherever_a_log_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_ms: int | None
) -> None:
    override(monkeypatch, "horolog.jobs.archives", LEAST_UNIT_BYTES=50)  # fewer than a batch has
    override(monkeypatch, "horolog.jobs.archives", UNIT_BYTES=50)
    files = PartitionFiles(tmp_path / "log")
    kept = []
    for turn in range(12):
        first = files.add([NINE_MS + turn] * 5, producer_id=7 + turn % 2)
        files.end_transaction(7 + turn % 2, commit=turn % 2 == 1)
        if turn % 2 and NINE_MS + turn >= (from_ms or 0):
            kept += range(first, first + 5)
    files.write_indexes()
    run(files.log_dir, tmp_path, from_=from_ms)
    assert [offset for _, offset in positions_of(tmp_path / "archive")] == kept
    (state,) = manifest_of(tmp_path / "archive").partitions().values()
    assert sum(each.records for each in state.ranges) == len(kept)
    batches = sum(each.batches for each in state.ranges)
    assert batches == len(kept) // 5 + 6, "the markers of commits are kept"


def test_damage_in_files_is_refused_with_what_can_be_done_about_it(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path / "log", base_offset=0)
    files.add([NINE_MS])
    files.roll()
    files.add([NINE_MS], producer_id=7)
    files.end_transaction(7, commit=False)
    files.write_indexes()
    flip(files.logs[0], 16)
    done = run(files.log_dir, tmp_path)
    (why,) = done.refused.values()
    assert "Which transactions of orders-0 are committed is unknown" in why
    assert "failOnDataLoss" not in why
    assert f"`horolog log verify {files.log_dir}` says what is damaged" in why
    with pytest.raises(Misconfigured, match="leave records out of the archive for good"):
        run(files.log_dir, tmp_path, settings={"failOnDataLoss": "false"})


def test_logs_of_old_formats_are_archived(tmp_path: Path) -> None:
    source = GOLDEN / "old-formats"
    if not source.is_dir():
        pytest.skip("no such golden files")
    run(source, tmp_path)
    read = Read(source, includeTimestampMs="true")
    names = ("topic", "partition", "offset", "timestampMs", "timestampType", "key", "value")
    rows = ({name: row[name] for name in names} for row in read.rows())
    expected = sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))
    found = [{name: row[name] for name in names} for row in records_of(tmp_path / "archive")]
    assert found == expected
    assert {row["timestampType"] for row in found} == {-1, 0, 1}


def test_a_range_of_time_is_exact_and_stays_the_same(files: PartitionFiles, tmp_path: Path) -> None:
    first, last = NINE_MS - 5 * HOUR_MS, NINE_MS + 1
    expected = [row for row in files.rows if first <= row.timestamp_ms < last]
    run(files.log_dir, tmp_path, from_=first, to=last)
    assert [as_row(row) for row in records_of(tmp_path / "archive")] == expected
    with pytest.raises(Misconfigured, match="another from"):
        run(files.log_dir, tmp_path, to=last)
    with pytest.raises(Misconfigured, match="is archived with from"):
        run(files.log_dir, tmp_path, to=last, state=tmp_path / "other")
    files.add([NINE_MS, NINE_MS - 9 * HOUR_MS])
    files.add([3])
    files.write_indexes()
    done = run(files.log_dir, tmp_path, from_=first, to=last)
    assert done.records == 1
    assert done.ends == {"orders-0": files.next_offset}


def test_a_relative_start_is_fixed_by_the_first_run(broker: RunningBroker, tmp_path: Path) -> None:
    broker.create_topic("clicks")
    now_ms = broker.clock.now_ms()
    broker.client.produce("clicks", 0, numbered_batch(3, now_ms - 60_000))
    assert run(broker.address, tmp_path, topics="clicks", from_="-1h").records == 3
    broker.client.produce("clicks", 0, numbered_batch(3, now_ms - 60_000))
    assert run(broker.address, tmp_path, topics="clicks", from_="-1h").records == 3


def test_a_run_that_fails_within_a_unit_leaves_no_gap_and_no_double(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.jobs.archives", LEAST_UNIT_BYTES=1_000)
    files = PartitionFiles(tmp_path / "log")
    for start in range(0, 200, 10):
        files.add([NINE_MS + start * 100_000 + each for each in range(10)])
    files.write_indexes()

    class KilledError(Exception):
        pass

    left = 0

    def kill(place: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KilledError

    for left in (3, 0, 11, 100):  # noqa: B007 - counted by `kill`
        with pytest.MonkeyPatch.context() as patch:
            override(patch, "horolog.jobs.archives.archiving", spread=small_waves)
            with suppress(KilledError):
                run(files.log_dir, tmp_path, session=InProcessSpark(kill))
        found = positions_of(tmp_path / "archive")
        assert [offset for _, offset in found] == list(range(1_000, 1_000 + len(found)))
    assert len(found) == 200


def small_waves(spark: Any, units: Any, work: Any, progress: Any) -> Any:
    return spread(spark, units, work, wave=2, progress=progress)


def test_a_unit_that_fails_stops_its_partition_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in (0, 1):
        files = PartitionFiles(tmp_path / "log", partition=partition)
        for _ in range(4):
            files.add([NINE_MS] * 10)
            files.roll()
        files.add([NINE_MS])
        files.write_indexes()
    damaged = tmp_path / "log/orders-0/00000000000000001020.log"
    sound = damaged.read_bytes()
    damaged.write_bytes(sound[:-1] + b"\xff")
    done = run(tmp_path / "log", tmp_path)
    assert "cannot be read" in done.refused["orders-0"]
    assert done.ends == {"orders-0": 1_020, "orders-1": 1_041}
    damaged.write_bytes(sound)
    assert run(tmp_path / "log", tmp_path).refused == {}
    assert len(positions_of(tmp_path / "archive")) == 82
    named = manifest_of(tmp_path / "archive").paths()
    there = {
        str(each.relative_to(tmp_path / "archive"))
        for each in (tmp_path / "archive").rglob("*.parquet")
    }
    assert there == named


def test_append_times_that_go_back_begin_another_range(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path / "log")
    for append_ms in (NINE_MS, NINE_MS + 5, NINE_MS - 5, NINE_MS):
        files.add([1, 2], append_ms=append_ms)
    files.write_indexes()
    run(files.log_dir, tmp_path)
    (state,) = manifest_of(tmp_path / "archive").partitions().values()
    assert [(each.start, each.end, each.last_append_ms) for each in state.ranges] == [
        (1_000, 1_004, NINE_MS + 5),
        (1_004, 1_008, NINE_MS),
    ]


def test_a_partition_that_is_not_served_is_named_and_the_others_are_archived(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    for topic in ("a", "b", "c"):
        files = PartitionFiles(tmp_path / "log", topic, base_offset=0)
        files.add([NINE_MS] * 3)
    (offline,) = (tmp_path / "log/b-0").glob("*.log")
    offline.rename(offline.with_name(f"{(1 << 63) - 300:020d}.log"))  # no segment begins there
    broker = make_broker(log_dir=tmp_path / "log")
    for is_dry_run in (True, False):
        done = run(broker.address, tmp_path, topics_pattern="[abc]", dry_run=is_dry_run)
        assert list(done.refused) == ["b-0"]
        assert "LEADER_NOT_AVAILABLE" in done.refused["b-0"]
        assert done.ends == {"a-0": 3, "c-0": 3}
    assert {row["topic"] for row in records_of(tmp_path / "archive")} == {"a", "c"}


def test_two_runs_at_a_time_leave_what_one_would(files: PartitionFiles, tmp_path: Path) -> None:
    """The second run archives everything while the first one is in its first unit."""
    others: list[archiving.Archived] = []

    def between(place: int) -> None:
        if not others:
            others.append(run(files.log_dir, tmp_path, state=tmp_path / "second"))

    with pytest.raises(Misconfigured, match="another run has written to it"):
        run(files.log_dir, tmp_path, session=InProcessSpark(between))
    assert [as_row(row) for row in records_of(tmp_path / "archive")] == files.rows


def test_two_runs_of_different_topics_share_an_archive(tmp_path: Path) -> None:
    for topic in ("one", "two"):
        files = PartitionFiles(tmp_path / "log", topic=topic)
        files.add([NINE_MS] * 3)
        files.write_indexes()
    others: list[archiving.Archived] = []

    def between(place: int) -> None:
        if not others:
            more = {"topics": "two", "state": tmp_path / "second"}
            others.append(run(tmp_path / "log", tmp_path, **more))

    run(tmp_path / "log", tmp_path, topics="one", session=InProcessSpark(between))
    assert [row["topic"] for row in records_of(tmp_path / "archive")] == ["one"] * 3 + ["two"] * 3


def test_records_that_were_deleted_before_they_were_archived_are_said(
    broker: RunningBroker, client: Client, tmp_path: Path
) -> None:
    broker.create_topic("clicks")
    client.produce("clicks", 0, numbered_batch(10))
    run(broker.address, tmp_path, topics="clicks")
    client.produce("clicks", 0, numbered_batch(10))
    broker.delete_records("clicks", 15)
    done = run(broker.address, tmp_path, topics="clicks")
    assert "offsets 10 to 14 were deleted" in done.refused["clicks-0"]
    done = run(broker.address, tmp_path, topics="clicks", accept_gaps=True)
    assert (done.refused, done.records) == ({}, 5)
    found = [offset for _, offset in positions_of(tmp_path / "archive")]
    assert found == [*range(10), *range(15, 20)]
    (state,) = manifest_of(tmp_path / "archive").partitions().values()
    assert [(each.start, each.end) for each in state.ranges if each.is_lost] == [(10, 15)]


def test_a_log_start_within_a_batch_is_where_the_archive_begins(
    broker: RunningBroker, client: Client, tmp_path: Path
) -> None:
    broker.create_topic("clicks")
    client.produce("clicks", 0, numbered_batch(10))
    broker.delete_records("clicks", 4)
    run(broker.address, tmp_path, topics="clicks")
    assert [offset for _, offset in positions_of(tmp_path / "archive")] == list(range(4, 10))
    (state,) = manifest_of(tmp_path / "archive").partitions().values()
    assert (state.start, state.end) == (4, 10)


def test_a_topic_that_was_created_again_is_refused(broker: RunningBroker, tmp_path: Path) -> None:
    for _ in range(2):
        broker.create_topic("clicks")
        broker.client.produce("clicks", 0, numbered_batch(10))
        done = run(broker.address, tmp_path, topics="clicks")
        broker.client.delete_topics(["clicks"])
    assert "deleted and created again" in done.refused["clicks-0"]
    assert len(positions_of(tmp_path / "archive")) == 10


@pytest.mark.parametrize("again", [False, True])
def test_an_archive_that_was_lost_is_not_begun_again_with_its_state(
    broker: RunningBroker, tmp_path: Path, again: bool
) -> None:
    broker.create_topic("clicks")
    broker.client.produce("clicks", 0, numbered_batch(10))
    run(broker.address, tmp_path, topics="clicks")
    shutil.rmtree(tmp_path / "archive")
    if again:
        run(broker.address, tmp_path, topics="clicks", state=tmp_path / "other")
    for dry_run in (True, False):
        with pytest.raises(Misconfigured, match="another archive" if again else "is gone since"):
            run(broker.address, tmp_path, topics="clicks", dry_run=dry_run)
    assert (tmp_path / "archive").exists() is again


def test_a_dry_run_writes_nothing_and_says_what_would_be(
    files: PartitionFiles, tmp_path: Path
) -> None:
    done = run(files.log_dir, tmp_path, dry_run=True, state=None)
    assert done.is_dry_run
    assert done.ends == {"orders-0": files.next_offset}
    assert not (tmp_path / "archive").exists()
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive/thesis.txt").write_text("mine")
    for more in ({"dry_run": True}, {}):
        with pytest.raises(Misconfigured, match="is no archive and not empty"):
            run(files.log_dir, tmp_path, **more)


def test_a_torn_manifest_is_said_and_the_one_before_it_counts_once_it_is_removed(
    files: PartitionFiles, tmp_path: Path
) -> None:
    run(files.log_dir, tmp_path)
    newest = max((tmp_path / "archive/manifest").iterdir())
    newest.write_bytes(newest.read_bytes()[:-10])
    with pytest.raises(CorruptFile, match="is damaged"):
        run(files.log_dir, tmp_path)
    newest.unlink()
    run(files.log_dir, tmp_path)
    assert [as_row(row) for row in records_of(tmp_path / "archive")] == files.rows


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"version": 4}, Misconfigured),
        ({"topics": {"a": {}}}, CorruptFile),
        ({"topics": []}, CorruptFile),
    ],
)
def test_a_manifest_of_another_shape_is_refused(
    files: PartitionFiles, tmp_path: Path, change: dict[str, Any], error: type[Exception]
) -> None:
    run(files.log_dir, tmp_path)
    newest = max((tmp_path / "archive/manifest").iterdir())
    document = json.loads(newest.read_bytes()[9:]) | change
    text = json.dumps(document).encode()
    newest.write_bytes(b"%08x %s\n" % (crc32c(text), text))
    with pytest.raises(error):
        manifest_of(tmp_path / "archive")


def test_paths_in_a_manifest_lead_nowhere_else(files: PartitionFiles, tmp_path: Path) -> None:
    run(files.log_dir, tmp_path)
    newest = max((tmp_path / "archive/manifest").iterdir())
    text = newest.read_bytes()[9:-1].replace(b"records/orders", b"records/../..")
    newest.write_bytes(b"%08x %s\n" % (crc32c(text), text))
    with pytest.raises(CorruptFile, match="no path of records"):
        manifest_of(tmp_path / "archive")


def test_files_of_an_hour_end_where_they_are_large_enough(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path / "log")
    for _ in range(40):
        files.add([NINE_MS] * 4, value_bytes=50_000)
    files.write_indexes()
    with pytest.MonkeyPatch.context() as patch:
        override(patch, "horolog.jobs", ROW_GROUP_BYTES=1 << 20)
        run(files.log_dir, tmp_path, target_bytes=1 << 20)
    (state,) = manifest_of(tmp_path / "archive").partitions().values()
    assert len(state.records) > 1
    assert [as_row(row) for row in records_of(tmp_path / "archive")] == files.rows


def test_thousands_of_hours_in_one_unit_take_few_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.jobs", MOST_OPEN=5, WAITING_BYTES=4_000)
    files = PartitionFiles(tmp_path / "log")
    for start in range(0, 300, 10):
        files.add([NINE_MS + (start * 7 + each) % 40 * HOUR_MS for each in range(10)])
    files.write_indexes()
    unsettled: set[str] = set()
    most = 0
    create, settle = ArchiveStore.create, ArchiveStore.settle

    def counted(self: ArchiveStore, path: str) -> Any:
        nonlocal most
        unsettled.update({path} if path.startswith("records/") else ())
        most = max(most, len(unsettled))
        return create(self, path)

    def settled(self: ArchiveStore, path: str) -> None:
        settle(self, path)
        unsettled.discard(path)

    monkeypatch.setattr(ArchiveStore, "create", counted)
    monkeypatch.setattr(ArchiveStore, "settle", settled)
    run(files.log_dir, tmp_path)
    assert most == 5
    assert [as_row(row) for row in records_of(tmp_path / "archive")] == files.rows


def test_a_target_that_cannot_be_written_is_said(files: PartitionFiles, tmp_path: Path) -> None:
    (tmp_path / "archive").write_text("a file")
    with pytest.raises((Misconfigured, StorageFailed), match="archive"):
        run(files.log_dir, tmp_path)


def test_arguments_that_are_missing_are_named(files: PartitionFiles, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="give --state DIR"):
        run(files.log_dir, tmp_path, state=None)
    with pytest.raises(Misconfigured, match="below a megabyte"):
        run(files.log_dir, tmp_path, target_bytes=10)


@pytest.mark.spark
def test_spark_runs_it(files: PartitionFiles, tmp_path: Path, spark: Any) -> None:
    run(files.log_dir, tmp_path, session=spark)
    assert [as_row(row) for row in records_of(tmp_path / "archive")] == files.rows


@pytest.mark.parametrize(
    ("step_ms", "hours", "directories"),
    [
        (HOUR_MS, 31, 31),  # few enough: each its own
        (HOUR_MS, 32, 3),  # joined by days
        (24 * HOUR_MS, 60, 3),  # by months
        (40 * 24 * HOUR_MS, 60, 8),  # by years
        (366 * 24 * HOUR_MS, 60, 1),  # of any time
    ],
)
def test_small_files_of_very_many_hours_are_joined(
    tmp_path: Path, step_ms: int, hours: int, directories: int
) -> None:
    files = PartitionFiles(tmp_path / "log")
    times = [NINE_MS + at * step_ms for at in range(hours)]
    files.add([*reversed(times), -1])
    files.add(times)
    files.write_indexes()
    run(files.log_dir, tmp_path)
    (state,) = manifest_of(tmp_path / "archive").partitions().values()
    assert len({file.hour for file in state.records} - {"untimed"}) == directories
    assert "untimed" in {file.hour for file in state.records}
    assert len(state.records) == directories + 1
    assert [as_row(row) for row in records_of(tmp_path / "archive")] == files.rows
