"""A broker that goes on as the Kafka node that wrote its directory (docs/moving-in-and-out.md)."""

import errno
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from batches import batch
from examples import IS_THOROUGH
from faultyfiles import FaultyFiles, Killed
from running_broker import TOPIC, RunningBroker

from golden import copy_directory
from horolog.broker import opening
from horolog.clock import ManualClock
from horolog.config import Settings
from horolog.errors import Misconfigured, StorageFailed
from horolog.groups import Committer, OffsetRow
from horolog.metadata import KafkaForm, MetadataLog, Topic, state_dir_beside, state_dir_of
from horolog.record import iter_headers
from horolog.schemas.metadata import Supported
from horolog.storage import Files, names, read_epochs

NOW_MS = 1_796_000_000_000

Start = Callable[..., RunningBroker]


@pytest.fixture
def kafkas(tmp_path: Path) -> Path:
    """A directory that a single Kafka node has left."""
    copy_directory("clean", tmp_path / "kafka")
    return tmp_path / "kafka"


@pytest.fixture
def start(kafkas: Path) -> Iterator[Start]:
    running: list[RunningBroker] = []

    def start_one(**settings: str) -> RunningBroker:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        broker = RunningBroker(kafkas, given, ManualClock(NOW_MS))
        running.append(broker)
        return broker

    yield start_one
    for broker in running:
        broker.stop()


def found(broker: RunningBroker, name: str) -> Topic:
    topic: Topic | None = broker.broker.topics.find(name)
    assert topic is not None
    return topic


def adopted(broker: RunningBroker) -> set[str]:
    return {topic.name for topic in broker.broker.topics if topic.adopted}


def contents(path: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in sorted(path.rglob("*"))
        if each.is_file() and each.name != names.LOCK
    }


def test_topics_and_settings_are_in_force_also_after_later_starts(start: Start) -> None:
    broker = start(horolog_take_over="true")
    for _ in range(2):
        assert adopted(broker) == set()
        assert found(broker, "index-full").overrides["index.interval.bytes"] == "0"
        assert not broker.log("index-full").retention_exempt
        assert "__cluster_metadata" not in broker.broker.topics
        broker.restart(horolog_take_over="false")
    assert state_dir_of(broker.log_dir) == broker.log_dir
    assert not state_dir_beside(broker.log_dir).exists()


def test_a_directory_that_is_taken_over_is_named_once_with_its_kafka(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    start().stop()
    assert not any("is taken over" in message for message in caplog.messages)
    broker = start(horolog_take_over="true")
    (line,) = (message for message in caplog.messages if "is taken over" in message)
    assert str(broker.log_dir) in line
    assert f"node 1 of cluster {broker.broker.cluster_id}" in line
    assert "with its 33 topics and metadata.version 33" in line
    caplog.clear()
    broker.restart()
    assert not any("is taken over" in message for message in caplog.messages)


def test_what_was_made_while_the_directory_was_kafkas_is_carried(start: Start) -> None:
    broker = start()
    assert "several" in adopted(broker)
    broker.create_topic("made", 2, retention_ms="12345")
    made = found(broker, "made").topic_id
    broker.restart(horolog_take_over="true")
    for _ in range(2):
        topic = found(broker, "made")
        assert (topic.topic_id, topic.adopted, topic.overrides) == (
            *(made, False),
            {"retention.ms": "12345"},
        )
        assert adopted(broker) == set()
        broker.restart(horolog_take_over="false", crash=True)


def test_a_topic_that_was_deleted_beside_kafka_does_not_come_back(start: Start) -> None:
    broker = start()
    assert broker.alter("several", kind=TOPIC, retention_ms="-1").error_code == 0
    broker.client.delete_topics(["several"])
    broker.restart(horolog_take_over="true")
    for _ in range(2):
        assert broker.broker.topics.find("several") is None
        assert len(broker.broker.topics) > 1
        broker.restart(horolog_take_over="false", crash=True)


def test_offsets_that_groups_committed_with_kafka_and_beside_it_count(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    broker = start()
    topic = found(broker, "several")
    made = OffsetRow("beside", "several", 0, 3, -1, "", 1_000, None, topic.topic_id)
    alone = Committer("", None, -1)
    broker.run(broker.service.broker.groups.commit("beside", alone, lambda: [made]))
    assert [*state_dir_of(broker.log_dir).glob("__consumer_offsets-*")]
    caplog.clear()
    broker.restart(horolog_take_over="true")
    for _ in range(2):
        offsets = broker.service.broker.groups.offsets
        assert offsets.of_group("golden-group")
        assert [row.committed for row in offsets.of_group("beside").values()] == [3]
        assert not state_dir_beside(broker.log_dir).exists()
        broker.restart(horolog_take_over="false", crash=True)
    assert not any("not carried over" in message for message in caplog.messages)


def test_directories_without_a_topic_id_get_it(start: Start, kafkas: Path) -> None:
    """Otherwise a Kafka sets them aside as strays."""
    ids = {path: path.read_bytes() for path in sorted(kafkas.glob("several-*/partition.metadata"))}
    for path in ids:
        path.unlink()
    start().stop()
    assert not any(path.exists() for path in ids)  # beside its metadata they stay as they are
    start(horolog_take_over="true")
    assert {path: path.read_bytes() for path in ids} == ids


def test_adopted_directories_get_the_id_that_the_metadata_has(start: Start, kafkas: Path) -> None:
    broker = start(horolog_take_over="true")
    broker.stop()
    (kafkas / "several-0").rename(kafkas / "copied-0")
    (kafkas / "copied-0" / "partition.metadata").unlink()
    broker = start()
    topic = found(broker, "copied")
    assert topic.adopted
    text = (kafkas / "copied-0" / "partition.metadata").read_text()
    broker.stop()
    broker = start()
    assert found(broker, "copied").topic_id == topic.topic_id
    assert (kafkas / "copied-0" / "partition.metadata").read_text() == text


def epochs_of(kafkas: Path) -> dict[tuple[str, int], int]:
    """The leader epochs in the records of a Kafka's metadata."""
    topics = KafkaForm(Files(read_only=True), str(kafkas)).replay().image.topics
    return {
        (name, index): its.leader_epoch
        for name, topic in topics.items()
        for index, its in topic.partitions.items()
    }


def led_in(broker: RunningBroker) -> dict[tuple[str, int], int]:
    """The leader epochs of all partitions, as clients see them."""
    return {
        (name, index): its.leader_epoch
        for name, topic in broker.client.metadata().topics.items()
        for index, its in topic.partitions.items()
        if its.leader_epoch is not None
    }


def test_partitions_are_led_in_an_epoch_behind_that_of_their_kafka(
    start: Start, kafkas: Path
) -> None:
    """An epoch has one leader: copies of a partition are compared by epochs and their ends."""
    recorded = epochs_of(kafkas)
    broker = start(horolog_take_over="true")
    led = led_in(broker)
    assert {key: led[key] for key in recorded} == {key: recorded[key] + 1 for key in recorded}
    assert epochs_of(kafkas) == led  # in the metadata before any batch
    # Kafka raised it when it stopped, without a batch.
    assert recorded["several", 0] > broker.log("several").epochs.latest
    offset = broker.append("several", batch(NOW_MS))
    (_, header), *_ = iter_headers(broker.fetch("several", offset).records)
    assert header.leader_epoch == led["several", 0]
    for take_over in ("false", "true"):  # only another broker is succeeded
        broker.restart(horolog_take_over=take_over)
        assert led_in(broker) == led
    for _ in range(2):  # whether anything was appended between two kills or not
        before = led
        broker.restart(crash=True)
        led = led_in(broker)
        for name in ("several", "index-full"):
            assert led[name, 0] > before[name, 0], name
        assert all(led[key] >= before[key] for key in led)


def test_partitions_that_a_kafka_led_since_are_led_in_a_later_epoch(
    start: Start, kafkas: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start(horolog_take_over="true").stop()
    log = MetadataLog.open(Files(), str(kafkas), node_id=1)
    theirs = log.image.brokers[1]._replace(features=(Supported("metadata.version", 7, 30),))
    log.append([theirs], NOW_MS)  # as a Kafka registers at its start
    log.close()
    recorded = epochs_of(kafkas)
    caplog.clear()
    broker = start()
    led = led_in(broker)
    assert {key: led[key] for key in recorded} == {key: recorded[key] + 1 for key in recorded}
    broker.restart()
    assert led_in(broker) == led
    assert sum("another broker has served" in message for message in caplog.messages) == 1


def marked(log_dir: Path) -> int:
    """The broker epoch that the marker of a clean stop names."""
    marker = json.loads((log_dir / names.CLEAN_SHUTDOWN).read_bytes())
    assert marker["version"] == 0
    return int(marker["brokerEpoch"])


def test_the_marker_of_a_clean_stop_names_a_kafkas_epoch_while_its_records_are_the_same(
    start: Start, kafkas: Path
) -> None:
    """Its controller counts a replica as whole that was stopped in the epoch of its broker."""
    epoch = marked(kafkas)
    assert epoch >= 0
    broker = start()
    broker.restart()
    broker.stop()
    assert marked(kafkas) == epoch
    broker = start()
    broker.append("several", batch(NOW_MS))
    broker.stop()
    assert marked(kafkas) == -1


def test_the_marker_names_no_epoch_once_a_partition_of_a_kafkas_is_deleted(
    start: Start, kafkas: Path
) -> None:
    broker = start()
    assert broker.alter("several", kind=TOPIC, retention_ms="-1").error_code == 0
    broker.client.delete_topics(["several"])
    broker.stop()
    assert marked(kafkas) == -1


def test_a_directory_of_several_nodes_is_named(
    start: Start, kafkas: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = "of a cluster of several nodes"
    start().stop()
    assert said not in caplog.text
    log = MetadataLog.open(Files(), str(kafkas), node_id=1)
    log.append([log.image.brokers[1]._replace(broker_id=7)], NOW_MS)
    log.close()
    start().stop()
    assert f"{said} (1, 7)" in caplog.text


def test_a_partition_whose_directory_is_gone_is_led_in_a_later_epoch(
    start: Start, kafkas: Path
) -> None:
    """Otherwise a client takes the new records for those that it has read."""
    broker = start(horolog_take_over="true")
    before = led_in(broker)["several", 0]
    broker.stop()
    shutil.rmtree(kafkas / "several-0")
    broker = start()
    assert broker.append("several", batch(NOW_MS)) == 0
    assert led_in(broker)["several", 0] == before + 1


def test_a_topic_that_was_made_again_has_epochs_of_its_own(start: Start, kafkas: Path) -> None:
    broker = start(horolog_take_over="true")
    assert led_in(broker)["several", 0] > 0
    broker.client.delete_topics(["several"])
    broker.create_topic("several", 1)
    assert led_in(broker)["several", 0] == 0
    broker.restart(horolog_take_over="false")
    assert led_in(broker)["several", 0] == 0


def test_beside_its_metadata_epochs_of_a_kafka_stay_those_of_its_logs(
    start: Start, kafkas: Path
) -> None:
    """That Kafka leads in a later one when it is back, and clients would doubt a larger one."""
    recorded = epochs_of(kafkas)
    led = led_in(start())
    for topic, index in recorded.keys() & led:
        found = read_epochs(Files(), f"{kafkas}/{topic}-{index}/{names.LEADER_EPOCHS}")
        assert led[topic, index] == max((each.epoch for each in found), default=0), topic
    assert any(led[key] < recorded[key] for key in recorded.keys() & led)


def test_a_refusal_leaves_everything_as_it_is(start: Start, kafkas: Path) -> None:
    before = contents(kafkas)
    with pytest.raises(Misconfigured, match=r"it is of node 1, and this broker is node 2"):
        start(horolog_take_over="true", node_id="2")
    assert contents(kafkas) == before


def opened(path: Path, files: FaultyFiles | None = None, *, take_over: bool) -> list[Topic]:
    """The topics for clients of a start that ends with a kill after it, or within `files`."""
    given = {"log.dirs": str(path), "horolog.take.over": str(take_over).lower()}
    with pytest.MonkeyPatch.context() as patched:
        if files is not None:
            patched.setattr(opening, "Files", lambda **_: files)
        storage = opening.open_storage(Settings(given), ManualClock(NOW_MS), 100)
    storage.close()
    return [topic for topic in storage.topics if topic.name not in names.SERVED_INTERNAL]


def copied(log_dir: Path, target: Path) -> Path:
    """A copy of a log directory with its state directory."""
    shutil.copytree(state_dir_beside(log_dir), state_dir_beside(target))
    return Path(shutil.copytree(log_dir, target))


def with_little_beside(path: Path) -> None:
    """Leave few partitions of Kafka's, and what was made here beside its metadata."""
    broker = RunningBroker(path, None, ManualClock(NOW_MS))
    broker.create_topic("made", 2, retention_ms="12345")
    broker.stop()


@pytest.mark.parametrize("fault", [Killed(), OSError(errno.ENOSPC, "No space left on device")])
def test_a_start_that_ends_at_any_step_can_be_done_again(
    fault: Killed | OSError, kafkas: Path, tmp_path: Path
) -> None:
    with_little_beside(kafkas)
    whole = FaultyFiles(None)
    expected = opened(copied(kafkas, tmp_path / "whole"), whole, take_over=True)
    assert not any(topic.adopted for topic in expected)
    assert whole.count > 10
    every = 1 if IS_THOROUGH else whole.count // 3
    for step in range(0, whole.count, every):
        path = copied(kafkas, tmp_path / "ended")
        files = FaultyFiles(step, fault, for_ops=1 if isinstance(fault, Killed) else 1 << 30)
        with suppress(Killed, StorageFailed):
            opened(path, files, take_over=True)
        was_taken = state_dir_of(path) == path
        beside = opened(path, take_over=False)
        assert {topic.adopted for topic in beside if topic.name != "made"} == {not was_taken}, step
        assert {topic.name: topic.topic_id for topic in beside} == {
            topic.name: topic.topic_id for topic in expected
        }
        assert opened(path, take_over=True) == expected, step
        shutil.rmtree(path)
        shutil.rmtree(state_dir_beside(path), ignore_errors=True)
