"""Logs that are restored from an archive: the same records, and a broker that serves them."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from archive_reading import manifest_of
from batches import numbered_batch
from examples import examples, some_of
from hypothesis import given
from hypothesis import strategies as st
from in_process_spark import InProcessSpark
from log_reading import Read, schema_of
from overrides import override
from partition_files import PartitionFiles, odd_records
from running_broker import MakeBroker, RunningBroker

from golden import GOLDEN
from horolog.client import EARLIEST, LATEST, Client
from horolog.errors import Misconfigured
from horolog.jobs import archive, restore
from horolog.jobs.archives import archiving, restoring
from horolog.jobs.state import JobState
from horolog.record import (
    AppendTimeStretch,
    BatchHeader,
    Codec,
    LogRecord,
    build_batch,
    iter_headers,
    read_with_create_times,
    with_records,
)
from horolog.record.record_bytes import record_bytes as kernel_bytes
from horolog.sources import columns
from horolog.storage import Files, Finding, SegmentReader, Severity, Verification, names

NINE_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def archived(source: Path | str, tmp_path: Path, **more: Any) -> archiving.Archived:
    where = {"archive": tmp_path / "archive", "state": tmp_path / "archiving"}
    return archive(InProcessSpark(), source=source, **where | more)


def restored(tmp_path: Path, session: Any = None, **more: Any) -> restoring.Restored:
    where = {"archive": tmp_path / "archive", "target": tmp_path / "target"}
    where |= {"state": tmp_path / "restoring"}
    return restore(session or InProcessSpark(), **where | more)


def round_trip(source: Path | str, tmp_path: Path, **more: Any) -> Path:
    archived(source, tmp_path, **more)
    done = restored(tmp_path)
    assert done.refused == {}
    return tmp_path / "target"


def facts_of(header: BatchHeader) -> BatchHeader:
    """What a restored header has as the original has it."""
    return header._replace(batch_length=0, crc=0)


def batches_of(directory: Path) -> list[tuple[BatchHeader, list[tuple[LogRecord, int]]]]:
    """The headers of a log's batches, and their records with create times."""
    found = []
    for path in sorted(directory.glob("*.log")):
        log = path.read_bytes()
        for position, header in iter_headers(log):
            batch = log[position : position + header.size]
            found.append((facts_of(header), list(read_with_create_times(batch))))
    return found


def append_times_of(directory: Path) -> dict[int, int | None]:
    found = {}
    for path in sorted(directory.glob("*.log")):
        base_offset = names.base_offset_of(path.name, names.LOG)
        assert base_offset is not None
        reader = SegmentReader.at(Files(read_only=True), str(path), base_offset)
        reader.end = reader.whole_end()
        if reader.has_append_times:
            for _, header in reader.headers(0, reader.size):
                found[header.base_offset] = reader.append_times.at(header.base_offset)
    return found


def findings_of(log_dir: Path) -> list[Finding]:
    """What verify finds that is more than a note."""
    steps = Verification.of(log_dir).steps()
    found = [each for each in steps if isinstance(each, Finding)]
    return [each for each in found if each.severity is not Severity.NOTE]


@pytest.fixture
def files(tmp_path: Path) -> PartitionFiles:
    files = PartitionFiles(tmp_path / "log")
    files.add([NINE_MS, NINE_MS - 5 * HOUR_MS, NINE_MS + 1])
    files.add([-1, NINE_MS, -2, -500_000_000_000], codec=Codec.GZIP)
    files.leader_epoch = 3
    files.roll()
    files.add_records(odd_records(NINE_MS), codec=Codec.ZSTD)
    files.add([5, 6], append_ms=NINE_MS + HOUR_MS, codec=Codec.LZ4)
    files.add([-1, -1])
    files.roll()
    files.leader_epoch = 7
    files.add([(1 << 63) - 1, -(1 << 63), 4])
    files.add([0], codec=Codec.SNAPPY, value_bytes=100_000)
    files.write_indexes()
    return files


def test_a_restored_log_has_the_same_batches(files: PartitionFiles, tmp_path: Path) -> None:
    target = round_trip(files.log_dir, tmp_path)
    found = batches_of(target / "orders-0")
    assert found == batches_of(files.directory)
    assert len(found) == 7
    assert (target / "orders-0/leader-epoch-checkpoint").read_text().split() == [
        *("0", "3"),
        *("0", "1000"),
        *("3", "1007"),
        *("7", "1014"),
    ]
    assert not list(target.glob(".restore-*"))


def test_verify_finds_nothing_in_a_restored_log(files: PartitionFiles, tmp_path: Path) -> None:
    target = round_trip(files.log_dir, tmp_path)
    assert findings_of(target) == []


def test_a_broker_serves_a_restored_log_with_both_times(
    make_broker: MakeBroker, broker: RunningBroker, tmp_path: Path
) -> None:
    broker.create_topic("clicks", partitions=2, retention_ms="-1")
    broker.create_topic("stamped", message_timestamp_type="LogAppendTime")
    for start in range(5):
        for topic, partition in (("clicks", 0), ("clicks", 1), ("stamped", 0)):
            broker.client.produce(topic, partition, numbered_batch(10, NINE_MS + start))
    archived(broker.address, tmp_path, topics="clicks,stamped")
    done = restored(tmp_path)
    assert (done.records, done.refused) == (150, {})
    other = make_broker(log_dir=tmp_path / "target")
    for topic, partition in (("clicks", 0), ("clicks", 1), ("stamped", 0)):
        before, after = (
            client.fetch(topic, partition, 0, with_append_times=True)
            for client in (broker.client, other.client)
        )
        assert [facts_of(header) for _, header in iter_headers(before.records)] == [
            facts_of(header) for _, header in iter_headers(after.records)
        ]
        assert before.append_times == after.append_times
        assert None not in [each.ms for each in after.append_times]
        assert client_offset(other.client, topic, partition) == 50


@pytest.mark.parametrize("of_files", [False, True])
def test_when_a_follower_saw_records_is_kept_as_such(
    make_broker: MakeBroker, broker: RunningBroker, tmp_path: Path, of_files: bool
) -> None:
    times = [
        AppendTimeStretch(0, NINE_MS + 5, is_seen=True),
        AppendTimeStretch(2, NINE_MS + 6),
        AppendTimeStretch(3, None),
        AppendTimeStretch(4, NINE_MS + 4, is_seen=True),
        AppendTimeStretch(5, NINE_MS + 9, is_seen=True),
        AppendTimeStretch(7, NINE_MS + 9),
    ]
    broker.create_topic("clicks", retention_ms="-1")
    data = b"".join(build_batch([LogRecord(NINE_MS, b"k", b"v")], base_offset=n) for n in range(8))
    broker.restart_followed("clicks", data, times)
    client, source = broker.client, broker.address
    before = client.fetch("clicks", 0, 0, with_append_times=True, with_seen_times=True)
    if of_files:
        broker.stop()
        source = str(broker.log_dir)
    target = round_trip(source, tmp_path, topics="clicks")
    (state,) = manifest_of(tmp_path / "archive").partitions().values()
    assert len(state.ranges) == 2, "they go back at offset 4"
    other = make_broker(log_dir=target)
    found = []
    for offset in (0, 4):
        after = other.client.fetch(
            "clicks", 0, offset, with_append_times=True, with_seen_times=True
        )
        found += [each for each in after.append_times if offset or each.offset < 4]
    assert found == times
    assert before.append_times == times[:3]


def test_append_times_of_a_batch_that_two_units_share_are_those_of_its_records(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch from within a batch says only when the records from there on were appended."""
    override(monkeypatch, "horolog.jobs", FEW_OFFSETS=0, JOINED_BYTES=0)
    override(monkeypatch, "horolog.jobs.archives", LEAST_UNIT_BYTES=100)
    broker.create_topic("clicks", retention_ms="-1")
    for start in range(6):
        broker.client.produce("clicks", 0, numbered_batch(50, NINE_MS + start))
    target = round_trip(broker.address, tmp_path, topics="clicks")
    (state,) = manifest_of(tmp_path / "archive").partitions().values()
    assert len(state.ranges) > 2
    assert None not in append_times_of(target / "clicks-0").values()


def client_offset(client: Client, topic: str, partition: int) -> int:
    """The offset that the next record gets."""
    produced = client.produce(topic, partition, numbered_batch(1))
    assert produced.base_offset is not None
    return produced.base_offset


def test_committed_transactions_are_restored_with_their_markers(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path / "log")
    for producer_id, commit in ((7, True), (8, False), (9, True)):
        files.add([NINE_MS, NINE_MS], producer_id=producer_id)
        files.end_transaction(producer_id, commit=commit)
    files.write_indexes()
    target = round_trip(files.log_dir, tmp_path)
    expected = [each for each in batches_of(files.directory) if each[0].producer_id in (7, 9)]
    assert batches_of(target / "orders-0") == expected


def test_the_log_ends_where_the_archive_ends(make_broker: MakeBroker, tmp_path: Path) -> None:
    """What came last is an aborted transaction: its offsets are not given out again."""
    files = PartitionFiles(tmp_path / "log")
    files.add([NINE_MS] * 4)
    files.add([NINE_MS, NINE_MS], producer_id=8)
    files.end_transaction(8, commit=False)
    files.write_indexes()
    target = round_trip(files.log_dir, tmp_path)
    other = make_broker(log_dir=target)
    assert client_offset(other.client, "orders", 0) == files.next_offset == 1_007


@pytest.mark.parametrize("keep", [0, 1])
def test_a_partition_of_which_nothing_is_left_keeps_its_end(
    make_broker: MakeBroker, tmp_path: Path, keep: int
) -> None:
    files = PartitionFiles(tmp_path / "log")
    files.add([NINE_MS] * 4)
    files.write_indexes()
    archived(files.log_dir, tmp_path, to=NINE_MS + keep)
    assert restored(tmp_path).partitions == {"orders-0": (1_000, 1_004)}
    other = make_broker(log_dir=tmp_path / "target")
    assert client_offset(other.client, "orders", 0) == 1_004


def bounds_of(broker: RunningBroker, topic: str) -> dict[int, tuple[int, int]]:
    """Where each partition of a topic begins and ends."""
    numbers = sorted(broker.client.metadata([topic]).topics[topic].partitions)
    found = {}
    for which in (EARLIEST, LATEST):
        answers = broker.client.list_offsets({(topic, number): which for number in numbers})
        found[which] = [answers[topic, number] for number in numbers]
    pairs = zip(found[EARLIEST], found[LATEST], strict=True)
    return {number: (a.offset, b.offset) for number, (a, b) in enumerate(pairs) if a and b}


@pytest.mark.parametrize("from_files", [False, True])
@pytest.mark.parametrize(
    ("archiving_range", "restoring_range"),
    [({}, {}), ({}, {"from_": NINE_MS + 10}), ({"from_": NINE_MS + 10}, {})],
)
def test_partitions_without_records_come_back_where_they_began(
    make_broker: MakeBroker,
    tmp_path: Path,
    from_files: bool,
    archiving_range: dict[str, Any],
    restoring_range: dict[str, Any],
) -> None:
    source = make_broker()
    for name, count in (("mid", 6), ("gone", 2), ("none", 3)):
        source.create_topic(name, count, retention_ms="-1")
    for number in (1, 4):
        source.client.produce("mid", number, numbered_batch(3, NINE_MS))
    source.client.produce("gone", 1, numbered_batch(50, NINE_MS))
    source.delete_records("gone", 50, 1)
    expected = {name: bounds_of(source, name) for name in ("mid", "gone", "none")}
    assert expected["gone"] == {0: (0, 0), 1: (50, 50)}
    where: Path | str = source.address
    if from_files:
        source.stop()
        where = source.log_dir
    topics = {"topics": "mid,gone,none"}
    archived(where, tmp_path, **topics, **archiving_range)
    done = restored(tmp_path, **restoring_range)
    assert done.refused == {}
    assert done.notes == ()
    assert findings_of(tmp_path / "target") == []
    target = make_broker(log_dir=tmp_path / "target")
    for name, bounds in expected.items():
        assert bounds_of(target, name) == bounds
    target.client.produce("gone", 1, numbered_batch(1, NINE_MS))
    assert bounds_of(target, "gone")[1] == (50, 51)


def test_a_partition_that_was_empty_is_archived_on_from_there(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    source = make_broker()
    source.create_topic("t", 2, retention_ms="-1")
    archived(source.address, tmp_path, topics="t")
    source.client.produce("t", 1, numbered_batch(5, NINE_MS))
    source.client.create_partitions({"t": 4})
    assert archived(source.address, tmp_path, topics="t").refused == {}
    assert restored(tmp_path).partitions == {
        **{f"t-{number}": (0, 0) for number in (0, 2, 3)},
        "t-1": (0, 5),
    }


def test_an_archive_that_lacks_partitions_says_so(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path / "log", partition=2)
    files.add([NINE_MS])
    files.write_indexes()
    archived(tmp_path / "log", tmp_path)
    assert restored(tmp_path, dry_run=True).notes == (
        "orders had 3 partitions, and 2 were never archived: 0, 1",
    )


def test_an_archive_that_was_created_again_is_not_restored_with_the_state_of_another(
    tmp_path: Path,
) -> None:
    files = PartitionFiles(tmp_path / "log")
    files.add([NINE_MS] * 4)
    files.write_indexes()
    archived(tmp_path / "log", tmp_path)
    assert restored(tmp_path).records == 4
    for name in ("archive", "archiving"):
        shutil.rmtree(tmp_path / name)
    archived(tmp_path / "log", tmp_path)
    for dry_run in (True, False):
        with pytest.raises(Misconfigured, match="is another archive than that which this state"):
            restored(tmp_path, dry_run=dry_run)


@pytest.mark.parametrize("change", ["gone", "one gone", "other", "grown"])
def test_a_target_that_is_not_as_it_was_restored_is_refused(tmp_path: Path, change: str) -> None:
    for number in range(2):
        files = PartitionFiles(tmp_path / "log", partition=number)
        files.add([NINE_MS] * 4)
        files.write_indexes()
    archived(tmp_path / "log", tmp_path)
    assert restored(tmp_path).records == 8
    assert restored(tmp_path).records == 8
    place = tmp_path / "target/orders-0"
    (log,) = place.glob("*.log")
    if change == "gone":
        shutil.rmtree(tmp_path / "target")
    else:
        if change != "grown":
            shutil.rmtree(place)
        if change == "other":
            place.mkdir()
            (place / f"{0:020d}.log").write_bytes(b"")
        if change == "grown":
            log.write_bytes(log.read_bytes() * 2)
    for dry_run in (True, False):
        done = restored(tmp_path, dry_run=dry_run)
        assert set(done.refused) == {"orders-0", *(["orders-1"] if change == "gone" else [])}
        why = "is gone since" if "gone" in change else "is not as it was restored"
        assert why in done.refused["orders-0"]
        assert not list((tmp_path / "target").glob(".restore-*"))
    assert done.records == (0 if change == "gone" else 4)


def test_a_dry_run_of_archive_or_restore_looks_at_the_state(
    files: PartitionFiles, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "theirs").touch()
    archived(files.log_dir, tmp_path)
    for dry_run in (True, False):
        more: dict[str, Any] = {"dry_run": dry_run, "state": foreign}
        with pytest.raises(Misconfigured, match="is no state directory"):
            archived(files.log_dir, tmp_path, **more)
        with pytest.raises(Misconfigured, match="is no state directory"):
            restored(tmp_path, **more)
        with pytest.raises(Misconfigured, match="is the state of the job archive"):
            restored(tmp_path, dry_run=dry_run, state=tmp_path / "archiving")
    assert restored(tmp_path, dry_run=True).records == 18
    restored(tmp_path)
    done = restored(tmp_path, dry_run=True)
    assert (done.records, done.partitions, done.refused) == (0, {}, {})


def compacted(files: PartitionFiles) -> None:
    """As a compaction leaves batches: gaps, a base time of no record, and one that is empty."""
    for records, base in (([1, 4], 1_000), ([0], 1_010), ([], 1_020), ([3], 1_030)):
        header, *_ = [
            header
            for _, header in iter_headers(
                build_batch([LogRecord(NINE_MS + n, b"%d" % n, b"v") for n in range(5)])
            )
        ]
        body = b"".join(record_bytes(n, n) for n in records)
        header = header._replace(
            base_offset=base,
            batch_length=49 + len(body),
            records_count=len(records),
            max_timestamp=NINE_MS + max(records, default=-1 - NINE_MS),
        )
        files.write(pack(header, body))


def record_bytes(delta: int, offset_delta: int) -> bytes:
    return bytes(kernel_bytes(delta, offset_delta, b"%d" % delta, b"v", ()))


def pack(header: BatchHeader, body: bytes) -> bytes:
    return with_records(header, body)


def test_compacted_logs_keep_their_gaps(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path / "log")
    compacted(files)
    files.write_indexes()
    target = round_trip(files.log_dir, tmp_path)
    assert batches_of(target / "orders-0") == batches_of(files.directory)


def test_a_log_that_starts_within_a_batch_starts_there_again(
    make_broker: MakeBroker, broker: RunningBroker, tmp_path: Path
) -> None:
    broker.create_topic("clicks")
    broker.client.produce("clicks", 0, numbered_batch(10))

    broker.delete_records("clicks", 4)
    target = round_trip(broker.address, tmp_path, topics="clicks")
    other = make_broker(log_dir=target)
    assert other.log("clicks").log_start_offset == 4
    assert client_offset(other.client, "clicks", 0) == 10


def test_append_times_that_went_back_go_back_again(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path / "log")
    for append_ms in (NINE_MS, NINE_MS + 5, NINE_MS - 5, NINE_MS):
        files.add([1, 2], append_ms=append_ms)
    files.write_indexes()
    target = round_trip(files.log_dir, tmp_path)
    assert [each.name for each in sorted((target / "orders-0").glob("*.log"))] == [
        "00000000000000001000.log",
        "00000000000000001004.log",
    ]
    assert (target / "orders-0/append-time-resets").exists()
    assert append_times_of(target / "orders-0") == {
        1_000: NINE_MS,
        1_002: NINE_MS + 5,
        1_004: NINE_MS - 5,
        1_006: NINE_MS,
    }
    assert findings_of(target) == []


@examples(1)
@given(st.data())
def test_any_log_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    tmp_path = tmp_path_factory.mktemp("any")
    files = PartitionFiles(tmp_path / "log", base_offset=data.draw(st.integers(0, 1 << 40)))
    batches = st.tuples(
        st.lists(
            st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(NINE_MS, NINE_MS + 9 * HOUR_MS),
            min_size=1,
            max_size=20,
        ),
        st.sampled_from(Codec),
        st.none() | st.integers(NINE_MS, NINE_MS + 10),
        st.booleans(),
    )
    for times, codec, append_ms, rolls in data.draw(st.lists(batches, min_size=1, max_size=8)):
        files.add(times, codec=codec, append_ms=append_ms)
        if rolls:
            files.roll()
    files.write_indexes()
    target = round_trip(files.log_dir, tmp_path)
    assert batches_of(target / "orders-0") == batches_of(files.directory)


def test_a_range_of_time_is_restored_exactly(files: PartitionFiles, tmp_path: Path) -> None:
    archived(files.log_dir, tmp_path)
    restored(tmp_path, from_=NINE_MS - 5 * HOUR_MS, to=NINE_MS + 1)
    expected = [
        record.offset
        for _, records in batches_of(files.directory)
        for record, _ in records
        if NINE_MS - 5 * HOUR_MS <= record.timestamp < NINE_MS + 1
    ]
    found = batches_of(tmp_path / "target/orders-0")
    assert [record.offset for _, records in found for record, _ in records] == expected
    assert found[-1][0].next_offset == files.next_offset
    assert findings_of(tmp_path / "target") == []


def test_topics_are_chosen_by_name_or_pattern(tmp_path: Path) -> None:
    for topic in ("one", "two", "three"):
        files = PartitionFiles(tmp_path / "log", topic=topic)
        files.add([NINE_MS] * 3)
        files.write_indexes()
    archived(tmp_path / "log", tmp_path)
    for state, more, expected in (
        ("a", {"topics": "two"}, {"two-0"}),
        ("b", {"topics_pattern": "t.*ee|one"}, {"one-0", "three-0"}),
    ):
        found = restored(tmp_path, state=tmp_path / state, target=tmp_path / f"to-{state}", **more)
        assert set(found.partitions) == expected
        there = {each.name for each in (tmp_path / f"to-{state}").iterdir() if each.is_dir()}
        assert there == expected
    for state, more in (("c", {"topics": "four"}), ("d", {"topics_pattern": "x"})):
        with pytest.raises(Misconfigured, match="in the archive"):
            restored(tmp_path, state=tmp_path / state, **more)


def test_a_run_that_was_killed_anywhere_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before each change of the target and of the state, one after another."""
    override(monkeypatch, "horolog.jobs.archives", SEGMENT_BYTES=1_000)
    override(monkeypatch, "horolog.jobs", JOINED_BYTES=0)
    for partition in (0, 1):
        files = PartitionFiles(tmp_path / "log", partition=partition)
        for start in range(6):
            files.add([NINE_MS + start] * 10)
            files.roll()
        files.add([NINE_MS])
        files.write_indexes()
    override(monkeypatch, "horolog.jobs.archives", LEAST_UNIT_BYTES=100)
    archived(tmp_path / "log", tmp_path)

    class KilledError(Exception):
        pass

    left = 0

    def dying(function: Any) -> Any:
        def die_or(*arguments: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise KilledError
            return function(*arguments, **more)

        return die_or

    for name in ("rename", "make_directory", "replace", "sync_path"):
        monkeypatch.setattr(Files, name, dying(getattr(Files, name)))
    monkeypatch.setattr(JobState, "record", dying(JobState.record))
    kills = 0
    for left in [*range(40), *range(40, 400, 7), 1 << 30]:  # noqa: B007 - counted above
        try:
            done = restored(tmp_path)
            break
        except KilledError:
            kills += 1
    assert kills > 5
    assert done.refused == {}
    for partition in (0, 1):
        name = f"orders-{partition}"
        assert batches_of(tmp_path / "target" / name) == batches_of(tmp_path / "log" / name)
    assert not list((tmp_path / "target").glob(".restore-*"))
    assert findings_of(tmp_path / "target") == []


def test_a_partition_that_is_there_is_refused_and_left_alone(
    files: PartitionFiles, tmp_path: Path
) -> None:
    archived(files.log_dir, tmp_path)
    shutil.copytree(files.directory, tmp_path / "target/orders-0")
    (tmp_path / "target/orders-0/mine").write_text("mine")
    for more in ({"dry_run": True, "state": None}, {}):
        done = restored(tmp_path, **more)
        assert "is there already" in done.refused["orders-0"]
    assert (tmp_path / "target/orders-0/mine").read_text() == "mine"


def test_a_target_that_a_broker_uses_is_refused(
    files: PartitionFiles, broker: RunningBroker, tmp_path: Path
) -> None:
    archived(files.log_dir, tmp_path)
    with pytest.raises(Misconfigured, match="broker"):
        restored(tmp_path, target=broker.log_dir)


def test_damage_in_the_archive_stops_that_partition_alone(tmp_path: Path) -> None:
    for partition in (0, 1):
        files = PartitionFiles(tmp_path / "log", partition=partition)
        files.add([NINE_MS] * 100, value_bytes=500)
        files.write_indexes()
    archived(tmp_path / "log", tmp_path)
    state = manifest_of(tmp_path / "archive").partitions()
    (file,) = next(iter(state.values())).records
    path = tmp_path / "archive" / file.path
    sound = path.read_bytes()
    path.write_bytes(sound[:2_000] + bytes([sound[2_000] ^ 1]) + sound[2_001:])
    done = restored(tmp_path)
    assert list(done.refused) == ["orders-0"]
    assert "damaged" in done.refused["orders-0"]
    assert set(done.partitions) == {"orders-1"}
    path.unlink()
    assert "is not there" in restored(tmp_path).refused["orders-0"]
    path.write_bytes(sound)
    assert restored(tmp_path).refused == {}
    for partition in (0, 1):
        name = f"orders-{partition}"
        assert batches_of(tmp_path / "target" / name) == batches_of(tmp_path / "log" / name)


def test_an_archive_that_has_grown_changes_nothing_for_a_run_that_goes_on(
    files: PartitionFiles, tmp_path: Path
) -> None:
    archived(files.log_dir, tmp_path)

    class KilledError(Exception):
        pass

    def kill(place: int) -> None:
        raise KilledError

    with suppress(KilledError):
        restored(tmp_path, InProcessSpark(kill))
    expected = batches_of(files.directory)
    files.add([NINE_MS])
    files.write_indexes()
    archived(files.log_dir, tmp_path)
    restored(tmp_path)
    assert batches_of(tmp_path / "target/orders-0") == expected


def test_producer_ids_that_come_later_are_no_restored_ones(
    make_broker: MakeBroker, broker: RunningBroker, tmp_path: Path
) -> None:
    """Even after the restored producers are forgotten, and the broker started again."""
    broker.create_topic("clicks")
    used = init_producer_id(broker.client)
    how = {"producer_id": used, "producer_epoch": 0, "base_sequence": 0}
    broker.client.produce("clicks", 0, numbered_batch(3, **how))
    target = round_trip(broker.address, tmp_path, topics="clicks")
    other = make_broker(log_dir=target)
    log = other.log("clicks")
    assert used in dict(log.producers)
    other.call(log.producers.clear)  # as when they expire
    other.restart()
    assert init_producer_id(other.client) > used
    (header,) = (header for header in other.headers("clicks") if header.records_count)
    assert header.producer_id == used


def init_producer_id(client: Client) -> int:
    return client.init_producer_id().id


def test_ranges_of_many_small_runs_become_few_and_are_proved(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path / "log")
    for number in range(12):
        files.add([NINE_MS, -1], append_ms=NINE_MS + number if number % 5 else None)
        files.write_indexes()
        archived(files.log_dir, tmp_path)
    (state,) = manifest_of(tmp_path / "archive").partitions().values()
    (joined,) = state.ranges
    assert (joined.start, joined.end, joined.records, joined.batches) == (1_000, 1_024, 24, 12)
    assert restored(tmp_path).refused == {}
    assert batches_of(tmp_path / "target/orders-0") == batches_of(files.directory)


@pytest.mark.parametrize("name", some_of(["old-formats", "clean", "recovered"], 3))
def test_logs_that_kafka_wrote_come_back(tmp_path: Path, name: str) -> None:
    """Compacted ones, transactions, all codecs and formats."""
    source = GOLDEN / name
    target = round_trip(source, tmp_path)
    committed = {"kafka.isolation.level": "read_committed", "includeAppendTime": "true"}
    committed |= {"includeTimestampMs": "true", "includeHeaders": "true"}
    names_ = [*columns.default_columns("includeHeaders", "includeTimestampMs")]
    schema = schema_of([*names_, "appendTimeMs", "createTimeMs"])

    def rows(path: Path) -> list[dict[str, Any]]:
        found = Read(path, schema=schema, **committed).rows()
        return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))

    expected = rows(source)
    assert expected
    for row in expected:
        row["timestampType"] = max(0, row["timestampType"])  # none in format v0
    assert rows(target) == expected
    assert findings_of(target) == []


@pytest.mark.spark
def test_spark_runs_it(files: PartitionFiles, tmp_path: Path, spark: Any) -> None:
    archived(files.log_dir, tmp_path)
    assert restored(tmp_path, spark).refused == {}
    assert batches_of(tmp_path / "target/orders-0") == batches_of(files.directory)
