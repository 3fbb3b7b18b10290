"""A broker starts on whatever lies in its log directory, and serves all that is sound."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from raw_connection import RawConnection, fetch_fields, produce_fields
from running_broker import RunningBroker

from horolog.metadata.store import FILE_NAME, MetadataStore, TopicRow
from horolog.record.batch import iter_headers
from horolog.record.builder import Record, build_batch
from horolog.storage.files import Files
from horolog.storage.names import INTERNAL_TOPICS
from horolog.wire.api import ApiKey

MakeBroker = Callable[..., RunningBroker]


def produce(broker: RunningBroker, topic: str, partition: int = 0) -> int:
    """The error code."""
    batch = build_batch([Record(-1, None, b"v")])
    with RawConnection(broker.address) as connection:
        answer = connection.ask(ApiKey.PRODUCE, 9, **produce_fields(topic, {partition: batch}))
    return int(answer.responses[0].partition_responses[0].error_code)


def count(broker: RunningBroker, topic: str, partition: int = 0) -> int:
    with RawConnection(broker.address) as connection:
        answer = connection.ask(ApiKey.FETCH, 12, **fetch_fields(topic, {partition: 0}))
    found = answer.responses[0].partitions[0]
    assert found.error_code == 0, found
    return sum(header.records_count for _, header in iter_headers(found.records))


def described(broker: RunningBroker) -> dict[str, dict[int, int]]:
    """Error codes of all partitions, as Metadata has them."""
    with RawConnection(broker.address) as connection:
        topics = connection.ask(ApiKey.METADATA, 12, topics=None).topics
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
        assert produce(broker, topic, partition) == 0
    broker.stop()
    return broker.log_dir


def set_topics(log_dir: Path, *rows: TopicRow) -> None:
    store = MetadataStore(log_dir / FILE_NAME)
    for row in rows:
        store.put_topic(row)
    store.close()


def partitions_on_disk(log_dir: Path, topic: str) -> set[str]:
    return {path.name for path in log_dir.glob(f"{topic}-*")}


# --- rows and directories that belong to nothing --------------------------------------


@pytest.mark.parametrize("has_directories", [False, True])
def test_topics_with_reserved_names_do_not_stop_a_start(
    make_broker: MakeBroker, stopped: Path, has_directories: bool
) -> None:
    """As earlier versions let clients create them."""
    set_topics(stopped, *(TopicRow(name, uuid4(), 2) for name in INTERNAL_TOPICS))
    if has_directories:
        for name in INTERNAL_TOPICS:
            shutil.copytree(stopped / "d-0", stopped / f"{name}-0")
    before = {path.name for path in stopped.glob("__*")}
    for _ in range(2):
        broker = make_broker(log_dir=stopped)
        assert described(broker) == {"d": {0: 0, 1: 0}, "other": {0: 0}}
        assert count(broker, "d") == 1
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
    assert produce(broker, "d", 1) == 0
    broker.stop()
    assert partitions_on_disk(stopped, "d") == {"d-0", "d-1", stray.name}
    assert {path.name: path.read_bytes() for path in stray.iterdir()} == before


def test_a_directory_beyond_the_number_of_partitions_never_joins_the_topic(
    make_broker: MakeBroker, stopped: Path
) -> None:
    (stopped / "d-2").mkdir()
    broker = make_broker(log_dir=stopped)
    wanted = {"name": "d", "count": 3, "assignments": None}
    with RawConnection(broker.address) as connection:
        answer = connection.ask(
            ApiKey.CREATE_PARTITIONS, 3, topics=[wanted], timeout_ms=1000, validate_only=False
        )
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
    assert count(broker, "far", 2_147_483_647) == 1
    with RawConnection(broker.address) as connection:
        change = {"name": "retention.ms", "config_operation": 0, "value": "-1"}
        resource = {"resource_type": 2, "resource_name": "far", "configs": [change]}
        altered = connection.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
        )
        assert altered.responses[0].error_code == 0
        wanted = {"name": "far", "count": 5, "assignments": None}
        refused = connection.ask(
            ApiKey.CREATE_PARTITIONS, 3, topics=[wanted], timeout_ms=1000, validate_only=False
        )
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
    with RawConnection(broker.address) as connection:
        change = {"name": "retention.ms", "config_operation": 0, "value": "-1"}
        resource = {"resource_type": 2, "resource_name": "e", "configs": [change]}
        connection.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
        )
        wanted = {"name": "e", "count": 4, "assignments": None}
        grown = connection.ask(
            ApiKey.CREATE_PARTITIONS, 3, topics=[wanted], timeout_ms=1000, validate_only=False
        )
    assert grown.results[0].error_code == 0, grown
    broker.restart()
    assert described(broker)["e"] == dict.fromkeys(range(4), 0)
    assert [count(broker, "e", index) for index in range(4)] == [0, 1, 0, 1]


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
        assert (produce(broker, "d", 0), produce(broker, "d", 1)) == (0, 56)
        broker.stop()
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before


def test_an_offline_partition_is_deleted_with_its_topic_and_does_not_come_back(
    make_broker: MakeBroker, stopped: Path
) -> None:
    (log,) = (stopped / "d-1").glob("*.log")
    log.unlink()
    log.mkdir()
    broker = make_broker(log_dir=stopped)
    assert described(broker)["d"] == {0: 0, 1: 5}
    with RawConnection(broker.address) as connection:
        answer = connection.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["d"], timeout_ms=1000)
        assert answer.responses[0].error_code == 0
    broker.create_topic("d", partitions=2)
    assert (produce(broker, "d", 1), count(broker, "d", 1)) == (0, 1)
    broker.restart()
    assert described(broker) == {"d": {0: 0, 1: 0}, "other": {0: 0}}


def test_a_partition_that_cannot_be_created_at_start_is_offline(
    make_broker: MakeBroker, stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(stopped / "d-1")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Files, "_mkdir", full)
        broker = make_broker(log_dir=stopped)
        assert described(broker) == {"d": {0: 0, 1: 5}, "other": {0: 0}}
        broker.stop()
    broker = make_broker(log_dir=stopped)
    assert described(broker) == {"d": {0: 0, 1: 0}, "other": {0: 0}}
