"""What a search by time has the disk read before it asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from storelogs import NOW, append, new_log

from horolog.config import TopicConfig
from horolog.storage import Files, KeptBlocks, Log


class CountedFiles(Files):
    """Notes what is announced, and what is then read."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, int, int]] = []
        self.read: list[tuple[str, int, int]] = []

    def os_fsync(self, fd: int) -> None:
        pass

    def will_need(self, file, size, position):
        if not self.is_nonblocking:
            self.asked.append((Path(file.path).suffix, position, position + size))
        super().will_need(file, size, position)

    def read_at(self, file, size, position):
        self.read.append((Path(file.path).suffix, position, position + size))
        return super().read_at(file, size, position)


@pytest.fixture
def files() -> CountedFiles:
    return CountedFiles()


def filled(log: Log) -> None:
    for number in range(60):
        append(log, NOW + 1_000 * number, value=bytes(8_000))
    log.roll(NOW)


def test_a_lookup_that_may_block_waits_for_each_file_once(
    tmp_path: Path, files: CountedFiles
) -> None:
    with new_log(tmp_path, TopicConfig(retention_ms=-1), files=files) as log:
        filled(log)
        assert log.find_by_timestamp(NOW + 1) is not None
        files.index_blocks = KeptBlocks()  # as after many other lookups
        files.asked.clear()
        files.read.clear()
        assert log.find_by_timestamp(NOW + 30_500) is not None
        assert {suffix for suffix, *_ in files.asked} == {".timeindex", ".index", ".log"}
        for suffix, start, end in files.read:
            assert any(
                suffix == name and first <= start and end <= last
                for name, first, last in files.asked
            ), "everything that is read was announced"
        (log_bytes,) = (last - first for name, first, last in files.asked if name == ".log")
        assert log_bytes <= 8_500 + (8 << 10), "a batch, and what is behind the next entry"


def test_a_lookup_in_blocks_of_indexes_that_were_searched_reads_the_log_alone(
    tmp_path: Path, files: CountedFiles
) -> None:
    with new_log(tmp_path, TopicConfig(retention_ms=-1), files=files) as log:
        filled(log)
        assert log.find_by_timestamp(NOW + 1) is not None
        files.read.clear()
        assert log.find_by_timestamp(NOW + 30_500) is not None
        assert {suffix for suffix, *_ in files.read} == {".log"}


def test_a_lookup_on_the_event_loop_begins_no_reads(disk_path: Path, files: CountedFiles) -> None:
    with new_log(disk_path / "log", TopicConfig(retention_ms=-1), files=files) as log:
        filled(log)
        assert log.find_by_timestamp(NOW + 1) is not None
        files.asked.clear()
        found = files.without_blocking(lambda: log.find_by_timestamp(NOW + 30_500))
        assert found is not None
        assert files.asked == []
