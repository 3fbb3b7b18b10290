"""Files of a broker of a cluster are read up to the high watermark that it has checkpointed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from command_runner import run_command
from storelogs import NOW, TOPIC_ID, UnsyncedFiles, append, open_dir

from horolog.config import BrokerConfig, TopicConfig
from horolog.errors import Misconfigured
from horolog.metadata import (
    PROPERTIES,
    KafkaForm,
    check_store,
    forget_known,
    refuse_directory_of_cluster,
    refuse_replicas,
    verification_of,
)
from horolog.record import LogRecord, build_batch
from horolog.schemas.metadata import PartitionRecord, RegisterBroker, TopicRecord, encode
from horolog.sources import scan
from horolog.storage import Files, Finding, Log, LogDir, Severity, TopicPartition
from horolog.storage.verify import find_target

PARTITION = TopicPartition("events", 3)
ASSIGNED = {PARTITION: TOPIC_ID}
EVERYTHING = {"uncommitted": "true"}
NO_SETTINGS: Mapping[str, str] = {}


@pytest.fixture(autouse=True)
def _nothing_is_known_before() -> None:
    forget_known()


@contextmanager
def leader(path: Path, config: TopicConfig | None = None, epoch: int = 5) -> Iterator[Log]:
    """A log of five records that leads; its directory is left as a kill leaves it."""
    log_dir = open_dir(path, config, assigned=ASSIGNED)
    log = log_dir.create(*PARTITION, TOPIC_ID, config or TopicConfig(), NOW)
    log.become_leader(epoch, is_replicated=True)
    for _ in range(5):
        append(log, NOW)
    yield log
    log_dir.checkpoint_replicas()
    log_dir.close(clean=False)


def offsets(path: Path, settings: Mapping[str, str] = NO_SETTINGS) -> list[int]:
    return [
        offset
        for table in scan(path, "events", settings=settings)
        for offset in table.column("offset").to_pylist()
    ]


@pytest.mark.parametrize("config", [TopicConfig(), TopicConfig(segment_bytes=200)])
def test_a_replica_ends_at_its_high_watermark(tmp_path: Path, config: TopicConfig) -> None:
    with leader(tmp_path, config) as log:
        log.move_high_watermark(3)
    assert offsets(tmp_path) == [0, 1, 2]
    assert offsets(tmp_path, EVERYTHING) == [0, 1, 2, 3, 4]


def test_a_replica_of_which_nothing_is_committed_is_empty(tmp_path: Path) -> None:
    with leader(tmp_path):
        pass
    assert offsets(tmp_path) == []
    assert offsets(tmp_path, EVERYTHING) == [0, 1, 2, 3, 4]


def test_a_segment_that_is_named_is_read_as_a_whole(tmp_path: Path) -> None:
    with leader(tmp_path):
        pass
    assert offsets(tmp_path / "events-3" / f"{0:020d}.log") == [0, 1, 2, 3, 4]


def alone(path: Path, properties: dict[str, str]) -> None:
    """A directory of a node alone that was killed a while after its last checkpoint."""
    log_dir = LogDir.open(
        path,
        broker_config=BrokerConfig(),
        topic_config=lambda topic: TopicConfig(),
        now_ms=NOW,
        files=UnsyncedFiles(),
        properties=properties,
    )
    log = log_dir.create(*PARTITION, TOPIC_ID, TopicConfig(), NOW)
    append(log, NOW)
    log_dir.checkpoint()
    append(log, NOW)
    log_dir.close(clean=False)


def describe(
    path: Path, topic_id: UUID, replicas: tuple[int, ...], brokers: tuple[int, ...] = ()
) -> None:
    """Write the metadata of a cluster into a log directory, anew."""
    shutil.rmtree(path / "__cluster_metadata-0", ignore_errors=True)
    form = KafkaForm(Files(), str(path))
    form.replay()
    record = PartitionRecord(3, topic_id, replicas, replicas, (), (), 1, 0, 5, 5)
    registered = [RegisterBroker(id_, False, UUID(int=id_), 7, (), ()) for id_ in brokers]
    records = [*registered, TopicRecord("events", topic_id), record]
    form.append([build_batch([LogRecord(NOW, None, encode(one)) for one in records])], NOW)


def test_a_directory_of_a_node_alone_is_read_to_its_end(tmp_path: Path) -> None:
    alone(tmp_path, PROPERTIES)
    assert offsets(tmp_path) == [0, 1]


def test_a_directory_beside_which_a_node_alone_has_its_state_is_read_to_its_end(
    tmp_path: Path,
) -> None:
    alone(tmp_path / "data", {})
    assert offsets(tmp_path / "data") == [0], "of whom it is cannot be told"
    (tmp_path / "data.horolog" / "__cluster_metadata-0").mkdir(parents=True)
    assert offsets(tmp_path / "data") == [0, 1]


@pytest.mark.parametrize(("replicas", "expected"), [((1,), [0, 1]), ((1, 2), [0])])
def test_a_partition_without_other_replicas_is_read_to_its_end(
    tmp_path: Path, replicas: tuple[int, ...], expected: list[int]
) -> None:
    alone(tmp_path, {})
    describe(tmp_path, TOPIC_ID, replicas)
    assert offsets(tmp_path) == expected


def test_directories_without_checkpoints_are_read_to_their_ends(tmp_path: Path) -> None:
    alone(tmp_path, {})
    (tmp_path / "replication-offset-checkpoint").unlink()
    assert offsets(tmp_path) == [0, 1]
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nother 0 0\n")
    assert offsets(tmp_path) == [0, 1], "it was copied here"


def test_a_reader_is_told_once_that_a_copy_without_metadata_may_end_early(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alone(tmp_path, {})
    for _ in range(2):
        assert offsets(tmp_path) == [0]
    (said,) = [it.message for it in caplog.records if "has no metadata" in it.message]
    assert str(tmp_path) in said
    assert "--uncommitted" in said
    caplog.clear()
    assert offsets(tmp_path, EVERYTHING) == [0, 1]
    describe(tmp_path, TOPIC_ID, (1, 2))
    forget_known()
    assert offsets(tmp_path) == [0]
    assert "has no metadata" not in caplog.text


def test_two_replicas_never_show_what_only_the_older_epoch_has(tmp_path: Path) -> None:
    with leader(tmp_path / "old") as log:
        log.move_high_watermark(5)
    with leader(tmp_path / "new") as log:
        log.truncate_to(3, NOW)
        log.move_high_watermark(3)
        log.become_leader(6, is_replicated=True)
    assert offsets(tmp_path / "*") == [0, 1, 2]
    assert offsets(tmp_path / "*", EVERYTHING) == [0, 1, 2]
    assert offsets(tmp_path / "old") == [0, 1, 2, 3, 4]


def test_another_topic_id_is_another_partition(tmp_path: Path) -> None:
    alone(tmp_path, {})
    describe(tmp_path, UUID(int=5), (1,))
    assert offsets(tmp_path) == [0], "nothing says that it has no other replica"


def test_the_check_of_a_directory_says_what_is_not_committed(tmp_path: Path) -> None:
    with leader(tmp_path) as log:
        log.move_high_watermark(3)
    describe(tmp_path, TOPIC_ID, (1, 2))
    (found,) = check_store(tmp_path)
    assert "Offsets 3 to 4 are not yet committed" in str(found)
    assert "adopts" not in str(found)


def test_the_files_of_a_replica_are_not_rewritten(tmp_path: Path) -> None:
    with leader(tmp_path):
        pass
    directories = [tmp_path / "events-3"]
    refuse_replicas(tmp_path, directories, "compact")
    describe(tmp_path, TOPIC_ID, (1, 2))
    forget_known()
    with pytest.raises(Misconfigured, match="elsewhere to compact it"):
        refuse_replicas(tmp_path, directories, "compact")


def test_a_replica_that_was_cut_or_made_anew_is_not_damaged(tmp_path: Path) -> None:
    """Of a log without other replicas the same says that records are lost."""
    with leader(tmp_path):
        pass
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (tmp_path / name).write_text("0\n1\nevents 3 9\n")
    target = find_target(tmp_path)

    def severities() -> set[Severity]:
        forget_known()
        steps = verification_of(target).steps()
        found = [step for step in steps if isinstance(step, Finding)]
        return {each.severity for each in found if "log ends before 5" in each.what}

    describe(tmp_path, TOPIC_ID, (1,))
    assert severities() == {Severity.DAMAGE}
    describe(tmp_path, TOPIC_ID, (1, 2))
    assert severities() == {Severity.NOTE}


def test_indexes_of_a_replica_are_rebuilt_and_its_log_stays(tmp_path: Path) -> None:
    """They are derived from the log, which no tool changes."""
    with leader(tmp_path):
        pass
    describe(tmp_path, TOPIC_ID, (1, 2))
    segment = tmp_path / "events-3" / f"{0:020d}.log"
    before = segment.read_bytes()
    segment.with_suffix(".index").write_bytes(b"wrong")
    run_command("log", "reindex", str(tmp_path))
    assert segment.read_bytes() == before
    assert segment.with_suffix(".index").read_bytes() != b"wrong"


def test_nothing_is_put_into_the_directory_of_a_broker_of_a_cluster(tmp_path: Path) -> None:
    refuse_directory_of_cluster(tmp_path / "new")
    describe(tmp_path, TOPIC_ID, (1,), brokers=(1,))
    refuse_directory_of_cluster(tmp_path)
    describe(tmp_path, TOPIC_ID, (1,), brokers=(1, 2))
    with pytest.raises(Misconfigured, match="is of a broker of a cluster"):
        refuse_directory_of_cluster(tmp_path)
