from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from storelogs import NOW, TOPIC_ID, append, open_dir

from horolog.config import TopicConfig
from horolog.storage import MANY, Files, sync_all, system_call

HAS_SYNCFS = pytest.mark.skipif(system_call() is None, reason="no syncfs that tells of errors")


class Watched(Files):
    """Records what is synced; fails for given paths."""

    def __init__(self, refused: str = "", *, whole_fails: bool = False) -> None:
        super().__init__()
        self.synced: list[str] = []
        self.wholes = 0
        self._refused = refused
        self._whole_fails = whole_fails

    def os_fsync(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if self._refused and self._refused in path:
            raise OSError(5, "Input/output error")
        self.synced.append(path)

    def os_syncfs(self, fd: int, syncfs: Callable[[int], int]) -> int:
        self.wholes += 1
        return -1 if self._whole_fails else super().os_syncfs(fd, syncfs)


def some_files(path: Path, count: int) -> list[str]:
    paths = [path / f"file-{number}" for number in range(count)]
    for file in paths:
        file.write_text("content")
    return [str(file) for file in paths]


def synced(files: Files, paths: list[str], path: Path) -> list[str]:
    fd = os.open(path, os.O_RDONLY)
    try:
        return sorted(sync_all(files, paths, fd))
    finally:
        os.close(fd)


def test_a_few_files_are_synced_one_by_one_and_once(tmp_path: Path) -> None:
    files, paths = Watched(), some_files(tmp_path, 5)
    assert synced(files, [*paths, *paths], tmp_path) == []
    assert sorted(files.synced) == paths
    assert files.wholes == 0


@HAS_SYNCFS
def test_many_files_are_synced_in_one_go(tmp_path: Path) -> None:
    files, paths = Watched(), some_files(tmp_path, MANY)
    assert synced(files, paths, tmp_path) == []
    assert (files.wholes, files.synced) == (1, [])


@HAS_SYNCFS
def test_if_that_fails_each_is_asked_for_and_the_one_at_fault_is_named(tmp_path: Path) -> None:
    files, paths = Watched("file-17", whole_fails=True), some_files(tmp_path, MANY)
    assert synced(files, paths, tmp_path) == [str(tmp_path / "file-17")]
    assert len(files.synced) == MANY - 1


@HAS_SYNCFS
def test_a_file_elsewhere_has_them_synced_one_by_one(tmp_path: Path) -> None:
    elsewhere = Path("/dev/shm" if tmp_path.stat().st_dev != os.stat("/dev/shm").st_dev else "/")
    files, paths = Watched(), some_files(tmp_path, MANY)
    assert synced(files, [*paths, str(elsewhere)], tmp_path) == []
    assert (files.wholes, len(files.synced)) == (0, MANY + 1)


def test_a_file_that_is_gone_is_said(tmp_path: Path) -> None:
    for count in (1, MANY):
        files, paths = Watched(), some_files(tmp_path, count)
        os.remove(paths[0])
        assert synced(files, paths, tmp_path) == [paths[0]]


@HAS_SYNCFS
def test_many_partitions_are_made_and_closed_with_one_sync_each(tmp_path: Path) -> None:
    files = Watched()
    log_dir = open_dir(tmp_path, files=files)
    log_dir.create_all("many", range(MANY), TOPIC_ID, TopicConfig(), NOW)
    assert files.wholes == 1
    for log in log_dir.logs.values():
        append(log, NOW)
    files.synced.clear()
    assert log_dir.close() == []
    assert files.wholes == 2
    assert len(files.synced) < 10, "the checkpoints"
    log_dir = open_dir(tmp_path)
    assert log_dir.was_clean
    assert [log.recovery_point for log in log_dir.logs.values()] == [1] * MANY
    log_dir.close()


@HAS_SYNCFS
def test_without_every_file_on_the_disk_there_is_no_clean_mark(tmp_path: Path) -> None:
    files = Watched("many-7/00000000000000000000.index", whole_fails=True)
    log_dir = open_dir(tmp_path, files=files)
    log_dir.create_all("many", range(MANY), TOPIC_ID, TopicConfig(), NOW)
    for log in log_dir.logs.values():
        append(log, NOW)
    (failure,) = log_dir.close()
    assert failure.startswith("many-7: Cannot sync")
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    points = (tmp_path / "recovery-point-offset-checkpoint").read_text().splitlines()[2:]
    assert sorted(points) == sorted(f"many {at} {int(at != 7)}" for at in range(MANY))


def test_partitions_that_cannot_all_be_made_leave_none(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    (tmp_path / "many-5").mkdir()
    with pytest.raises(Exception, match="Cannot create"):
        log_dir.create_all("many", range(8), TOPIC_ID, TopicConfig(), NOW)
    assert log_dir.logs == {}
    assert [path.name for path in tmp_path.glob("many-*")] == ["many-5"]
    log_dir.close()
