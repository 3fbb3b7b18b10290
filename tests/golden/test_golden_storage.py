"""Log directories that Apache Kafka left: opened, recovered, and written again by our storage."""

import re
import shutil
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from partition_files import files_of

from golden import (
    HIDDEN_FROM_KAFKA,
    answers,
    copy_directory,
    extract_killed,
    partitions,
    text,
)
from horolog.config import BrokerConfig, TopicConfig
from horolog.config.settings import Settings
from horolog.record import (
    HEADER_SIZE,
    AbortedTransaction,
    AbortedTransactions,
    AppendTimeStretch,
    iter_headers,
    read_records,
    restamp,
)
from horolog.storage import (
    CopiedEnd,
    CopiedLog,
    Files,
    Log,
    LogDir,
    TopicPartition,
    copying,
    prepare,
)

NOW_MS = 1_795_000_000_000  # within the hour of the append times in the files, for the bounds
KAFKAS_OWN = {"__cluster_metadata", "__consumer_offsets", "__transaction_state"}
CREATE_TIME_LOGS = (
    "client-none-0",
    "client-gzip-0",
    "client-snappy-0",
    "client-lz4-0",
    "client-zstd-0",
    "out-of-order-0",
    "never-a-time-0",
    "no-time-0",
    "wild-future-0",
    "index-all-0",
    "index-some-0",
    "index-default-0",
    "index-full-0",
    "roll-by-time-0",
    "idempotent-0",
)


def config_of(topic: str, told: str) -> TopicConfig:
    """What the topic was made with, so far as one broker obeys it today."""
    own = next(
        (one["config"] for name, one in answers(told).items() if name.startswith(topic + "-")), {}
    )
    known = {name: value for name, value in own.items() if value != "compact"}
    known.pop("min.cleanable.dirty.ratio", None)
    return Settings().topic_config(known)


@contextmanager
def opened(path: Path, told: str, *, ours: bool):
    log_dir = LogDir.open(
        path,
        broker_config=BrokerConfig(),
        topic_config=lambda topic: config_of(topic, told),
        is_ours=lambda topic: ours and topic not in KAFKAS_OWN,
        now_ms=NOW_MS,
    )
    try:
        yield log_dir
    finally:
        log_dir.close()


def records_of(log: Log) -> list[list]:
    rows = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20).read()
        for position, header in iter_headers(data):
            batch = data[position : position + header.size]
            if not header.is_control and header.records_count:
                rows += [
                    [record.offset, record.timestamp, text(record.key), text(record.value)]
                    + ([[[k, text(v)] for k, v in record.headers]] if record.headers else [])
                    for record in read_records(batch)
                    if record.offset >= log.log_start_offset
                ]
            offset = header.next_offset
    return rows


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    path = copy_directory("clean", tmp_path_factory.mktemp("golden") / "clean")
    with opened(path, "clean", ours=False) as log_dir:
        yield log_dir


@pytest.fixture(scope="module")
def recovered(tmp_path_factory):
    """What kill -9 left, after our own recovery."""
    path = extract_killed(tmp_path_factory.mktemp("golden") / "killed")
    with opened(path, "killed", ours=True) as log_dir:
        yield log_dir


@pytest.fixture
def opened_log(request, partition):
    told = "clean" if partition.path.parent.name == "clean" else "killed"
    log_dir = request.getfixturevalue("clean" if told == "clean" else "recovered")
    return log_dir.logs[TopicPartition(partition.topic, partition.partition)]


@pytest.fixture(
    params=partitions("clean", "killed"),
    ids=lambda partition: f"{partition.path.parent.name}/{partition.name}",
)
def partition(request):
    return request.param


def test_the_log_starts_and_ends_where_kafkas_did(partition, opened_log):
    assert opened_log.log_start_offset == partition.answers["log_start_offset"]
    assert opened_log.log_end_offset == partition.answers["latest"][0]


def test_records_are_read_as_kafka_served_them(partition, opened_log):
    assert records_of(opened_log) == partition.answers["records"]


def test_offsets_by_time_are_kafkas(partition, opened_log):
    for at_ms, offset, timestamp, epoch in partition.answers["lookups"]:
        found = opened_log.find_by_timestamp(at_ms)
        ours = (
            (-1, -1, -1) if found is None else (found.offset, found.timestamp, found.leader_epoch)
        )
        if partition.name in HIDDEN_FROM_KAFKA and offset == -1 and found is not None:
            records = partition.answers["records"]
            assert ours[0] == next(row[0] for row in records if row[1] >= at_ms)
        else:
            assert ours == (offset, timestamp, epoch), at_ms


def test_the_largest_time_is_kafkas(partition, opened_log):
    offset, timestamp, epoch = partition.answers["max_timestamp"]
    found = opened_log.find_max_timestamp()
    ours = [-1, -1, -1] if found is None else [found.offset, found.timestamp, found.leader_epoch]
    if partition.name == "deleted-all-0":
        # Kafka names a record that was deleted: it never looks at the log start offset here.
        assert (offset, found) == (87, None)
    else:
        assert ours == [offset, timestamp, epoch]


def test_leader_epochs_are_taken_over(partition, opened_log):
    lines = (partition.path / "leader-epoch-checkpoint").read_text().split("\n")[2:]
    told = [tuple(map(int, line.split())) for line in lines if line]
    # Kafka also notes epochs in which nothing was written yet, and forgets them at every start.
    written = [entry for entry in told if entry[1] < opened_log.log_end_offset]
    entries = [tuple(entry) for entry in opened_log.epochs.entries]
    assert [entry for entry in entries if entry[1] < opened_log.log_end_offset] == written
    assert len(entries) <= len(written) + 1, "and that of this start"
    if opened_log.retention_exempt:  # adopted; a Kafka that starts again continues two above it
        assert opened_log.leader_epoch == max((epoch for epoch, _ in told), default=0)


SNAPSHOT = re.compile(
    r"producerId: (\d+) producerEpoch: (\d+) coordinatorEpoch: (-?\d+) "
    r"currentTxnFirstOffset: OptionalLong(?:\.empty|\[(\d+)\]) .*?"
    r"lastSequence: (-?\d+) lastOffset: (-?\d+) "
)


def test_producers_have_the_state_of_kafkas_snapshot(partition, opened_log):
    """Also after a kill, where the snapshot is older than the log and the rest is read from it."""
    files = partition.answers["files"]
    newest = max((name for name in files if name.endswith(".snapshot")), default=None)
    told = [SNAPSHOT.match(line).groups() for line in files[newest]] if newest else []
    opened = dict(opened_log.producers.unended())
    ours = [
        (
            str(producer_id),
            str(state.epoch),
            str(state.coordinator_epoch),
            None if producer_id not in opened else str(opened[producer_id]),
            str(state.batches[-1].last_sequence),
            str(state.batches[-1].last_offset),
        )
        for producer_id, state in opened_log.producers
    ]
    # Kafka expires by the records' own times: after a kill it forgot the producer of 2023 whose
    # state it read from a snapshot, and kept the one whose batches it read from the log.
    assert set(told) <= set(ours)
    assert len(ours) == len(told) or partition.path.parent.name == "recovered"


def test_kafkas_topic_ids_are_taken_over(partition, opened_log):
    assert isinstance(opened_log.topic_id, UUID)


def entries_of(name: str, data: bytes) -> set[bytes]:
    size = 8 if name.endswith(".index") else 12
    return {data[at : at + size] for at in range(0, len(data), size)}


@pytest.mark.parametrize("directory", ["clean", "old-formats"])
def test_serving_kafkas_directory_changes_no_log_and_takes_no_index_entry_away(tmp_path, directory):
    """A Kafka that was restarted skipped entries that we add; none that it wrote may go."""
    path = copy_directory(directory, tmp_path / "kafka")
    directories = [one for one in path.iterdir() if one.is_dir()]
    logs = {one: files_of(one, ".log", ".txnindex") for one in directories}
    indexes = {one: files_of(one, ".index", ".timeindex") for one in directories}
    with opened(path, directory, ours=False) as log_dir:
        assert not log_dir.unreadable
        for log in log_dir.logs.values():
            assert log.apply_retention(NOW_MS, NOW_MS) == []
            log.find_max_timestamp()
            records_of(log)
    assert {one: files_of(one, ".log", ".txnindex") for one in directories} == logs
    for one in directories:
        after = files_of(one, ".index", ".timeindex")
        assert after.keys() == indexes[one].keys()
        for name, data in indexes[one].items():
            assert entries_of(name, data) <= entries_of(name, after[name]), f"{one.name}/{name}"


def test_recovery_leaves_the_files_that_kafkas_recovery_leaves(tmp_path):
    path = extract_killed(tmp_path / "killed")
    with opened(path, "killed", ours=True):
        pass
    for golden in partitions("killed"):
        suffixes = (".log", ".index", ".timeindex", ".txnindex")
        assert files_of(path / golden.name, *suffixes) == files_of(golden.path, *suffixes), (
            golden.name
        )


@pytest.mark.parametrize("name", CREATE_TIME_LOGS)
def test_the_same_batches_make_the_same_files(name, tmp_path):
    """Segments roll where Kafka's did; logs and indexes are Kafka's, byte for byte."""
    golden = next(one for one in partitions("clean") if one.name == name)
    told = [batch for log in golden.logs() for batch in golden.batches(log.name)]
    sent = []
    for log in golden.logs():
        data = log.read_bytes()
        for position, header in iter_headers(data):
            batch = data[position : position + header.size]
            head = restamp(header, batch, base_offset=0, leader_epoch=-1)
            sent.append(head + batch[HEADER_SIZE:])
    assert len(sent) == len(told)
    with opened(tmp_path / "ours", "clean", ours=True) as log_dir:
        config = replace(config_of(golden.topic, "clean"), retention_ms=-1)
        log = log_dir.create(golden.topic, 0, UUID(int=7), config, NOW_MS)
        for batch in sent:
            log.append(prepare(batch, config, NOW_MS), NOW_MS)
        directory = Path(log.directory)
    suffixes = (".log", ".index", ".timeindex")
    assert files_of(directory, *suffixes) == files_of(golden.path, *suffixes)


@pytest.mark.parametrize("missing", [".timeindex", ".index"])
def test_lookups_need_no_index_of_kafkas(missing, tmp_path):
    path = copy_directory("clean", tmp_path / "clean")
    for index in path.glob(f"[!_]*/*{missing}"):
        index.unlink()
    with opened(path, "clean", ours=False) as log_dir:
        for golden in partitions("clean"):
            if golden.name in HIDDEN_FROM_KAFKA:
                continue
            log = log_dir.logs[TopicPartition(golden.topic, golden.partition)]
            for at_ms, offset, *_ in golden.answers["lookups"]:
                found = log.find_by_timestamp(at_ms)
                assert (-1 if found is None else found.offset) == offset, (golden.name, at_ms)


OLD = partitions("old-formats")


@pytest.fixture(scope="module")
def old_formats(tmp_path_factory):
    path = copy_directory("old-formats", tmp_path_factory.mktemp("golden") / "old")
    with opened(path, "old-formats", ours=False) as log_dir:
        yield log_dir


@pytest.fixture(params=OLD, ids=lambda partition: partition.name)
def old_log(request, old_formats):
    partition = request.param
    return partition, old_formats.logs[TopicPartition(partition.topic, partition.partition)]


def test_logs_of_old_formats_are_read_as_kafka_served_them(old_log):
    golden, log = old_log
    assert log.log_start_offset == golden.answers["log_start_offset"]
    assert log.log_end_offset == golden.answers["latest"][0]
    # The client that was asked says 0 where a record has no timestamp.
    told = [[at, time, *rest] for at, time, *rest in golden.answers["records"]]
    ours = [[at, max(time, 0), *rest] for at, time, *rest in records_of(log)]
    assert ours == told


def test_offsets_by_time_in_old_formats_are_kafkas(old_log):
    golden, log = old_log
    for at_ms, offset, *rest in golden.answers["lookups"]:
        found = log.find_by_timestamp(at_ms)
        if offset == "error":  # 43: such a topic is said to hold no times; ours has none to show
            assert rest == [43]
            times = [row[1] for row in records_of(log) if row[1] >= at_ms]
            assert (found is None) == (not times)
            continue
        ours = (
            [-1, -1, -1] if found is None else [found.offset, found.timestamp, found.leader_epoch]
        )
        assert ours == [offset, *rest], at_ms


@pytest.mark.parametrize("golden", OLD, ids=lambda partition: partition.name)
def test_lookups_in_old_formats_need_no_index_of_kafkas(golden, tmp_path):
    path = copy_directory("old-formats", tmp_path / "old")
    for suffix in ("index", "timeindex"):
        for index in path.glob(f"[!_]*/*.{suffix}"):
            index.unlink()
    with opened(path, "old-formats", ours=False) as log_dir:
        log = log_dir.logs[TopicPartition(golden.topic, golden.partition)]
        for at_ms, offset, *_ in golden.answers["lookups"]:
            found = log.find_by_timestamp(at_ms)
            if offset != "error":
                assert (-1 if found is None else found.offset) == offset, at_ms
        for offset in range(log.log_start_offset, log.log_end_offset):
            data = log.read(offset, 1 << 20).read()
            _, header = next(iter_headers(data))
            assert header.last_offset >= offset


def test_a_copy_of_a_partition_serves_alone(tmp_path):
    """A partition directory without the checkpoints of its log directory: a restored backup."""
    golden = next(one for one in partitions("clean") if one.name == "index-some-0")
    shutil.copytree(golden.path, tmp_path / "data" / golden.name)
    with opened(tmp_path / "data", "clean", ours=False) as log_dir:
        log = log_dir.logs[TopicPartition("index-some", 0)]
        assert records_of(log) == golden.answers["records"]


def copied(golden, path, *, times_opened=1):
    """A copy of a partition, batch for batch, in segments as large as the topic asks for."""
    path.mkdir(parents=True)
    batches = []
    for log in golden.logs():
        data = log.read_bytes()
        batches += [
            (data[at : at + header.size], [AppendTimeStretch(header.base_offset, None)])
            for at, header in iter_headers(data)
        ]
    end = CopiedEnd(0)
    step = -(-len(batches) // times_opened)
    for start in range(0, len(batches), step):
        with closing(Files()) as files, copying(str(path)):
            copy = CopiedLog(files, str(path), end, segment_bytes=900, interval_bytes=200)
            for batch in batches[start : start + step]:
                copy.append(*batch)
            copy.sync()
            end = copy.end


@pytest.mark.parametrize("times_opened", [1, 5])
def test_a_copy_has_kafkas_entries_of_aborted_transactions(tmp_path, times_opened):
    """Byte for byte, also where a copy was continued; Kafka's segments ended by time, too."""
    golden = next(one for one in partitions("clean") if one.name == "transactions-0")
    copied(golden, tmp_path / golden.name, times_opened=times_opened)
    ours, kafkas = (files_of(path, ".txnindex") for path in (tmp_path / golden.name, golden.path))
    assert len(ours) > 1
    assert b"".join(ours.values()) == b"".join(kafkas.values())


def test_a_broker_that_opens_a_copy_shows_what_kafka_showed_of_transactions(tmp_path):
    golden = next(one for one in partitions("clean") if one.name == "transactions-0")
    copied(golden, tmp_path / "data" / golden.name)
    with opened(tmp_path / "data", "clean", ours=False) as log_dir:
        log = log_dir.logs[TopicPartition("transactions", 0)]
        aborted = AbortedTransactions(
            AbortedTransaction(each.producer_id, each.first_offset, each.last_offset)
            for each in log.look().aborted_transactions(0, log.log_end_offset)
        )
        data = b"".join(each.read_bytes() for each in golden.logs())
        shown = [
            offset
            for at, header in iter_headers(data)
            if not header.is_control and not aborted.drop(header, data[at : at + header.size])
            for offset in range(header.base_offset, header.next_offset)
        ]
    assert shown == golden.answers["committed_offsets"]
