"""What the checkpoints say of a partition counts for the topic that they were written for."""

from __future__ import annotations

import gc
from pathlib import Path
from uuid import UUID

import pytest
from storelogs import (
    NOW,
    TOPIC_ID,
    UnsyncedFiles,
    append,
    new_log,
    open_dir,
    partition_dir,
    records_in,
)

from horolog.config import TopicConfig
from horolog.errors import StorageFailed
from horolog.storage import Checkpointed, CheckpointId, Log, LogDir, TopicPartition

KEY = TopicPartition("events", 3)
OTHER_ID = UUID(int=7)
STARTS, POINTS, HIGH = (
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)
IDS = "horolog-checkpoint-ids"
CONFIG = TopicConfig()


def filled(log_dir: LogDir, topic_id: UUID = TOPIC_ID, count: int = 10) -> Log:
    log = log_dir.create(*KEY, topic_id, CONFIG, NOW)
    for _ in range(count):
        append(log, NOW)
    return log


def offsets_in(log: Log) -> list[int]:
    return [record.offset or 0 for record in records_in(log)]


def lines(path: Path, name: str) -> list[str]:
    text = (path / name).read_text() if (path / name).exists() else "0\n0\n"
    return [line for line in text.splitlines()[2:] if line.startswith("events ")]


def test_deletion_removes_the_lines_of_the_partition(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    log = filled(log_dir)
    log.flush()
    log.delete_records(5)
    log_dir.checkpoint()
    assert all(lines(tmp_path, name) for name in (STARTS, POINTS, HIGH, IDS))
    log_dir.delete([KEY], 0)
    assert not any(lines(tmp_path, name) for name in (STARTS, POINTS, HIGH, IDS))
    log_dir.close(clean=False)


def test_lines_of_absent_partitions_are_removed_at_a_start(tmp_path: Path) -> None:
    open_dir(tmp_path).close()
    for name in (STARTS, POINTS, HIGH):
        (tmp_path / name).write_text("0\n2\nevents 3 5\n__consumer_offsets 0 9\n")
    (tmp_path / "__consumer_offsets-0").mkdir()
    log_dir = open_dir(tmp_path)
    for name in (STARTS, POINTS, HIGH):
        assert (tmp_path / name).read_text() == "0\n1\n__consumer_offsets 0 9\n"
    log = filled(log_dir)
    assert (log.log_start_offset, log.recovery_point) == (0, 0)
    log_dir.close(clean=False)
    log_dir = open_dir(tmp_path)
    assert offsets_in(log_dir.logs[KEY]) == list(range(10))
    log_dir.close(clean=False)


def test_a_partition_is_created_only_when_lines_of_its_name_are_gone(tmp_path: Path) -> None:
    """The disk refuses the checkpoints while the topic is deleted."""
    log_dir = open_dir(tmp_path)
    filled(log_dir, count=500).delete_records(400)
    log_dir.checkpoint()
    (tmp_path / f"{STARTS}.tmp").mkdir()
    log_dir.delete([KEY], 0)
    assert KEY not in log_dir.logs
    assert lines(tmp_path, STARTS) == ["events 3 400"]
    with pytest.raises(StorageFailed):
        log_dir.create(*KEY, OTHER_ID, CONFIG, NOW)
    assert not partition_dir(tmp_path).exists()
    (tmp_path / f"{STARTS}.tmp").rmdir()
    filled(log_dir, OTHER_ID, 450)
    assert lines(tmp_path, STARTS) == []
    log_dir.close(clean=False)
    log_dir = open_dir(tmp_path)
    assert len(offsets_in(log_dir.logs[KEY])) == 450
    log_dir.close(clean=False)


def test_a_checkpoint_that_began_before_a_deletion_leaves_no_line(tmp_path: Path) -> None:
    """It has collected the line and writes it while the topic is deleted and created again."""

    class DeletesMeanwhile(UnsyncedFiles):
        deleted = True

        def os_rename(self, source: str, target: str) -> None:
            super().os_rename(source, target)
            if target.endswith(POINTS) and not self.deleted:
                self.deleted = True
                log_dir.logs.pop(KEY).abandon()
                super().os_rename(str(partition_dir(tmp_path)), str(tmp_path / "elsewhere"))

    files = DeletesMeanwhile()
    log_dir = open_dir(tmp_path, files=files)
    filled(log_dir).delete_records(5)
    files.deleted = False
    log_dir.checkpoint()
    assert lines(tmp_path, POINTS) == ["events 3 0"], "it was collected before"
    assert lines(tmp_path, STARTS) == []
    filled(log_dir, OTHER_ID)
    assert lines(tmp_path, POINTS) == []
    log_dir.close(clean=False)


def test_the_log_start_outlives_kafkas_file(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    filled(log_dir).delete_records(5)
    log_dir.checkpoint_starts()
    log_dir.close(clean=False)
    (tmp_path / STARTS).unlink()
    log_dir = open_dir(tmp_path)
    assert offsets_in(log_dir.logs[KEY]) == [5, 6, 7, 8, 9]
    log_dir.close(clean=False)


def test_a_log_start_that_kafka_moved_forward_counts(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    filled(log_dir).delete_records(5)
    log_dir.close()
    (tmp_path / STARTS).write_text("0\n1\nevents 3 8\n")
    log_dir = open_dir(tmp_path)
    assert offsets_in(log_dir.logs[KEY]) == [8, 9]
    log_dir.close(clean=False)


@pytest.mark.parametrize("by_kafka", [True, False])
@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_lines_of_another_topic_id_do_not_count(tmp_path: Path, stop: str, by_kafka: bool) -> None:
    """The partition's directory was replaced while no broker ran.

    A Kafka that is given the directory may know the topic by another id, and writes its lines.
    """
    with new_log(tmp_path / "other") as log:
        log_dir = open_dir(tmp_path / "ours")
        mine = filled(log_dir, OTHER_ID)
        mine.flush()
        mine.delete_records(5)
        log_dir.checkpoint()
        log_dir.close(clean=stop == "clean")
        for _ in range(8):
            append(log, NOW)
    if by_kafka:
        (tmp_path / "ours" / STARTS).write_text("0\n1\nevents 3 5\n")
    partition_dir(tmp_path / "ours").rename(tmp_path / "mine")
    partition_dir(tmp_path / "other").rename(partition_dir(tmp_path / "ours"))
    log_dir = open_dir(tmp_path / "ours")
    log = log_dir.logs[KEY]
    assert offsets_in(log) == list(range(5 if by_kafka else 0, 8))
    assert log.topic_id == TOPIC_ID
    log_dir.checkpoint()
    assert [line.split()[-1] for line in lines(tmp_path / "ours", IDS)] == [
        "5" if by_kafka else "0"
    ]
    log_dir.close(clean=False)


@pytest.mark.parametrize(
    ("topic_id", "is_ours", "counts"),
    [
        (TOPIC_ID, True, Checkpointed(9, 5, CheckpointId(TOPIC_ID, 5), is_ours=True)),
        (OTHER_ID, True, Checkpointed()),
        (OTHER_ID, False, Checkpointed(None, 5)),
        (None, True, Checkpointed(9, 5, is_ours=True)),
    ],
)
def test_what_counts_for_a_topic_id(
    topic_id: UUID | None, is_ours: bool, counts: Checkpointed
) -> None:
    found = Checkpointed(9, 5, CheckpointId(TOPIC_ID, 5), is_ours)
    assert found.for_topic(topic_id) == counts


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"0",
        b"1\n1\nevents 3 x 5\n",
        b"0\n1\nevents 3 5\n",
        b"0\n1\nevents 3 short 5\n",
        b"0\n1\nevents -3 bw8_Tp0eT2uPXTobW3-cIQ 5\n",
        b"0\n1\nevents 3 bw8_Tp0eT2uPXTobW3-cIQ -5\n",
        b"0\n1\nevents 3 bw8_Tp0eT2uPXTobW3-cIQ 9223372036854775807\n",
        b"0\n1\nevents 3 bw8_Tp0eT2uPXTobW3-cIQ " + b"9" * 5000 + b"\n",
        "0\n1\nevents 3 bw8_Tp0eT2uPXTobW3-cIQ \u0665\n".encode(),
        b"\xff\x00" * 300,
    ],
)
def test_damaged_ids_count_as_none(tmp_path: Path, content: bytes) -> None:
    log_dir = open_dir(tmp_path)
    filled(log_dir).delete_records(5)
    log_dir.close()
    (tmp_path / IDS).write_bytes(content)
    log_dir = open_dir(tmp_path)
    assert offsets_in(log_dir.logs[KEY]) == [5, 6, 7, 8, 9], "Kafka's line is within the log"
    log_dir.close(clean=False)


def test_one_damaged_line_spares_the_others(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    filled(log_dir).delete_records(5)
    log_dir.close()
    text = (tmp_path / IDS).read_text()
    (tmp_path / IDS).write_text(text + "nonsense\n")
    (tmp_path / STARTS).unlink()
    log_dir = open_dir(tmp_path)
    assert log_dir.logs[KEY].log_start_offset == 5
    log_dir.close(clean=False)


def test_adopted_partitions_have_no_entry(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        append(log, NOW)
    log_dir = open_dir(tmp_path, ours=False)
    log_dir.checkpoint()
    assert lines(tmp_path, POINTS)
    assert not lines(tmp_path, IDS)
    log_dir.close(clean=False)


def test_a_topic_of_ours_gets_its_missing_partition_metadata(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        append(log, NOW)
    file = partition_dir(tmp_path) / "partition.metadata"
    whole = file.read_bytes()
    for content in (None, b"", b"version: 0\ntopic_id: nonsense"):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        log_dir = open_dir(tmp_path, topic_id=TOPIC_ID)
        assert log_dir.logs[KEY].topic_id == TOPIC_ID
        assert file.read_bytes() == whole
        log_dir.close(clean=False)
    file.unlink()
    log_dir = open_dir(tmp_path, topic_id=TOPIC_ID, ours=False)
    assert not file.exists(), "nothing is written into what is only adopted"
    log_dir.close(clean=False)


def test_deletion_removes_the_lines_of_a_partition_that_could_not_be_opened(
    tmp_path: Path,
) -> None:
    log_dir = open_dir(tmp_path)
    filled(log_dir).delete_records(5)
    log_dir.checkpoint()
    log_dir.close(clean=False)
    (partition_dir(tmp_path) / "00000000000000000000.log").unlink()
    (partition_dir(tmp_path) / "00000000000000000000.log").mkdir()
    log_dir = open_dir(tmp_path)
    assert KEY in log_dir.unreadable
    log_dir.checkpoint()
    assert lines(tmp_path, STARTS) == ["events 3 5"], "kept for when it can be opened"
    with pytest.raises(StorageFailed, match="Cannot create"):
        log_dir.create(*KEY, OTHER_ID, CONFIG, NOW)
    assert lines(tmp_path, STARTS) == ["events 3 5"]
    log_dir.delete([KEY], 0)
    assert not any(lines(tmp_path, name) for name in (STARTS, POINTS, HIGH, IDS))
    filled(log_dir, OTHER_ID)
    log_dir.close(clean=False)
    log_dir = open_dir(tmp_path)
    assert offsets_in(log_dir.logs[KEY]) == list(range(10))
    log_dir.close(clean=False)


def test_logs_may_be_made_while_checkpoints_are_written(tmp_path: Path) -> None:
    """Python collects garbage between two objects of a list, and other threads run meanwhile."""
    log_dir = open_dir(tmp_path)
    log = filled(log_dir)
    log.flush()
    log_dir.logs.update({TopicPartition("made", index): log for index in range(5000)})
    is_making = False

    def make(phase: str, info: dict[str, int]) -> None:
        nonlocal is_making
        if phase == "stop" and not is_making:
            is_making = True
            log_dir.logs[TopicPartition("made", len(log_dir.logs))] = log
            is_making = False

    before = gc.get_threshold()
    gc.callbacks.append(make)
    gc.set_threshold(1)
    try:
        log_dir.checkpoint()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(make)
    assert lines(tmp_path, POINTS)
    for key in [key for key in log_dir.logs if key.topic == "made"]:
        del log_dir.logs[key]
    log_dir.close(clean=False)
