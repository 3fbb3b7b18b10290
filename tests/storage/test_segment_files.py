from __future__ import annotations

import os
from pathlib import Path

import pytest
from storelogs import NOW, TOPIC_ID, append, new_log, partition_dir, reopened

from horolog.config import TopicConfig
from horolog.errors import StorageFailed
from horolog.record.batch import iter_headers
from horolog.storage.index.time import TimeEntry
from horolog.storage.segment_files import list_partitions, open_partition, open_segment

CONFIG = TopicConfig(segment_bytes=1000, index_interval_bytes=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Twenty batches of two in several segments, killed, the first three records deleted."""
    with new_log(tmp_path, CONFIG) as log:
        for number in range(20):
            append(log, NOW + number, NOW - number)
    with reopened(tmp_path, CONFIG) as (log_dir, log):
        log.delete_records(3)
        log_dir.checkpoint()
    return tmp_path


def state_of(path: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(file): (file.stat().st_mtime_ns, file.read_bytes())
        for file in path.rglob("*")
        if file.is_file()
    }


def test_looking_changes_nothing(path: Path) -> None:
    for file in partition_dir(path).glob("*.seal"):
        file.unlink()
    (partition_dir(path) / "00000000000000000000.timeindex").unlink()
    before = state_of(path)
    (directory,) = list_partitions(path)
    found = open_partition(directory)
    for segment in found.segments:
        segment.largest()
        for offset in range(segment.base_offset, segment.base_offset + 10):
            segment.locate(offset)
    assert state_of(path) == before


def test_a_partition_tells_what_it_is(path: Path) -> None:
    found = open_partition(partition_dir(path))
    assert str(found.partition) == "events-3"
    assert found.topic_id == TOPIC_ID
    assert (found.log_start_offset, found.log_end_offset) == (3, 40)
    assert [tuple(epoch) for epoch in found.epochs] == [(0, 3)]
    assert len(found.segments) > 1
    assert found.notes == ()


def test_every_offset_is_located_and_every_segment_knows_its_largest_time(path: Path) -> None:
    for lost in ((), (".seal",), (".seal", ".index", ".timeindex")):
        for file in list(partition_dir(path).iterdir()):
            if file.suffix in lost:
                file.unlink()
        found = open_partition(partition_dir(path))
        end = found.log_end_offset
        for segment in reversed(found.segments):
            for offset in range(segment.base_offset, end):
                place = segment.locate(offset)
                assert place is not None
                assert place[1].base_offset <= offset <= place[1].last_offset
            assert segment.largest() == TimeEntry(NOW + end // 2 - 1, end - 1)
            end = segment.base_offset


@pytest.mark.parametrize(
    "torn", [b"", b"\0" * 500, b"\x7f" * 90, b"\0\0\0"], ids=["nothing", "zeros", "junk", "few"]
)
def test_a_live_segment_is_taken_up_to_its_last_whole_batch(path: Path, torn: bytes) -> None:
    last = max(partition_dir(path).glob("*.log"))
    whole = last.stat().st_size
    with last.open("ab") as file:
        file.write(torn)
    assert open_partition(partition_dir(path)).segments[-1].size == whole
    segment = open_segment(last)
    assert (segment.size, segment.end.next_offset) == (whole, 40)
    *_, (position, header) = iter_headers(last.read_bytes()[:whole])
    os.truncate(last, whole - 1)
    segment = open_segment(last)
    assert (segment.size, segment.end.next_offset) == (position, header.base_offset)


def test_damaged_small_files_are_noted(path: Path) -> None:
    (partition_dir(path) / "leader-epoch-checkpoint").write_text("nonsense")
    (partition_dir(path) / "partition.metadata").write_text("nonsense")
    (path / "log-start-offset-checkpoint").write_text("nonsense")
    found = open_partition(partition_dir(path))
    assert len(found.notes) == 3
    assert (found.topic_id, found.epochs, found.log_start_offset) == (None, (), 0)


def test_what_is_no_partition_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="not named as a partition"):
        open_partition(tmp_path / "nothing")
    with pytest.raises(StorageFailed, match="Cannot read"):
        open_partition(tmp_path / "nothing-0")
    with pytest.raises(StorageFailed, match="20 digits"):
        open_segment(tmp_path / "5.log")
    with pytest.raises(StorageFailed, match="Cannot read"):
        list_partitions(tmp_path / "nothing")


def test_a_directory_of_partitions_is_listed_by_name(path: Path) -> None:
    (path / "a-b-0").mkdir()
    (path / "no partition").mkdir()
    (path / "a-1").write_text("a file")
    assert [found.name for found in list_partitions(path)] == ["a-b-0", "events-3"]
    assert open_partition(path / "a-b-0").segments == ()
    assert open_partition(path / "a-b-0").log_end_offset == 0
