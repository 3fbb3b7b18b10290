from __future__ import annotations

from pathlib import Path

import pytest

from horolog.storage import Files, TimeEntry, TimeIndex


@pytest.fixture
def index(tmp_path: Path) -> TimeIndex:
    index = TimeIndex(Files(), str(tmp_path / "00000000000000000040.timeindex"), 40, 30 * 12)
    index.entries.create()
    index.maybe_append(100, 50)
    index.maybe_append(200, 60)
    return index


def test_entries_are_kafkas_bytes(index: TimeIndex) -> None:
    data = Path(index.entries.path).read_bytes()
    assert data[:12] == bytes.fromhex("0000000000000064 0000000a")
    assert data[24:] == bytes(28 * 12)


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        pytest.param(99, TimeEntry(-1, 40), id="before the first entry: start of segment"),
        pytest.param(100, TimeEntry(100, 50), id="exactly on an entry"),
        pytest.param(199, TimeEntry(100, 50), id="between two entries: the earlier"),
        pytest.param(999, TimeEntry(200, 60), id="after the last entry"),
        pytest.param(-5000, TimeEntry(-1, 40), id="before 1970: start of segment"),
    ],
)
def test_lookup(index: TimeIndex, moment: int, expected: TimeEntry) -> None:
    assert index.lookup(moment) == expected


@pytest.mark.parametrize("timestamp", [200, 150, -1, -5000])
def test_what_is_not_later_adds_nothing(index: TimeIndex, timestamp: int) -> None:
    index.maybe_append(timestamp, 75)
    assert index.last == TimeEntry(200, 60)
    assert len(index.entries) == 2


@pytest.mark.parametrize("timestamp", [-1, -2, -(1 << 63)])
def test_nothing_below_zero_is_ever_written(tmp_path: Path, timestamp: int) -> None:
    index = TimeIndex(Files(), str(tmp_path / "00000000000000000040.timeindex"), 40, 120)
    index.entries.create()
    index.maybe_append(timestamp, 50)
    assert index.last == TimeEntry(-1, 40)
    index.entries.trim()
    assert Path(index.entries.path).read_bytes() == b""


def test_the_first_moment_of_1970_is_a_time(tmp_path: Path) -> None:
    index = TimeIndex(Files(), str(tmp_path / "00000000000000000040.timeindex"), 40, 120)
    index.entries.create()
    index.maybe_append(0, 41)
    assert index.lookup(0) == TimeEntry(0, 41)


def test_it_is_full_while_the_last_slot_is_free(index: TimeIndex) -> None:
    for number in range(26):
        index.maybe_append(201 + number, 61 + number)
        assert not index.is_full
    index.maybe_append(900, 90)
    assert index.is_full
    index.maybe_append(1000, 99)
    assert index.last == TimeEntry(1000, 99)
