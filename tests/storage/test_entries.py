from __future__ import annotations

from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import CorruptIndex
from horolog.storage.entries import Entries
from horolog.storage.files import Files

PAIR = Struct(">qi")


@pytest.fixture
def entries(tmp_path: Path) -> Entries:
    entries = Entries(Files(), str(tmp_path / "some.index"), PAIR, 500)
    entries.create()
    return entries


def test_a_new_file_is_sparse_and_as_long_as_whole_entries_fit(entries: Entries) -> None:
    assert Path(entries.path).stat().st_size == 41 * 12
    assert entries.capacity == 41
    assert len(entries) == 0


def test_entries_are_read_back_in_order(entries: Entries) -> None:
    for number in range(5):
        entries.append(number * 10, number)
    assert [entries[index] for index in range(len(entries))] == [(n * 10, n) for n in range(5)]
    assert Path(entries.path).read_bytes()[12:24] == bytes.fromhex("000000000000000a 00000001")


def test_trimming_cuts_what_is_not_in_use_and_allocating_brings_it_back(entries: Entries) -> None:
    entries.append(1, 1)
    entries.append(2, 2)
    entries.keep(1)
    entries.trim()
    assert Path(entries.path).stat().st_size == 12
    entries.allocate()
    assert Path(entries.path).stat().st_size == 41 * 12
    assert Path(entries.path).read_bytes()[12:] == bytes(40 * 12)


def test_forgotten_entries_do_not_come_back(entries: Entries) -> None:
    for number in range(1, 4):
        entries.append(number, number)
    entries.keep(1)
    entries.allocate()
    entries.recount()
    assert len(entries) == 1


def test_an_entry_beyond_the_file_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "some.index"
    path.write_bytes(bytes(17))
    with pytest.raises(CorruptIndex, match="ends before entry 3"):
        Entries(Files(), str(path), PAIR, 500)[3]


@given(
    times=st.lists(st.integers(1, 10_000), max_size=1300, unique=True).map(sorted),
    padding=st.integers(0, 40),
    odd=st.integers(0, 11),
)
def test_the_zeros_behind_the_entries_are_no_entries(
    times: list[int], padding: int, odd: int
) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "some.index"
        data = b"".join(PAIR.pack(time, number) for number, time in enumerate(times))
        path.write_bytes(data + bytes(12 * padding + odd))
        entries = Entries(Files(), str(path), PAIR, 20_000)
        assert len(entries) == len(times)


@given(
    times=st.lists(st.integers(1, 5000), max_size=1500, unique=True).map(sorted),
    asked=st.lists(st.integers(0, 5001), min_size=1, max_size=60),
)
def test_a_search_counts_the_entries_not_above_a_value(times: list[int], asked: list[int]) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "some.index"
        path.write_bytes(b"".join(PAIR.pack(time, time) for time in times))
        entries = Entries(Files(), str(path), PAIR, 20_000)
        for value in {*asked, *times[::50], *times[-2:]}:
            assert entries.search(0, value) == sum(time <= value for time in times)
            assert entries.search(1, value) == sum(time <= value for time in times)
