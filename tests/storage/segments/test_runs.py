"""Runs of small batches: what indexes note of them together is what they would note of each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from horolog.config import TopicConfig
from horolog.storage import ActiveSegment, Files, IndexWriter, NumberedRun, names

LEAST, MOST = -(1 << 63), (1 << 63) - 1
TIMES = st.one_of(
    st.sampled_from([-1, -1, -2, 0, 1, LEAST, LEAST + 1, MOST]), st.integers(LEAST, MOST)
)
BATCHES = st.lists(st.tuples(st.integers(61, 300), TIMES, st.integers(1, 3)), min_size=1)


def run_of(batches: list[tuple[int, int, int]], base_offset: int) -> NumberedRun:
    sizes, times, offsets = (np.array(column, np.int64) for column in zip(*batches, strict=True))
    following = base_offset + np.cumsum(offsets)
    starts = np.cumsum(sizes) - sizes
    data = bytes(int(sizes.sum()))
    return NumberedRun(data, starts, following - offsets, following, times, None, is_seen=False)


def each_of(run: NumberedRun, position: int) -> list[tuple[int, int, int, int]]:
    sizes = np.diff(run.starts, append=run.size)
    columns = position + run.starts, sizes, run.next_offsets - 1, run.max_timestamps
    return list(zip(*(column.tolist() for column in columns), strict=True))


@given(st.lists(BATCHES, min_size=1, max_size=3), st.sampled_from([0, 61, 200, 1000, 10**6]))
@example([[(100, -1, 1), (100, LEAST, 1), (100, -1, 1)]], 10**6)
@example([[(100, LEAST + 1, 1), (100, LEAST, 1)], [(100, -1, 1)]], 150)
def test_indexes_of_runs_are_those_of_their_batches(
    tmp_path_factory: pytest.TempPathFactory,
    lists: list[list[tuple[int, int, int]]],
    interval_bytes: int,
) -> None:
    directory = tmp_path_factory.mktemp("index")
    found = []
    config = TopicConfig(index_interval_bytes=interval_bytes, segment_index_bytes=240)
    for are_runs in (True, False):
        path = directory / str(are_runs)
        path.mkdir()
        segment = ActiveSegment.create(Files(), str(path), 0, config, created_ms=0).segment
        writer = IndexWriter(segment.log.files, segment.indexes, interval_bytes)
        position, offset, largest = 0, 0, []
        for batches in lists:
            run = run_of(batches, offset)
            rows = run.rows(position, *writer.spacing) if are_runs else each_of(run, position)
            largest.append(writer.add(rows))
            position, offset = position + run.size, run.last_offset + 1
        indexes = [path / f"{0:020}{suffix}" for suffix in (names.OFFSET_INDEX, names.TIME_INDEX)]
        written = [index.read_bytes() for index in indexes]
        found.append((largest, writer.noted(), writer.spacing, written))
        segment.log.files.close()
    assert found[0] == found[1]


def test_batches_between_two_index_entries_are_one_row() -> None:
    run = run_of([(100, at, 1) for at in range(1000)], 0)
    assert len(list(run.rows(0, 4096, 4096))) == 49
