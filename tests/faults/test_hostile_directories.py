"""A broker starts whatever is in its log directory, and serves all that is sound."""

import os
import shutil
import struct
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from batches import batch
from damage import DAMAGES
from examples import some_of
from faulty_calls import full_disk
from raw_connection import RawConnection, fetch_fields, produce_fields
from running_broker import MakeBroker, RunningBroker
from stored import append_records, metadata_dir, opened_store

from horolog.errors import StorageFailed
from horolog.metadata import BROKER, TOPIC, TopicRow
from horolog.record import LogRecord, build_batch
from horolog.schemas.metadata import Config, PartitionRecord, TopicRecord
from horolog.storage import (
    CLUSTER_METADATA,
    INTERNAL_TOPICS,
    SERVED_INTERNAL,
    AbortedTxn,
    Files,
    write_aborted,
)
from horolog.wire import ApiKey

BATCH = batch(-1)


def described(broker: RunningBroker) -> dict[str, dict[int, int]]:
    """Error codes of all partitions, as Metadata has them."""
    topics = broker.ask(ApiKey.METADATA, 12, topics=None).topics
    return {
        topic.name: {part.partition_index: part.error_code for part in topic.partitions}
        for topic in topics
    }


@pytest.fixture
def stopped(make_broker: MakeBroker) -> Path:
    """The directory of a broker that was stopped: topics `d` (two partitions) and `other`."""
    broker = make_broker()
    broker.create_topic("d", partitions=2)
    broker.create_topic("other")
    for topic, partition in (("d", 0), ("d", 1), ("other", 0)):
        assert broker.produce(topic, BATCH, partition).error_code == 0
    broker.stop()
    return broker.log_dir


def set_topics(log_dir: Path, *rows: TopicRow) -> None:
    with opened_store(log_dir) as store:
        for row in rows:
            store.put_topic(row)


def partitions_on_disk(log_dir: Path, topic: str) -> set[str]:
    return {path.name for path in log_dir.glob(f"{topic}-*")}


# --- rows and directories that belong to nothing --------------------------------------


@pytest.mark.parametrize("has_directories", [False, True])
def test_topics_with_reserved_names_do_not_stop_a_start(
    make_broker: MakeBroker, stopped: Path, has_directories: bool
) -> None:
    """As earlier versions let clients create them."""
    reserved = INTERNAL_TOPICS - SERVED_INTERNAL
    set_topics(stopped, *(TopicRow(name, uuid4(), 2) for name in reserved))
    if has_directories:
        for name in reserved - {CLUSTER_METADATA}:  # that is horolog's own
            shutil.copytree(stopped / "d-0", stopped / f"{name}-0")
    before = {path.name for path in stopped.glob("__*")}
    for _ in range(2):
        broker = make_broker(log_dir=stopped)
        assert described(broker) == {"d": {0: 0, 1: 0}, "other": {0: 0}}
        assert broker.count("d") == 1
        broker.stop()
    assert {path.name for path in stopped.glob("__*")} == before


@pytest.mark.parametrize("index", [2, 99_999, 2_147_483_647, 2_147_483_648, 9_999_999_999])
def test_a_directory_beyond_the_number_of_partitions_is_left_alone(
    make_broker: MakeBroker, stopped: Path, index: int
) -> None:
    stray = stopped / f"d-{index}"
    shutil.copytree(stopped / "d-0", stray)
    (stray / "partition.metadata").unlink()
    before = {path.name: path.read_bytes() for path in stray.iterdir()}
    broker = make_broker(log_dir=stopped)
    assert described(broker) == {"d": {0: 0, 1: 0}, "other": {0: 0}}
    assert broker.produce("d", BATCH, 1).error_code == 0
    broker.stop()
    assert partitions_on_disk(stopped, "d") == {"d-0", "d-1", stray.name}
    assert {path.name: path.read_bytes() for path in stray.iterdir()} == before


def test_a_directory_beyond_the_number_of_partitions_never_joins_the_topic(
    make_broker: MakeBroker, stopped: Path
) -> None:
    (stopped / "d-2").mkdir()
    broker = make_broker(log_dir=stopped)
    asked = {"name": "d", "count": 3}
    answer = broker.ask(ApiKey.CREATE_PARTITIONS, 3, topics=[asked])
    assert answer.results[0].error_code == 56
    broker.restart()
    assert described(broker)["d"] == {0: 0, 1: 0}


def test_an_adopted_topic_has_the_partitions_that_are_there(
    make_broker: MakeBroker, stopped: Path
) -> None:
    shutil.copytree(stopped / "d-0", stopped / "far-3")
    shutil.copytree(stopped / "d-0", stopped / "far-2147483647")
    broker = make_broker(log_dir=stopped)
    assert described(broker)["far"] == {3: 0, 2_147_483_647: 0}
    assert broker.count("far", 2_147_483_647) == 1
    with broker.connect() as connection:
        change = {"name": "retention.ms", "config_operation": 0, "value": "-1"}
        resource = {"resource_type": 2, "resource_name": "far", "configs": [change]}
        altered = connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
        assert altered.responses[0].error_code == 0
        asked = {"name": "far", "count": 5}
        refused = connection.ask(ApiKey.CREATE_PARTITIONS, 3, topics=[asked])
    assert refused.results[0].error_code == 37
    assert "highest partition is 2147483647" in refused.results[0].error_message
    broker.restart()
    assert described(broker)["far"] == {3: 0, 2_147_483_647: 0}
    assert partitions_on_disk(stopped, "far") == {"far-3", "far-2147483647"}


def test_gaps_are_filled_when_an_operator_asks_for_that(
    make_broker: MakeBroker, stopped: Path
) -> None:
    shutil.move(stopped / "d-0", stopped / "e-3")
    shutil.move(stopped / "d-1", stopped / "e-1")
    broker = make_broker(log_dir=stopped)
    with broker.connect() as connection:
        change = {"name": "retention.ms", "config_operation": 0, "value": "-1"}
        resource = {"resource_type": 2, "resource_name": "e", "configs": [change]}
        connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
        asked = {"name": "e", "count": 4}
        grown = connection.ask(ApiKey.CREATE_PARTITIONS, 3, topics=[asked])
    assert grown.results[0].error_code == 0, grown
    broker.restart()
    assert described(broker)["e"] == dict.fromkeys(range(4), 0)
    assert [broker.count("e", index) for index in range(4)] == [0, 1, 0, 1]


@pytest.mark.parametrize("kind", ["link", "file", "fifo"])
def test_what_has_a_partitions_name_and_is_no_directory_is_offline(
    make_broker: MakeBroker, stopped: Path, tmp_path: Path, kind: str
) -> None:
    outside = tmp_path / "outside"
    shutil.move(stopped / "d-1", outside)
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    for name in ("d-1", "notes-2024"):
        put: dict[str, Callable[[Path], object]] = {
            "link": lambda path: path.symlink_to(outside),
            "file": lambda path: path.write_bytes(b"no directory"),
            "fifo": os.mkfifo,
        }
        put[kind](stopped / name)
    for _ in range(2):
        broker = make_broker(log_dir=stopped)
        assert described(broker) == {"d": {0: 0, 1: 5}, "other": {0: 0}}
        assert (
            broker.produce("d", BATCH).error_code,
            broker.produce("d", BATCH, 1).error_code,
        ) == (0, 56)
        broker.stop()
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before


def test_an_offline_partition_is_deleted_with_its_topic_and_does_not_come_back(
    make_broker: MakeBroker, stopped: Path
) -> None:
    (log,) = (stopped / "d-1").glob("*.log")
    log.unlink()
    log.mkdir()
    starts = stopped / "log-start-offset-checkpoint"
    starts.write_text("0\n1\nd 1 1\n")
    broker = make_broker(log_dir=stopped)
    assert described(broker)["d"] == {0: 0, 1: 5}
    answer = broker.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["d"])
    assert answer.responses[0].error_code == 0
    broker.create_topic("d", partitions=2)
    assert (broker.produce("d", BATCH, 1).error_code, broker.count("d", 1)) == (0, 1)
    assert "d 1 1" not in starts.read_text()
    broker.kill()
    broker = make_broker(log_dir=stopped)
    assert described(broker) == {"d": {0: 0, 1: 0}, "other": {0: 0}}
    assert broker.count("d", 1) == 1


def test_a_partition_that_cannot_be_created_at_start_is_offline(
    make_broker: MakeBroker, stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(stopped / "d-1")

    with monkeypatch.context() as patched:
        full_disk(patched, "os_mkdir")
        broker = make_broker(log_dir=stopped)
        assert described(broker) == {"d": {0: 0, 1: 5}, "other": {0: 0}}
        broker.stop()
    broker = make_broker(log_dir=stopped)
    assert described(broker) == {"d": {0: 0, 1: 0}, "other": {0: 0}}


# --- damage in every kind of file -----------------------------------------------------

# What a broker, or a Kafka that was here before, has in a log directory.
LOG_DIR_FILES = [
    ".kafka_cleanshutdown",
    ".kafka_cleanshutdown.tmp",
    "meta.properties",
    "meta.properties.tmp",
    "recovery-point-offset-checkpoint",
    "recovery-point-offset-checkpoint.tmp",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "__cluster_metadata-0/00000000000000000000.log",
    "__cluster_metadata-0/00000000000000000010-0000000001.checkpoint",
    "__transaction_state-0/00000000000000000000.log",
]
# And in a partition's; the second segment of the template begins at offset 10.
PARTITION_FILES = [
    "00000000000000000000.log",
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "00000000000000000000.companion",
    "00000000000000000010.log",
    "00000000000000000010.index",
    "00000000000000000010.timeindex",
    "00000000000000000010.companion",
    "00000000000000000010.snapshot",
    "00000000000000000010.batches",
    "leader-epoch-checkpoint",
    "leader-epoch-checkpoint.tmp",
    "partition.metadata",
    "append-time-checkpoint",
    "append-time-resets",
    "sync-failed",
    "00000000000000000009.log.deleted",
    "00000000000000000009.log.cleaned",
    "00000000000000000000.log.swap",
    "00000000000000000000.log.7.cut",
]
SOUND = len(PARTITION_FILES)  # the partition in which nothing is damaged
ANYTHING = b"0\n1\nt 0 1\n"


def make_template(path: Path, *, is_clean: bool) -> None:
    """Topic `t`, with a partition for each file that may be damaged and one more; and `other`."""
    # Indexes of 10 MB each that are not full would be most of what each test copies.
    broker = RunningBroker(path, {"log.index.size.max.bytes": "1200"})
    settings = {"message_timestamp_type": "LogAppendTime", "index_interval_bytes": "0"}
    broker.create_topic("t", SOUND + 1, segment_bytes="600", **settings)
    broker.create_topic("other")
    with broker.connect() as connection:
        for n in range(7):
            more: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 2 * n}
            batch = build_batch([LogRecord(-1, None, b"v" * 20)] * 2, **more)
            for topic in ("t", "other"):
                connection.ask(ApiKey.PRODUCE, 9, **produce_fields(topic, {0: batch}))
        deleted = {"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}
        connection.ask(ApiKey.DELETE_RECORDS, 2, topics=[deleted])
    if is_clean:
        broker.stop()
    else:
        broker.run(broker.service.background_tasks.checkpoint())
        broker.kill()
    write_aborted(Files(), str(path / "t-0" / PARTITION_FILES[3]), [AbortedTxn(7, 0, 1, 2)])
    for index in range(1, SOUND + 1):
        for file in (path / "t-0").iterdir():
            if file.name != "partition.metadata":
                shutil.copy(file, path / f"t-{index}")
    for name in LOG_DIR_FILES:
        file = path / name
        file.parent.mkdir(exist_ok=True)
        if name.startswith("__"):
            file.write_bytes(build_batch([LogRecord(5, b"k", b"\1\2\0x")]))


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Log directories by whether they were closed cleanly."""
    found = {}
    for is_clean in (True, False):
        found[is_clean] = tmp_path_factory.mktemp("template") / "log"
        make_template(found[is_clean], is_clean=is_clean)
    return found


def cluster_id_in(log_dir: Path) -> str:
    lines = (log_dir / "meta.properties").read_text().splitlines()
    return next(line for line in lines if line.startswith("cluster.id=")).partition("=")[2]


def assert_serves(log_dir: Path, caplog: pytest.LogCaptureFixture, cluster_id: str) -> None:
    """Two lives of a broker, in which what is sound is served and nothing is a bug.

    It is told the id of the cluster: where all files are damaged, none contains it.
    """
    for _ in range(2):
        with RunningBroker(log_dir, {"horolog.cluster.id": cluster_id}) as broker:
            assert broker.produce("other", BATCH).error_code == 0
            assert broker.count("other") >= 15
            assert broker.produce("t", BATCH, SOUND).error_code == 0
            assert broker.count("t", SOUND) >= 10
            with broker.connect() as connection:
                ask_everything(connection)
            broker.run(broker.service.background_tasks.run_retention())
            broker.run(broker.service.background_tasks.checkpoint())
        bugs = [record for record in caplog.records if record.exc_info]
        assert not bugs, bugs[0]
        assert "not closed cleanly" not in caplog.text
        caplog.clear()


def ask_everything(connection: RawConnection) -> None:
    """Requests about every partition, sound or not: each is answered."""
    everything = range(SOUND + 1)
    batch = build_batch([LogRecord(-1, None, b"v")])
    for index in everything:
        connection.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {index: batch}))
    for offset in (0, 1, 9, 10, 13, 15):
        connection.ask(ApiKey.FETCH, 12, **fetch_fields("t", dict.fromkeys(everything, offset)))
    for timestamp in (-1, -2, -3, 0, 1 << 50):
        partitions = [{"partition_index": index, "timestamp": timestamp} for index in everything]
        connection.ask(ApiKey.LIST_OFFSETS, 7, topics=[{"name": "t", "partitions": partitions}])
    epochs = [
        {"partition": index, "leader_epoch": epoch} for index in everything for epoch in (0, 1)
    ]
    topics = [{"topic": "t", "partitions": epochs}]
    connection.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, topics=topics)
    connection.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
    connection.ask(ApiKey.METADATA, 12, topics=None)


def damage(path: Path, how: str) -> None:
    if not path.exists():
        path.write_bytes(ANYTHING)
    DAMAGES[how](path)


@pytest.mark.parametrize("turn", some_of(range(len(DAMAGES)), 9))
def test_damage_in_every_file_at_once_stops_only_what_it_is_in(
    tmp_path: Path, templates: dict[bool, Path], caplog: pytest.LogCaptureFixture, turn: int
) -> None:
    """All kinds of damage in each turn, and each to another file than in the turns before."""
    log_dir = tmp_path / "outer" / "log"
    shutil.copytree(templates[turn % 2 == 0], log_dir)
    files = [*LOG_DIR_FILES, *(f"t-{n}/{name}" for n, name in enumerate(PARTITION_FILES))]
    assert len(files) >= len(DAMAGES)
    for index, name in enumerate(files, turn):
        damage(log_dir / name, list(DAMAGES)[index % len(DAMAGES)])
    outside = {path: path.read_bytes() for path in tmp_path.rglob("outside-*")}
    assert outside
    assert_serves(log_dir, caplog, cluster_id_in(templates[turn % 2 == 0]))
    assert {path: path.read_bytes() for path in outside} == outside


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LOG_DIR_FILES, *(f"t-0/{name}" for name in PARTITION_FILES)])
def test_damage_in_one_file_stops_only_what_it_is_in(
    tmp_path: Path, templates: dict[bool, Path], caplog: pytest.LogCaptureFixture, name: str
) -> None:
    for how, is_clean in product(DAMAGES, (True, False)):
        log_dir = tmp_path / f"{how}-{is_clean}" / "log"
        shutil.copytree(templates[is_clean], log_dir)
        damage(log_dir / name, how)
        assert_serves(log_dir, caplog, cluster_id_in(templates[is_clean]))
        shutil.rmtree(log_dir.parent)


@pytest.mark.parametrize("how", ["directory", "fifo", "link-outside", "link-to-itself"])
def test_a_lock_that_is_no_file_is_refused_in_a_sentence(tmp_path: Path, how: str) -> None:
    """Whether another broker runs here cannot be known."""
    lock = tmp_path / "outer" / "log" / ".lock"
    lock.parent.mkdir(parents=True)
    lock.write_bytes(b"")
    DAMAGES[how](lock)
    with pytest.raises(StorageFailed, match=r"\.lock"):
        RunningBroker(lock.parent)


# --- offsets at the edge of their type ------------------------------------------------


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("is_empty", [True, False])
def test_segments_that_begin_near_the_last_offset_stop_only_their_partition(
    tmp_path: Path,
    templates: dict[bool, Path],
    caplog: pytest.LogCaptureFixture,
    is_clean: bool,
    is_empty: bool,
) -> None:
    log_dir = tmp_path / "log"
    shutil.copytree(templates[is_clean], log_dir)
    bases = [1 << 62, 1 << 63, 10**20 - 1]
    bases += [(1 << 63) - less for less in (1, 3, 1 << 31, (1 << 32) + 1, (1 << 32) + 20)]
    for index, base in enumerate(bases):
        content = b"" if is_empty else (log_dir / "t-0" / PARTITION_FILES[0]).read_bytes()
        (log_dir / f"t-{index}" / f"{base:020d}.log").write_bytes(content)
    assert_serves(log_dir, caplog, cluster_id_in(templates[is_clean]))


@pytest.mark.parametrize("is_clean", [True, False])
def test_batches_near_the_last_offset_stop_only_their_partition(
    tmp_path: Path,
    templates: dict[bool, Path],
    caplog: pytest.LogCaptureFixture,
    is_clean: bool,
) -> None:
    """The checksum of a batch does not cover its base offset."""
    log_dir = tmp_path / "log"
    shutil.copytree(templates[is_clean], log_dir)
    for index, base in enumerate((1 << 31, 1 << 40, 1 << 62, (1 << 63) - 2, (1 << 63) - 1, -1)):
        for name in PARTITION_FILES[:9]:
            path = log_dir / f"t-{index}" / name
            if name.endswith(".log"):
                path.write_bytes(struct.pack(">q", base) + path.read_bytes()[8:])
            else:
                path.unlink(missing_ok=True)
    assert_serves(log_dir, caplog, cluster_id_in(templates[is_clean]))


# --- a damaged store ------------------------------------------------------------------


def expire(broker: RunningBroker) -> int:
    return len(broker.run(broker.service.background_tasks.run_retention()))


@pytest.mark.parametrize("adopt_defaults", ["false", "true"])
@pytest.mark.parametrize("how", ["empty", "cut", "nul-bytes", "few-bits-of-rows"])
def test_what_a_damaged_store_said_is_not_guessed(
    make_broker: MakeBroker, tmp_path: Path, how: str, adopt_defaults: str
) -> None:
    """Records of 1970 that were to be kept for ever are kept.

    A log that is cut would look like one whose last batch a kill has torn, but for the mark of the
    clean stop.
    """
    broker = make_broker()
    broker.create_topic("kept", retention_ms="-1", message_timestamp_before_max_ms=str(1 << 60))
    batch = build_batch([LogRecord(5, None, b"v")])
    broker.ask(ApiKey.PRODUCE, 9, **produce_fields("kept", {0: batch}))
    broker.stop()
    (path,) = metadata_dir(broker.log_dir).glob("*.log")
    if how == "few-bits-of-rows":
        data = path.read_bytes()
        path.write_bytes(data.replace(b"retention.ms\x03-1", b"retention.ms\x03+1"))
        assert path.read_bytes() != data
    else:
        DAMAGES[how](path)
    for _ in range(2):
        again = make_broker(log_dir=broker.log_dir, horolog_adopt_defaults=adopt_defaults)
        assert (expire(again), again.count("kept")) == (0, 1)
        answer = again.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["kept"])
        assert answer.responses[0].error_code == 44
        again.stop()
    again = make_broker(log_dir=broker.log_dir, horolog_adopt_defaults=adopt_defaults)
    set_retention(again, "1000")
    assert expire(again) == 1
    again.restart()
    assert not again.broker.topics.named("kept").adopted


def set_retention(broker: RunningBroker, value: str) -> None:
    change = {"name": "retention.ms", "config_operation": 0, "value": value}
    resource = {"resource_type": 2, "resource_name": "kept", "configs": [change]}
    answer = broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    assert answer.responses[0].error_code == 0, answer


@pytest.mark.parametrize(
    ("scope", "resource", "name", "value", "expires"),
    [
        ("topic", "kept", "retention.ms", "for ever", False),
        ("topic", "kept", "setting.of.a.later.version", "1", True),
        ("broker", "", "log.retention.ms", "for ever", False),
        ("broker", "1", "setting.of.a.later.version", "1", True),
    ],
)
def test_a_stored_setting_that_makes_no_sense_stops_no_start_and_expires_nothing(
    make_broker: MakeBroker,
    scope: str,
    resource: str,
    name: str,
    value: str,
    expires: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = make_broker()
    broker.create_topic("kept", message_timestamp_before_max_ms=str(1 << 60))
    batch = build_batch([LogRecord(5, None, b"v")])
    broker.ask(ApiKey.PRODUCE, 9, **produce_fields("kept", {0: batch}))
    broker.stop()
    kind = TOPIC if scope == "topic" else BROKER
    append_records(broker.log_dir, Config(kind, resource, name, value))
    again = make_broker(log_dir=broker.log_dir)
    assert f"A stored setting of {scope}" in caplog.text
    assert name in caplog.text
    assert expire(again) == (1 if expires else 0)
    if scope == "topic" and not expires:
        set_retention(again, "1000")
        assert expire(again) == 1
    again.restart()
    assert described(again) == {"kept": {0: 0}}


def test_a_store_that_names_a_directory_outside_makes_none(
    make_broker: MakeBroker, stopped: Path
) -> None:
    """Checksums are no secret: names are checked all the same."""
    for name in ("../../evil", "/tmp/evil", "", ".", "a/b", "a\0b"):
        topic_id = uuid4()
        partition = PartitionRecord(0, topic_id, (1,), (1,), (), (), 1, 0, 0, 0, (uuid4(),))
        append_records(stopped, TopicRecord(name, topic_id), partition)
    around = [*stopped.parent.iterdir()]
    broker = make_broker(log_dir=stopped)
    assert described(broker) == {"d": {0: 0, 1: 0}, "other": {0: 0}}
    assert [*stopped.parent.iterdir()] == around
    for outside in (stopped.parent.parent, Path("/tmp")):
        assert not [path for path in outside.iterdir() if path.name.startswith("evil")]
