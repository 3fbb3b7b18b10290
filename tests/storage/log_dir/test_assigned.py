"""The log directory of a broker of a cluster: ids, epochs, high watermarks, the clean stop."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from storelogs import NOW, TOPIC_ID, UnsyncedFiles, append, open_dir, placed, times_in

from horolog.buffers import Buffer
from horolog.config import BrokerConfig, TopicConfig
from horolog.errors import StorageFailed
from horolog.storage import Files, Log, LogDir, Origin, SourceBatches, TopicPartition
from horolog.storage.log_dir.log_dir import OpeningProgress

PARTITION = TopicPartition("events", 3)
OTHER_ID = UUID(int=77)
ASSIGNED = {PARTITION: TOPIC_ID}
SMALL = TopicConfig(segment_bytes=300, index_interval_bytes=0)
CLEAN = ".kafka_cleanshutdown"
EPOCHS = "events-3/leader-epoch-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
STRAY = re.compile(r"events-3\.[0-9a-f]{32}-stray")


class FullDisk(UnsyncedFiles):
    """Refuses to make files longer while it is full."""

    is_full = False

    def os_pwritev(self, fd: int, parts: Sequence[Buffer], position: int) -> int:
        if self.is_full and position + sum(map(len, parts)) > os.fstat(fd).st_size:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().os_pwritev(fd, parts, position)


@contextmanager
def replica(
    path: Path,
    config: TopicConfig | None = None,
    *,
    assigned: Mapping[TopicPartition, UUID] = ASSIGNED,
    files: Files | None = None,
) -> Iterator[LogDir]:
    """The directory of a broker of a cluster, left as a kill would leave it."""
    log_dir = open_dir(path, config, assigned=assigned, files=files)
    try:
        yield log_dir
    finally:
        log_dir.close(clean=False)


def make(log_dir: LogDir, config: TopicConfig | None = None) -> Log:
    return log_dir.create(*PARTITION, TOPIC_ID, config or TopicConfig(), NOW)


def filled(path: Path, count: int = 3, *, topic_id: UUID = TOPIC_ID, clean: bool = True) -> None:
    """A directory of a node alone with a log of some records."""
    log_dir = open_dir(path)
    log = log_dir.create(*PARTITION, topic_id, TopicConfig(), NOW)
    for _ in range(count):
        append(log, NOW)
    log_dir.close(clean=clean)


def lines(path: Path, name: str) -> list[str]:
    return (path / name).read_text().splitlines()[2:]


def strays(path: Path) -> list[str]:
    return [entry.name for entry in path.iterdir() if entry.name.endswith("-stray")]


# Whose directories they are.


def test_an_assigned_partition_is_opened_as_one_that_follows(tmp_path: Path) -> None:
    filled(tmp_path)
    with replica(tmp_path) as log_dir:
        log = log_dir.logs[PARTITION]
        assert (log.is_following, log.high_watermark, log.log_end_offset) == (True, 3, 3)
        assert not log.retention_exempt
        assert not log_dir.adopted
        assert not strays(tmp_path)


def test_a_directory_of_another_topic_id_is_a_stray(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path, topic_id=OTHER_ID)
    with replica(tmp_path) as log_dir:
        assert not log_dir.logs
        assert not log_dir.unreadable
        (stray,) = strays(tmp_path)
        assert STRAY.fullmatch(stray)
        assert stray in caplog.text
        log = make(log_dir)
        assert (log.log_end_offset, log.topic_id) == (0, TOPIC_ID), "it is filled anew"
    assert (tmp_path / stray / f"{0:020d}.log").stat().st_size


def test_a_partition_that_is_not_assigned_is_a_stray(tmp_path: Path) -> None:
    filled(tmp_path)
    with replica(tmp_path, assigned={}) as log_dir:
        assert not log_dir.logs
    with replica(tmp_path) as log_dir:
        assert not log_dir.logs, "a stray is never served"
    assert len(strays(tmp_path)) == 1


def test_a_long_name_of_a_stray_is_cut_as_kafka_cuts_it(tmp_path: Path) -> None:
    topic = "t" * 249
    log_dir = open_dir(tmp_path)
    log_dir.create(topic, 12, TOPIC_ID, TopicConfig(), NOW)
    log_dir.close()
    with replica(tmp_path):
        (stray,) = strays(tmp_path)
    assert re.fullmatch(r"t{213}-12\.[0-9a-f]{32}-stray", stray)


def test_a_directory_without_id_and_records_is_a_stray(tmp_path: Path) -> None:
    filled(tmp_path, 0)
    (tmp_path / "events-3/partition.metadata").unlink()
    with replica(tmp_path) as log_dir:
        assert not log_dir.unreadable
        assert len(strays(tmp_path)) == 1
        make(log_dir)


@pytest.mark.parametrize("content", [None, b"version: 0\ntopic_id: what", b""])
def test_records_of_an_unknown_topic_id_are_left_alone(
    tmp_path: Path, content: bytes | None
) -> None:
    filled(tmp_path)
    path = tmp_path / "events-3/partition.metadata"
    path.unlink() if content is None else path.write_bytes(content)
    with replica(tmp_path) as log_dir:
        assert "topic" in log_dir.unreadable[PARTITION]
        assert not log_dir.logs
        with pytest.raises(StorageFailed, match="there already"):
            make(log_dir)
    assert not strays(tmp_path)
    assert path.exists() is (content is not None), "no id is written"


def test_something_else_in_the_place_of_a_partition_is_reported(tmp_path: Path) -> None:
    open_dir(tmp_path).close()
    (tmp_path / "events-3").write_bytes(b"")
    (tmp_path / "events-4").write_bytes(b"")
    with replica(tmp_path) as log_dir:
        assert log_dir.unreadable.keys() == {PARTITION}


def test_internal_topics_are_partitions_like_others_and_the_metadata_log_is_not(
    tmp_path: Path,
) -> None:
    state = TopicPartition("__consumer_offsets", 0)
    with replica(tmp_path, assigned={state: TOPIC_ID}) as log_dir:
        log_dir.create(*state, TOPIC_ID, TopicConfig(), NOW)
        (tmp_path / "__cluster_metadata-0").mkdir()
    with replica(tmp_path, assigned={state: TOPIC_ID}) as log_dir:
        assert log_dir.logs.keys() == {state}
    assert (tmp_path / "__cluster_metadata-0").is_dir()


# Epochs and high watermarks.


@pytest.mark.parametrize("clean", [True, False])
def test_no_start_and_no_stop_begins_an_epoch(tmp_path: Path, clean: bool) -> None:
    log_dir = open_dir(tmp_path, assigned=ASSIGNED)
    log = make(log_dir)
    log.become_leader(5, is_replicated=True)
    append(log, NOW)
    log.become_leader(7, is_replicated=True)
    log_dir.close(clean=clean)
    known = (tmp_path / EPOCHS).read_bytes()
    with replica(tmp_path) as log_dir:
        log = log_dir.logs[PARTITION]
        assert log.epochs.latest == 5, "nobody has records of the last one"
        assert log.leader_epoch <= 7
        log.become_follower(7)
    assert (tmp_path / EPOCHS).read_bytes() in (known, b"0\n1\n5 0\n")


def test_a_log_that_is_cut_by_recovery_begins_no_epoch(tmp_path: Path) -> None:
    with replica(tmp_path) as log_dir:
        log = make(log_dir)
        log.become_leader(5, is_replicated=True)
        append(log, NOW)
        end = append(log, NOW).size
    path = tmp_path / f"events-3/{0:020d}.log"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - end // 2)
    with replica(tmp_path) as log_dir:
        log = log_dir.logs[PARTITION]
        assert (log.log_end_offset, log.epochs.latest, log.leader_epoch) == (1, 5, 5)
        log.become_leader(6, is_replicated=True)
        assert log.epoch_start_offset == 1


def test_the_high_watermark_is_that_of_the_checkpoint(tmp_path: Path) -> None:
    with replica(tmp_path) as log_dir:
        log = make(log_dir)
        log.become_leader(5, is_replicated=True)
        for _ in range(3):
            append(log, NOW)
        log.move_high_watermark(2)
        log_dir.checkpoint_replicas()
        assert lines(tmp_path, HIGH_WATERMARKS) == ["events 3 2"]
        before = (tmp_path / HIGH_WATERMARKS).stat().st_ino
        log_dir.checkpoint_replicas()
        assert (tmp_path / HIGH_WATERMARKS).stat().st_ino == before, "nothing has moved"
        log.move_high_watermark(3)
    with replica(tmp_path) as log_dir:
        log = log_dir.logs[PARTITION]
        assert (log.high_watermark, log.log_end_offset) == (2, 3)
        assert len(times_in(log)) == 2


@pytest.mark.parametrize(("line", "expected"), [("events 3 99", 3), ("events 3 0", 0)])
def test_a_high_watermark_is_within_the_log(tmp_path: Path, line: str, expected: int) -> None:
    filled(tmp_path)
    (tmp_path / HIGH_WATERMARKS).write_text(f"0\n1\n{line}\n")
    with replica(tmp_path) as log_dir:
        assert log_dir.logs[PARTITION].high_watermark == expected


def test_a_high_watermark_is_not_before_the_log_start(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    log = log_dir.create(*PARTITION, TOPIC_ID, TopicConfig(), NOW)
    for _ in range(3):
        append(log, NOW)
    log.delete_records(2)
    log_dir.close()
    (tmp_path / HIGH_WATERMARKS).unlink()
    with replica(tmp_path) as log_dir:
        log = log_dir.logs[PARTITION]
        assert (log.log_start_offset, log.high_watermark) == (2, 2)


def test_a_replica_starts_where_its_leader_does_although_its_high_watermark_lags(
    tmp_path: Path,
) -> None:
    """KAFKA-9491, KAFKA-16452."""
    with replica(tmp_path) as log_dir:
        log = make(log_dir)
        log.append(SourceBatches(placed(0) + placed(1) + placed(2)), NOW, Origin.FOLLOWER)
        assert log.start_at(2) == 2
        assert (log.log_start_offset, log.high_watermark) == (2, 2)
        assert log.start_at(9) == 3, "at most the log end"
        assert log.start_at(1) == 3


def test_a_new_replica_is_empty_and_follows(tmp_path: Path) -> None:
    with replica(tmp_path) as log_dir:
        log = make(log_dir)
        assert (log.is_following, log.high_watermark, log.known_high_watermark) == (True, 0, 0)
        log.append(SourceBatches(placed(0)), NOW, Origin.FOLLOWER)
        assert log.high_watermark == 0


@pytest.mark.parametrize(("ahead_ms", "counts"), [(900, True), (60_000, False)])
def test_append_times_of_a_leader_that_was_killed_are_not_given_again(
    tmp_path: Path, ahead_ms: int, counts: bool
) -> None:
    log_dir = LogDir.open(
        tmp_path,
        broker_config=BrokerConfig(),
        topic_config=lambda topic: TopicConfig(),
        now_ms=NOW,
        files=UnsyncedFiles(),
        assigned=ASSIGNED,
    )
    log = make(log_dir)
    log.become_leader(5, is_replicated=True)
    log_dir.save_stamps()
    append(log, NOW, now=NOW + ahead_ms)
    log_dir.close(clean=False)
    log_dir = LogDir.open(
        tmp_path,
        broker_config=BrokerConfig(),
        topic_config=lambda topic: TopicConfig(),
        now_ms=NOW - 5_000,  # the machine's clock went back meanwhile
        files=UnsyncedFiles(),
        assigned=ASSIGNED,
    )
    assert log_dir.stamps.last_ms == (NOW + ahead_ms if counts else NOW)
    assert log_dir.logs[PARTITION].floor.last == NOW + ahead_ms, "it goes on from there"
    log_dir.close(clean=False)


# The clean stop.


def epoch_in(path: Path) -> object:
    return json.loads((path / CLEAN).read_text())


def test_a_clean_stop_names_the_epoch_of_the_registration(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path, assigned=ASSIGNED)
    assert log_dir.previous_broker_epoch == -1
    make(log_dir)
    assert not log_dir.close(broker_epoch=348)
    assert epoch_in(tmp_path) == {"version": 0, "brokerEpoch": 348}
    log_dir = open_dir(tmp_path, assigned=ASSIGNED)
    assert log_dir.previous_broker_epoch == 348
    assert log_dir.was_clean
    assert not (tmp_path / CLEAN).exists(), "a crash from here on is no clean stop"
    assert not log_dir.close()
    assert epoch_in(tmp_path) == {"version": 0, "brokerEpoch": -1}, "it was not granted"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'{"version":0}',
        b'{"version":0,"brokerEpoch":"7"}',
        b'{"version":0,"brokerEpoch":true}',
        b'{"version":0,"brokerEpoch":1e3}',
        b'{"version":0,"brokerEpoch":-9}',
        b'{"version":0,"brokerEpoch":9223372036854775808}',
        b"[" * 4000,
        b"\xff\xfe",
        b" " * 5000,
    ],
)
def test_a_marker_without_an_epoch_names_none(tmp_path: Path, content: bytes) -> None:
    open_dir(tmp_path).close()
    (tmp_path / CLEAN).write_bytes(content)
    with replica(tmp_path) as log_dir:
        assert log_dir.previous_broker_epoch == -1
        assert log_dir.was_clean


def test_strays_do_not_make_a_stop_unclean(tmp_path: Path) -> None:
    filled(tmp_path, topic_id=OTHER_ID, clean=False)
    for _ in range(2):
        log_dir = open_dir(tmp_path, assigned=ASSIGNED)
        assert not log_dir.close(broker_epoch=9)
        assert epoch_in(tmp_path) == {"version": 0, "brokerEpoch": 9}
    assert len(strays(tmp_path)) == 1


@pytest.mark.parametrize("appends", [True, False])
def test_a_node_alone_gives_back_the_epoch_of_another_broker_only_unchanged(
    tmp_path: Path, appends: bool
) -> None:
    filled(tmp_path)
    (tmp_path / CLEAN).write_text('{"version":0,"brokerEpoch":13}')
    log_dir = open_dir(tmp_path)
    if appends:
        append(log_dir.logs[PARTITION], NOW)
    log_dir.close()
    assert epoch_in(tmp_path) == {"version": 0, "brokerEpoch": -1 if appends else 13}


# Truncations.


def led(log_dir: LogDir, config: TopicConfig, count: int) -> Log:
    """A log with some records, of which half are readable and all are flushed."""
    log = make(log_dir, config)
    log.become_leader(5, is_replicated=True)
    for _ in range(count):
        append(log, NOW)
    log.move_high_watermark(count // 2)
    log.flush()
    log_dir.checkpoint()
    log.become_follower(6)
    return log


@pytest.mark.parametrize("config", [TopicConfig(), SMALL])
def test_nothing_of_what_a_replica_cuts_is_set_aside(tmp_path: Path, config: TopicConfig) -> None:
    with replica(tmp_path, config) as log_dir:
        log = led(log_dir, config, 20)
        log.truncate_to(13, NOW)
        assert (log.log_end_offset, log.high_watermark) == (13, 10)
        assert not list((tmp_path / "events-3").glob("*.cut"))
        log.append(SourceBatches(placed(13)), NOW, Origin.FOLLOWER)
        assert log.log_end_offset == 14
        log.truncate_fully(50, NOW)
        assert not list((tmp_path / "events-3").glob("*.cut"))
    with replica(tmp_path, config) as log_dir:
        log = log_dir.logs[PARTITION]
        assert (log.log_start_offset, log.log_end_offset) == (50, 50)


def test_a_full_disk_does_not_stop_a_truncation(tmp_path: Path) -> None:
    files = FullDisk()
    with replica(tmp_path, files=files) as log_dir:
        log = led(log_dir, TopicConfig(), 20)
        files.is_full = True
        log.truncate_to(13, NOW)
        assert log.log_end_offset == 13
        assert log.refusal is None


def test_a_truncation_below_the_high_watermark_is_an_error_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with replica(tmp_path) as log_dir:
        log = led(log_dir, TopicConfig(), 20)
        log.truncate_to(13, NOW)
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
        log.truncate_to(4, NOW)
        (error,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert "below its high watermark 10" in error.getMessage()
        assert lines(tmp_path, HIGH_WATERMARKS) == ["events 3 4"], "at once"


def test_the_checkpoints_are_not_written_at_each_truncation(tmp_path: Path) -> None:
    with replica(tmp_path) as log_dir:
        log = led(log_dir, TopicConfig(), 20)
        log.truncate_to(13, NOW)
        assert lines(tmp_path, RECOVERY_POINTS) == ["events 3 20"]
        log_dir.checkpoint_replicas()
        assert lines(tmp_path, RECOVERY_POINTS) == ["events 3 13"]
        inode = (tmp_path / RECOVERY_POINTS).stat().st_ino
        log_dir.checkpoint_replicas()
        assert (tmp_path / RECOVERY_POINTS).stat().st_ino == inode


def test_a_segment_is_rolled_only_once_the_checkpoints_know_of_a_truncation(
    tmp_path: Path,
) -> None:
    with replica(tmp_path, SMALL) as log_dir:
        log = led(log_dir, SMALL, 20)
        log.truncate_to(13, NOW)
        offset = 13
        while lines(tmp_path, RECOVERY_POINTS) == ["events 3 20"]:
            assert len([one for one in log.segments if one.base_offset >= 13]) <= 1
            log.append(SourceBatches(placed(offset)), NOW, Origin.FOLLOWER)
            offset += 1
        assert lines(tmp_path, RECOVERY_POINTS) == ["events 3 13"]
        assert log.segments[-1].base_offset > 13


def test_a_replica_that_starts_before_its_old_start_is_written_down_at_once(
    tmp_path: Path,
) -> None:
    with replica(tmp_path) as log_dir:
        log = make(log_dir)
        log.truncate_fully(50, NOW)
        log.append(SourceBatches(placed(50) + placed(51)), NOW, Origin.FOLLOWER)
        log.move_high_watermark(52)
        log.start_at(51)
        log_dir.checkpoint()
        log.truncate_fully(10, NOW)
    with replica(tmp_path) as log_dir:
        log = log_dir.logs[PARTITION]
        assert (log.log_start_offset, log.log_end_offset) == (10, 10)


def test_a_refused_write_is_known_until_the_log_grows(tmp_path: Path) -> None:
    files = FullDisk()
    with replica(tmp_path, files=files) as log_dir:
        log = make(log_dir)
        log.append(SourceBatches(placed(0)), NOW, Origin.FOLLOWER)
        files.is_full = True
        with pytest.raises(StorageFailed):
            log.append(SourceBatches(placed(1)), NOW, Origin.FOLLOWER)
        assert log.refusal is not None
        files.is_full = False
        log.append(SourceBatches(placed(1)), NOW, Origin.FOLLOWER)
        assert log.refusal is None


class StopComes(OpeningProgress):
    """Ends an opening in the middle of its first logs."""

    looks = 0

    @property
    def is_ended(self) -> bool:
        self.looks += 1
        return self.looks > 5

    @is_ended.setter
    def is_ended(self, value: bool) -> None:
        assert not value


def test_a_stop_does_not_wait_until_all_logs_are_recovered(tmp_path: Path) -> None:
    assigned = {TopicPartition("events", index): TOPIC_ID for index in range(4)}
    with replica(tmp_path, SMALL, assigned={}) as log_dir:
        for index in range(4):
            log = log_dir.create("events", index, TOPIC_ID, SMALL, NOW)
            log.append(SourceBatches(b"".join(map(placed, range(50)))), NOW, Origin.FOLLOWER)
            assert len(log.segments) > 10
    progress = StopComes()
    with pytest.raises(StorageFailed, match="the broker stops"):
        open_dir(tmp_path, SMALL, assigned=assigned, progress=progress)
    assert progress.loaded == 1
    assert progress.looks < 15, "a log has more segments"
    with replica(tmp_path, SMALL, assigned=assigned) as log_dir:
        assert [log.log_end_offset for log in log_dir.logs.values()] == 4 * [50]
