"""What is written next to a log that was made as a whole."""

from pathlib import Path

import pytest
from storelogs import DAY, NOW

from horolog.record.batch import HEADER_SIZE, iter_headers
from horolog.record.builder import Record, build_batch
from horolog.record.timestamps import AppendTimeStretch
from horolog.storage.append_times.file import AppendTimeEntry
from horolog.storage.files import Files
from horolog.storage.segments.finished import entries_of, write_companions
from horolog.storage.segments.reader import SegmentReader

YEAR = 365 * DAY
BATCHES = 5  # of two records


@pytest.fixture
def reader(tmp_path: Path) -> SegmentReader:
    """Of a log without companions."""
    stem = tmp_path / f"{0:020d}"
    log = b"".join(
        build_batch([Record(NOW, None, b"v")] * 2, base_offset=2 * number)
        for number in range(BATCHES)
    )
    stem.with_suffix(".log").write_bytes(log)
    return SegmentReader(Files(), str(stem), 0, len(log))


def written(reader: SegmentReader, *times: tuple[int, int | None]) -> list[AppendTimeStretch]:
    """What the companions say of all records when these times were written, by offset."""
    log = Path(reader.path_of(".log")).read_bytes()
    batches = {header.base_offset: log[at : at + HEADER_SIZE] for at, header in iter_headers(log)}
    entries = [AppendTimeEntry(offset, ms, batches[offset]) for offset, ms in times]
    write_companions(Files(), reader, 4096, lambda end: entries)
    again = SegmentReader(Files(), reader.path_of(""), 0, reader.size)
    again.end = again.whole_end()
    assert again.append_times.damage() is None or not again.has_append_times
    return again.append_times.stretches(0, 2 * BATCHES)


def test_append_times_are_those_that_were_given(reader: SegmentReader) -> None:
    found = written(reader, (0, NOW), (4, None), (6, NOW + 5))
    assert found == [(0, NOW), (4, None), (6, NOW + 5)]


def test_append_times_may_begin_unknown(reader: SegmentReader) -> None:
    expected = [(0, None), (2, NOW), (4, NOW + 1)]
    assert written(reader, (2, NOW), (4, NOW + 1)) == expected
    assert written(reader, (0, None), (2, NOW), (4, NOW + 1)) == expected


def test_no_file_is_written_where_no_append_time_is_known(reader: SegmentReader) -> None:
    assert written(reader, (0, None)) == [(0, None)]
    assert not reader.has_append_times


def test_times_too_far_from_the_first_one_for_the_file_are_unknown(
    reader: SegmentReader,
) -> None:
    far = NOW + 900 * YEAR
    found = written(reader, (0, NOW), (2, far), (4, None), (6, far + 7))
    assert found == [(0, NOW), (2, None), (4, None), (6, None)]


def test_stretches_are_entries_of_the_batches_that_they_begin_in(reader: SegmentReader) -> None:
    stretches = [AppendTimeStretch(0, NOW), AppendTimeStretch(5, None), AppendTimeStretch(99, 1)]
    log = Path(reader.path_of(".log")).read_bytes()
    starts = [at for at, _ in iter_headers(log)]
    entries = entries_of(reader, stretches)
    assert [(each.offset, each.ms) for each in entries] == [(0, NOW), (5, None)]
    for entry, start in zip(entries, (starts[0], starts[2]), strict=True):
        assert log[start:].startswith(bytes(entry.batch))
