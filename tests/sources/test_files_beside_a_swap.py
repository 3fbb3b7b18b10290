"""Files of a log whose segments are being replaced: as they were before, or as they are after."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from compacting import COMPACT, clean, put
from log_reading import Read, schema_of
from pyspark.sql.datasource import InputPartition
from storelogs import NOW, new_log
from swapped import EVENTS, Watched, end_swap, fill, offsets, states

from horolog.sources import DataLost, scan
from horolog.spark.read.batch import FilteringLogReader
from horolog.storage import REPLACED, Compaction, FileEntry, Files, PartitionReader, find_target


@pytest.mark.parametrize("written_down", [True, False], ids=["ours", "kafkas"])
def test_files_give_the_log_before_a_swap_or_after_it(tmp_path: Path, written_down: bool) -> None:
    for path, either in states(tmp_path):
        directory = path / str(EVENTS)
        if not written_down:
            (directory / REPLACED).unlink(missing_ok=True)
        found = scan(path, "events", columns=("offset",)).read_all().column("offset").to_pylist()
        assert found in either, path
        read = Read(directory)
        assert read.offsets() in either, path
        reader = PartitionReader(Files(read_only=True), directory)
        found = [
            header.base_offset
            for segment in reader.segments
            for _, header in segment.headers(0, segment.size)
        ]
        assert found in either, path


def test_append_times_are_known_before_a_swap_and_after_it(tmp_path: Path) -> None:
    schema = schema_of(("offset", "appendTimeMs"))
    for path, either in states(tmp_path):
        given = [
            (row["offset"], row["appendTimeMs"])
            for row in Read(path, schema=schema, fromAppendTime=NOW).rows()
        ]
        assert [offset for offset, _ in given] in either, path
        assert all(ms == NOW + 1000 * offset + 7 for offset, ms in given), path


def given(reader: FilteringLogReader, partitions: list[InputPartition]) -> list[int]:
    return [
        row["offset"]
        for partition in partitions
        for table in reader.read(partition)
        for row in table.to_pylist()
    ]


def test_a_task_that_runs_within_a_swap_gives_each_record_that_is_kept(tmp_path: Path) -> None:
    files = Watched()
    with new_log(tmp_path, COMPACT, files=files) as log:
        fill(log)
        before, found = offsets(log), list[list[int]]()
        planned = iter([Read(log.directory).plan() for _ in range(200)])

        def look() -> None:
            found.append(given(*next(planned)))
            found.append(Read(log.directory).offsets())

        files.look = look
        clean(log)
        files.look = None
        kept = set(offsets(log))
    for each in found:
        assert each == sorted(set(each))
        assert kept <= set(each) <= set(before)


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("segment_bytes", [500, 1500])
def test_a_task_planned_before_a_swap_gives_each_record_that_is_kept(
    tmp_path: Path, segment_bytes: int, fails: str, removed: bool
) -> None:
    with new_log(tmp_path, COMPACT) as log:
        fill(log)
        planned = Read(log.directory, failOnDataLoss=fails).plan()
        before = offsets(log)
        log.config = replace(COMPACT, segment_bytes=segment_bytes)
        clean(log)
        if removed:
            log.removed_files.remove_due(1 << 60)
        kept = offsets(log)
        assert kept != before
        found = given(*planned)
        assert found == sorted(set(found))
        assert set(kept) <= set(found) <= set(before)


def test_a_task_whose_offsets_the_log_start_has_passed_reports_what_was_deleted(
    tmp_path: Path,
) -> None:
    with new_log(tmp_path, COMPACT) as log:
        fill(log)
        planned = Read(log.directory).plan()
        clean(log)
        for path in Path(log.directory).iterdir():
            if path.name.endswith(".deleted") or path.name.startswith(f"{0:020d}"):
                path.unlink()
        with pytest.raises(DataLost, match="was deleted before it was read"):
            given(*planned)


def test_a_dry_run_of_a_compaction_counts_a_segment_that_is_being_replaced(
    tmp_path: Path,
) -> None:
    for path, either in states(tmp_path):
        work = Compaction(find_target(path), NOW, dry_run=True).steps()
        try:
            while True:
                next(work)
        except StopIteration as ended:
            (would,) = ended.value
        last = either[0][-1] // 5 * 5  # the segment that is appended to is not compacted
        counts = {sum(offset < last for offset in offsets) for offsets in either}
        assert would.records_before in counts, path


def test_a_swap_that_ends_while_files_are_listed_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, either = next((path, either) for path, either in states(tmp_path) if swaps_in(path))
    listed = Files.below

    def below(self: Files, directory: str) -> Iterator[FileEntry]:
        found = [*listed(self, directory)]
        end_swap(path)
        return iter(found)

    monkeypatch.setattr(Files, "below", below)
    assert Read(path).offsets() in either


def test_a_last_segment_that_is_compacted_since_it_was_listed_is_no_shorter_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_log(tmp_path, COMPACT) as log:
        fill(log)
        before, listed = offsets(log), Files.below

        def below(self: Files, directory: str) -> Iterator[FileEntry]:
            found = [*listed(self, directory)]
            monkeypatch.undo()
            log.roll(NOW)
            put(log, b"a")
            clean(log)
            log.removed_files.remove_due(1 << 60)
            return iter(found)

        monkeypatch.setattr(Files, "below", below)
        assert Read(tmp_path).offsets() in (before, offsets(log))


def swaps_in(path: Path) -> bool:
    return any(path.rglob("*.log.swap")) and not any(path.rglob("*.cleaned"))


def test_offsets_that_compaction_leaves_out_behind_a_segment_are_not_lost(tmp_path: Path) -> None:
    with new_log(tmp_path, replace(COMPACT, segment_bytes=100)) as log:
        for key in b"a", b"b", b"b", b"c":
            put(log, key)
        log.config = replace(COMPACT, segment_bytes=200)
        clean(log)
        kept = offsets(log)
        directory = tmp_path / "alone" / "events-3"
        shutil.copytree(log.directory, directory)
    assert kept == [0, 2, 3]
    assert Read(directory).offsets() == kept
