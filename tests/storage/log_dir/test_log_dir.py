from __future__ import annotations

import errno
import os
import shutil
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from damage import NO_FILES
from faultyfiles import FaultyFiles
from patience import PATIENCE_S
from storelogs import (
    EVERY_BATCH,
    NOW,
    TOPIC_ID,
    Truth,
    append,
    new_log,
    open_dir,
    partition_dir,
    reopened,
    times_in,
)

from companions import lose_seals
from horolog.config import BrokerConfig, TopicConfig
from horolog.errors import Misconfigured, StorageFailed
from horolog.storage import (
    LOG_DIR_FILES,
    Files,
    Finding,
    LogDir,
    OpenFile,
    TimestampOffset,
    TopicPartition,
    Verification,
)

CLEAN = ".kafka_cleanshutdown"


def test_a_new_directory_is_made_and_belongs_to_a_new_cluster(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    log_dir = open_dir(path)
    assert log_dir.meta.node_id == 1
    assert len(log_dir.meta.cluster_id or "") == 22
    text = (path / "meta.properties").read_text()
    assert "version=1\n" in text
    assert f"cluster.id={log_dir.meta.cluster_id}\n" in text
    assert f"directory.id={log_dir.meta.directory_id}\n" in text
    log_dir.close()
    assert (path / CLEAN).exists()


def test_a_cluster_keeps_its_id(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    meta = log_dir.meta
    log_dir.close()
    log_dir = open_dir(tmp_path)
    assert log_dir.meta == meta
    log_dir.close()


@pytest.mark.parametrize(
    "text",
    [
        "version=1\ncluster.id=kafkas-own\nnode.id=7\ndirectory.id=its-own\n",
        "version=1\ncluster.id=kafkas-own\nnode.id=7\n",
        "version=0\ncluster.id=kafkas-own\nbroker.id=7\n",
    ],
)
def test_the_cluster_of_an_adopted_directory_is_taken_over(tmp_path: Path, text: str) -> None:
    """And its file stays as it is: a Kafka under ZooKeeper must find its own version again."""
    (tmp_path / "meta.properties").write_text(text)
    log_dir = open_dir(tmp_path)
    assert (log_dir.meta.cluster_id, log_dir.meta.node_id) == ("kafkas-own", 7)
    log_dir.close()
    assert (tmp_path / "meta.properties").read_text() == text


def test_a_directory_of_before_there_were_clusters_is_given_an_id(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=7\n")
    log_dir = open_dir(tmp_path)
    cluster_id = log_dir.meta.cluster_id
    log_dir.close()
    text = (tmp_path / "meta.properties").read_text()
    assert sorted(text.split()) == ["broker.id=7", f"cluster.id={cluster_id}", "version=0"]


def test_meta_properties_of_a_version_to_come_are_not_guessed_at(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=2\nnode.id=7\n")
    with pytest.raises(Misconfigured, match="version 2; known are 0 and 1"):
        open_dir(tmp_path)


def test_a_damaged_meta_properties_is_kept_and_its_readable_lines_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "version=1\nnode.id=seven\ncluster.id=wgPH0HbHQdafz7FRtFo3PQ\n"
    (tmp_path / "meta.properties").write_text(text)
    log_dir = open_dir(tmp_path)
    assert log_dir.meta.cluster_id == "wgPH0HbHQdafz7FRtFo3PQ"
    log_dir.close()
    assert "'seven' is no node id; the file is kept as" in caplog.text
    assert (tmp_path / "meta.properties.1.set-aside").read_text() == text
    caplog.clear()
    open_dir(tmp_path).close()
    assert not caplog.text


def test_a_damaged_checkpoint_is_kept_and_its_sound_lines_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with new_log(tmp_path) as log:
        for _ in range(3):
            append(log, NOW)
    path = tmp_path / "log-start-offset-checkpoint"
    text = "0\n4\nevents 3 2\nevents x 1\nother 0 9223372036854775808\nother 1 1_0\nother 2 1"
    path.write_text(text)
    with reopened(tmp_path) as (_, log):
        assert log.log_start_offset == 2
    for wrong in ("and 5 entries", "ends within 'other 2 1'", "'other 1 1_0' is no entry"):
        assert wrong in caplog.text
    assert (tmp_path / f"{path.name}.1.set-aside").read_text() == text


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("name", LOG_DIR_FILES)
def test_what_is_no_file_makes_way_for_a_log_directorys_own(
    tmp_path: Path, name: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Else no checkpoint could be written, and each start would be one after a kill."""
    log_dir = tmp_path / "a" / "b"
    with new_log(log_dir) as log:
        append(log, NOW)
    (log_dir / name).write_bytes(b"")
    NO_FILES[kind](log_dir / name)
    for _ in range(2):
        opened = open_dir(log_dir)
        assert not opened.close()
        # That of the cleaner is written once there is something to be said.
        assert (log_dir / name).is_file() or name == "cleaner-offset-checkpoint"
        assert not (log_dir / name).is_symlink()
    assert f"{name}.1.set-aside is not a regular file" in caplog.text


def test_two_brokers_cannot_have_one_directory(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    with pytest.raises(Misconfigured, match=r"Failed to acquire lock on file \.lock"):
        open_dir(tmp_path)
    log_dir.close()
    open_dir(tmp_path).close()


def test_a_directory_that_is_not_writable_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(Misconfigured, match="not writable"):
        open_dir(tmp_path)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match="cannot be made"):
        open_dir(tmp_path / "file")


# The clean mark.


def test_the_clean_mark_is_kafkas_and_is_gone_while_the_directory_is_open(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    assert not log_dir.was_clean
    log_dir.close()
    assert (tmp_path / CLEAN).read_text() == '{"version": 0, "brokerEpoch": -1}'
    log_dir = open_dir(tmp_path)
    assert log_dir.was_clean
    assert not (tmp_path / CLEAN).exists()
    log_dir.close(clean=False)
    assert not (tmp_path / CLEAN).exists()


def test_the_epoch_in_kafkas_mark_outlives_our_stay(tmp_path: Path) -> None:
    open_dir(tmp_path).close()
    for mark in ('{"version":0,"brokerEpoch":512}', ""):  # Kafka 3.5 and earlier wrote nothing
        (tmp_path / CLEAN).write_text(mark)
        log_dir = open_dir(tmp_path)
        assert log_dir.was_clean
        log_dir.close()
        assert (tmp_path / CLEAN).read_text() == mark
    open_dir(tmp_path).close(clean=False)
    open_dir(tmp_path).close()
    assert (tmp_path / CLEAN).read_text() == '{"version": 0, "brokerEpoch": -1}'


@pytest.mark.parametrize(
    ("other", "is_marked"),
    [
        ("__consumer_offsets-0", False),
        ("events-4.0123456789abcdef0123456789abcdef-future", False),
        ("__cluster_metadata-0", True),
        ("lost+found", True),
    ],
)
def test_nothing_is_marked_clean_that_a_kafka_left_unclean_and_we_did_not_open(
    tmp_path: Path, other: str, is_marked: bool
) -> None:
    """Else that Kafka would not look for the torn batch at the end of its own topics."""
    (tmp_path / other).mkdir()
    log_dir = open_dir(tmp_path)
    log_dir.create("events", 3, TOPIC_ID, TopicConfig(), NOW)
    assert log_dir.close() == []
    assert (tmp_path / CLEAN).exists() is is_marked
    (tmp_path / CLEAN).touch()  # Kafka came and went
    open_dir(tmp_path).close()
    assert (tmp_path / CLEAN).exists()


def test_after_a_clean_stop_nothing_is_checked(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        append(log, NOW)
    with reopened(tmp_path) as (log_dir, _):
        assert log_dir.recoveries[0].checked_bytes > 0
        assert log_dir.close() == []
    with reopened(tmp_path) as (log_dir, log):
        assert log_dir.recoveries == []
        assert log.recovery_point == log.log_end_offset == 1
        assert times_in(log) == [Truth(0, NOW)]


def test_an_unwritten_log_is_not_changed_by_start_and_stop(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        append(log, NOW)
    with reopened(tmp_path) as (log_dir, _):
        log_dir.close()

    def state() -> dict[str, tuple[int, int]]:
        files = partition_dir(tmp_path).iterdir()
        return {file.name: (file.stat().st_mtime_ns, file.stat().st_size) for file in files}

    before = state()
    with reopened(tmp_path) as (log_dir, log):
        assert times_in(log) == [Truth(0, NOW)]
        assert log.find_by_timestamp(NOW) is not None
        log_dir.close()
    assert state() == before


def test_without_a_clean_close_of_every_log_there_is_no_mark(tmp_path: Path) -> None:
    class Unsynced(Files):
        def os_fsync(self, fd: int) -> None:
            if ".log" in os.readlink(f"/proc/self/fd/{fd}"):
                raise OSError(5, "Input/output error")

    with new_log(tmp_path) as log:
        append(log, NOW)
    log_dir = open_dir(tmp_path, files=Unsynced())
    (failure,) = log_dir.close()
    assert failure.startswith("events-3: Cannot sync")
    assert not (tmp_path / CLEAN).exists()


# Partitions.


def test_a_created_partition_has_kafkas_files(tmp_path: Path) -> None:
    with new_log(tmp_path):
        names = sorted(path.name for path in partition_dir(tmp_path).iterdir())
        assert names == [
            "00000000000000000000.index",
            "00000000000000000000.log",
            "00000000000000000000.timeindex",
            "partition.metadata",
        ]


def test_a_partition_is_created_once(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    log_dir.create("a", 0, TOPIC_ID, TopicConfig(), NOW)
    with pytest.raises(StorageFailed, match="Cannot create"):
        log_dir.create("a", 0, TOPIC_ID, TopicConfig(), NOW)
    log_dir.close()


def test_a_partition_that_could_not_be_made_leaves_nothing_behind(tmp_path: Path) -> None:
    for step in range(40):
        files = FaultyFiles(None, OSError(errno.ENOSPC, "No space left on device"))
        log_dir = open_dir(tmp_path / str(step), files=files)
        files.at = files.count + step
        try:
            log_dir.create("a", 0, TOPIC_ID, TopicConfig(), NOW)
        except StorageFailed:
            assert list((tmp_path / str(step)).glob("a-0*")) == []
            assert log_dir.logs == {}
            log_dir.create("a", 0, TOPIC_ID, TopicConfig(), NOW)
        files.heal()
        append(log_dir.logs[TopicPartition("a", 0)], NOW)
        log_dir.close(clean=False)
        if not files.faults:
            break
    assert step > 5


def test_a_reader_of_a_deleted_partition_never_reads_its_successor(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    old = log_dir.create("events", 3, TOPIC_ID, TopicConfig(), NOW)
    append(old, NOW)
    log_dir.delete([TopicPartition("events", 3)], NOW)
    new = log_dir.create("events", 3, uuid.uuid4(), TopicConfig(), NOW)
    append(new, NOW + 5)
    with pytest.raises(StorageFailed, match="is gone"):
        old.read(0, 100)
    with pytest.raises(StorageFailed, match="is gone"):
        append(old, NOW)
    assert times_in(new) == [Truth(0, NOW + 5)]
    log_dir.close()


class InterruptedFiles(Files):
    """Lets another thread run `meanwhile` once, where a file is opened or read.

    It is waited for, unless it waits itself for what this thread does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.at = ""
        self.meanwhile: Callable[[], None] | None = None
        self.thread: threading.Thread | None = None

    def os_open(self, path: str, flags: int) -> int:
        self._pass(f"opening {os.path.basename(path)}")
        fd = super().os_open(path, flags)
        self._pass(f"opened {os.path.basename(path)}")
        return fd

    def read_at(self, file: OpenFile, size: int, position: int) -> bytes:
        self._pass(f"reading {os.path.basename(file.path)}")
        return super().read_at(file, size, position)

    def _pass(self, where: str) -> None:
        if self.meanwhile is not None and where == self.at:
            self.thread = threading.Thread(target=self.meanwhile)
            self.meanwhile = None
            self.thread.start()
            self.thread.join(0.2)


LOG, INDEX, TIMES = (f"{'0' * 20}{suffix}" for suffix in (".log", ".index", ".timeindex"))


@pytest.mark.parametrize(
    "where",
    [
        *(f"{what} {name}" for what in ("opening", "opened", "reading") for name in (LOG, INDEX)),
        f"opened {TIMES}",
        f"reading {TIMES}",
        f"opening {INDEX}.tmp",
        f"opened {TIMES}.tmp",
    ],
)
@pytest.mark.parametrize("question", ["fetch", "lookup", "check"])
def test_a_topic_that_is_recreated_while_the_old_one_is_read_has_its_own_files(
    tmp_path: Path, where: str, question: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The reader is stopped where it opens or reads a file; then the path has another one."""
    files, key = InterruptedFiles(), TopicPartition("events", 3)
    log_dir = open_dir(tmp_path, EVERY_BATCH, files=files)
    log_dir.create("events", 3, TOPIC_ID, EVERY_BATCH, NOW)
    for number in range(5):
        append(log_dir.logs[key], NOW + number)
    log_dir.logs[key].roll(NOW)
    append(log_dir.logs[key], NOW + 5)
    assert log_dir.close() == []
    for index in (INDEX, TIMES):  # to be rebuilt
        (partition_dir(tmp_path) / index).write_bytes(b"")
    lose_seals(partition_dir(tmp_path))
    log_dir = open_dir(tmp_path, EVERY_BATCH, files=files)
    old, made = log_dir.logs[key], []
    files.close()

    def make_again() -> None:
        log_dir.delete([key], NOW)
        made.append(log_dir.create("events", 3, uuid.uuid4(), EVERY_BATCH, NOW))
        for number in range(5):
            append(made[0], NOW + 100 + number, value=b"longer than before" * 2)

    files.at, files.meanwhile = where, make_again
    with suppress(StorageFailed):  # "is gone"
        if question == "fetch":
            assert old.read(3, 1000).read().startswith((3).to_bytes(8, "big"))
        elif question == "lookup":
            assert old.find_by_timestamp(NOW + 3) == TimestampOffset(NOW + 3, 3, 0)
        else:
            old.segments[0].indexes.check(old.segments[0].size)
    files.meanwhile = None
    if files.thread is None:  # this question leaves that file alone
        make_again()
    else:
        files.thread.join(PATIENCE_S)
    (new,) = made
    truth = [Truth(number, NOW + 100 + number) for number in range(50)]
    for record in truth[5:]:
        append(new, record.timestamp)
    caplog.clear()
    assert times_in(new) == truth
    assert [new.find_by_timestamp(record.timestamp)[1] for record in truth] == list(range(50))
    assert "does not fit" not in caplog.text
    assert log_dir.close() == []
    log_dir = open_dir(tmp_path, EVERY_BATCH)
    assert times_in(log_dir.logs[key]) == truth
    assert log_dir.close() == []
    steps = Verification.of(partition_dir(tmp_path)).steps()
    assert [step for step in steps if isinstance(step, Finding)] == []


def test_a_deleted_partition_is_renamed_and_removed_later(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    log = log_dir.create("events", 3, TOPIC_ID, TopicConfig(file_delete_delay_ms=500), NOW)
    append(log, NOW)
    held = log.read(0, 1000)
    log_dir.delete([TopicPartition("events", 3)], NOW)
    assert log_dir.logs == {}
    (renamed,) = tmp_path.glob("events-3.*-delete")
    assert len(held.read()) > 0
    assert log_dir.remove_deleted(NOW + 499) == 0
    assert renamed.exists()
    assert log_dir.remove_deleted(NOW + 500) == 1
    assert not renamed.exists()
    assert len(held.read()) > 0
    again = log_dir.create("events", 3, uuid.uuid4(), TopicConfig(), NOW)
    assert again.log_end_offset == 0
    assert append(again, NOW + 5).base_offset == 0
    assert times_in(again) == [Truth(0, NOW + 5)]
    log_dir.close()


def test_a_deletion_that_a_kill_cut_short_is_finished(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    append(log_dir.create("events", 3, TOPIC_ID, TopicConfig(), NOW), NOW)
    log_dir.delete([TopicPartition("events", 3)], NOW)
    log_dir.close(clean=False)
    log_dir = open_dir(tmp_path)
    assert log_dir.logs == {}
    assert log_dir.remove_deleted(NOW) == 1
    assert list(tmp_path.glob("*-delete")) == []
    log_dir.close()


def test_checkpoints_are_kafkas(tmp_path: Path) -> None:
    config = TopicConfig(segment_bytes=300)
    with new_log(tmp_path, config) as log:
        for _ in range(10):
            append(log, NOW)
    with reopened(tmp_path, config) as (log_dir, log):
        log.flush(6)
        log_dir.checkpoint()

        def text(name: str) -> str:
            return (tmp_path / name).read_text()

        assert text("recovery-point-offset-checkpoint") == "0\n1\nevents 3 6\n"
        assert text("replication-offset-checkpoint") == "0\n1\nevents 3 10\n"
        assert text("log-start-offset-checkpoint") == "0\n0\n"
        log.delete_records(5)
        log_dir.checkpoint()
        assert text("log-start-offset-checkpoint") == "0\n1\nevents 3 5\n"
        log.apply_retention(NOW, NOW)
        log_dir.checkpoint()
        assert text("log-start-offset-checkpoint") == "0\n1\nevents 3 5\n"
        log.delete_records(6)
        log.apply_retention(NOW, NOW)
        log_dir.checkpoint()
        assert text("log-start-offset-checkpoint") == "0\n0\n", "the files say it"


def test_checkpoints_keep_the_lines_of_what_was_not_opened(tmp_path: Path) -> None:
    """Without its log start offset a log that cannot be opened would show deleted records again."""
    with new_log(tmp_path) as log:
        append(log, NOW)
    (tmp_path / "__consumer_offsets-7").mkdir()
    (tmp_path / "old-0").mkdir()
    (tmp_path / "old-0" / "00000000000000000000.log").mkdir()
    names = [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
    ]
    for name in names:
        lines = "__consumer_offsets 7 41\nold 0 1\ngone 0 5\nevents 3 1\n"
        (tmp_path / name).write_text("0\n4\n" + lines)
    with reopened(tmp_path) as (log_dir, _):
        assert list(log_dir.unreadable) == [TopicPartition("old", 0)]
        log_dir.close()
    for name in names:
        text = (tmp_path / name).read_text()
        assert text == "0\n3\n__consumer_offsets 7 41\nold 0 1\nevents 3 1\n", name


# What is not ours.


def test_unknown_directories_are_adopted(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        append(log, NOW)
    log_dir = LogDir.open(
        tmp_path,
        broker_config=BrokerConfig(),
        topic_config=lambda topic: TopicConfig(retention_ms=1),
        is_ours=lambda topic: topic != "events",
        now_ms=NOW,
    )
    log_dir.create("ours", 0, TOPIC_ID, TopicConfig(), NOW)
    assert log_dir.adopted == [TopicPartition("events", 3)]
    assert log_dir.logs[TopicPartition("events", 3)].retention_exempt
    assert not log_dir.logs[TopicPartition("ours", 0)].retention_exempt
    log_dir.close()


@pytest.mark.parametrize(
    "name",
    [
        "__consumer_offsets-0",
        "__cluster_metadata-0",
        "__transaction_state-12",
        "events-4.0123456789abcdef0123456789abcdef-stray",
        "events-4.0123456789abcdef0123456789abcdef-future",
        "lost+found",
    ],
)
def test_what_is_none_of_our_business_is_left_alone(tmp_path: Path, name: str) -> None:
    with new_log(tmp_path) as log:
        append(log, NOW)
    other = tmp_path / name
    shutil.copytree(partition_dir(tmp_path), other)
    (other / "00000000000000000000.log.deleted").write_bytes(b"x")
    (other / "00000000000000000000.log").write_bytes(b"torn")
    before = {path.name: path.read_bytes() for path in other.iterdir()}
    with reopened(tmp_path) as (log_dir, _):
        assert list(log_dir.logs) == [TopicPartition("events", 3)]
        log_dir.close()
    assert {path.name: path.read_bytes() for path in other.iterdir()} == before


def test_one_partition_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    for index in range(3):
        append(log_dir.create("events", index, TOPIC_ID, TopicConfig(), NOW), NOW)
    log_dir.close()

    class Broken(Files):
        def os_open(self, path: str, flags: int) -> int:
            if "events-1/" in path:
                raise OSError(5, "Input/output error")
            return super().os_open(path, flags)

    log_dir = open_dir(tmp_path, files=Broken())
    assert sorted(log_dir.logs) == [("events", 0), ("events", 2)]
    assert "Input/output error" in log_dir.unreadable[TopicPartition("events", 1)]
    log_dir.close()
    log_dir = open_dir(tmp_path)
    assert times_in(log_dir.logs[TopicPartition("events", 1)]) == [Truth(0, NOW)]
    log_dir.close()


def test_many_partitions_need_few_open_files(tmp_path: Path) -> None:
    files = Files(max_open=20)
    log_dir = open_dir(tmp_path, files=files)
    logs = [log_dir.create("many", index, TOPIC_ID, TopicConfig(), NOW) for index in range(60)]
    for round_ in range(3):
        for log in logs:
            append(log, NOW + round_)
    assert files.open_count <= 20
    assert log_dir.close() == []
    log_dir = open_dir(tmp_path, files=Files(max_open=20))
    assert log_dir.was_clean
    for log in log_dir.logs.values():
        assert [record.timestamp for record in times_in(log)] == [NOW, NOW + 1, NOW + 2]
    log_dir.close()
