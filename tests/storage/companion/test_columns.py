"""Append times as columns: as the stretches say, and written as one by one."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from batches import batch
from hypothesis import given
from hypothesis import strategies as st
from storelogs import NOW, followed

from horolog.record import AppendTimeStretch
from horolog.storage import (
    TIMES_AT,
    AppendTimeFile,
    ChangedTimes,
    Files,
    SegmentReader,
    columns_of,
    middle_for,
    packed_entry,
    unpacked,
)

COUNT = 40
LOG = "00000000000000000000.log"


def segment_of(directory: Path, times: list[AppendTimeStretch]) -> SegmentReader:
    data = b"".join(batch(NOW, base_offset=at) for at in range(COUNT))
    followed(directory, data, times)
    return SegmentReader.at(Files(read_only=True), str(directory / LOG), 0)


def said(file: AppendTimeFile, first: int, end: int) -> list[tuple[int, int | None, bool]]:
    """What the columns say of each offset."""
    offsets = np.arange(first, end)
    found = file.columns(first, end).of(offsets)
    return [
        (offset, None if kind == 2 else ms, kind == 1)
        for offset, ms, kind in zip(*(column.tolist() for column in found), strict=True)
    ]


def expected(file: AppendTimeFile, first: int, end: int) -> list[tuple[int, int | None, bool]]:
    """The same, by the stretches."""
    stretches = file.stretches(first, end, seen=True)
    bounds = [*(each.offset for each in stretches[1:]), end]
    return [
        (offset, each.ms, each.is_seen)
        for each, bound in zip(stretches, bounds, strict=True)
        for offset in range(each.offset, bound)
    ]


@given(st.randoms(use_true_random=False))
def test_columns_say_what_the_stretches_do(rng: Random) -> None:
    """Known, seen and unknown ones, with a damaged entry at times."""
    times, ms = [], NOW
    for offset in sorted(rng.sample(range(COUNT), rng.randrange(COUNT))):
        ms += rng.choice((0, 1, 1000))
        kind = rng.random()
        times.append(AppendTimeStretch(offset, None if kind < 0.2 else ms, kind > 0.7))
    with TemporaryDirectory() as directory:
        path = Path(directory, "events-3")
        segment_of(path, times)
        companion = path / LOG.replace(".log", ".companion")
        if companion.exists() and rng.random() < 0.4:
            data = bytearray(companion.read_bytes())
            if len(data) > TIMES_AT:
                data[rng.randrange(TIMES_AT, len(data))] ^= 1 << rng.randrange(8)
                companion.write_bytes(data)
        segment = SegmentReader.at(Files(read_only=True), str(path / LOG), 0)
        file = segment.append_times
        for _ in range(4):
            first = rng.randrange(COUNT)
            end = rng.randrange(first + 1, COUNT + 1)
            assert said(file, first, end) == expected(file, first, end)


@pytest.mark.parametrize("is_seen", [False, True])
def test_columns_are_written_as_entries_one_by_one(is_seen: bool) -> None:
    rng, base, middle = Random(5), 1000, middle_for(NOW)
    rows = [(base + 7 * at, NOW + at * at, rng.randrange(1 << 32)) for at in range(200)]
    offsets, ms, identities = zip(*rows, strict=True)
    changes = ChangedTimes(
        np.array(offsets), np.array(ms), np.array(identities, np.uint32), is_seen
    )
    entries = [
        packed_entry(time - middle, offset - base, identity, is_seen=is_seen)
        for offset, time, identity in rows
    ]
    assert changes.packed(base, middle) == b"".join(entries)


def test_entries_that_are_not_whole_are_left_out() -> None:
    changes = ChangedTimes(
        np.array([1, 2]), np.array([NOW, NOW + 1]), np.array([5, 6], np.uint32), False
    )
    entries = changes.packed(0, NOW)
    found = unpacked(entries[:-1], 0, NOW)
    assert found is not None
    assert found.offsets.tolist() == [1]
    assert unpacked(entries[:5], 0, NOW) is None


def test_stretches_become_columns() -> None:
    found = columns_of(
        [AppendTimeStretch(3, None), AppendTimeStretch(5, 7), AppendTimeStretch(9, 8, True)]
    )
    assert [each.tolist() for each in found] == [[3, 5, 9], [0, 7, 8], [2, 0, 1]]
