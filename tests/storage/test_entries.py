from __future__ import annotations

from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import CorruptIndex
from horolog.storage import Entries, Files, OpenFile

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


@given(
    steps=st.lists(st.integers(1, 3), min_size=1, max_size=40),
    count=st.sampled_from([1, 127, 128, 129, 256, 1500]),
    kept=st.integers(0, 1500),
)
def test_a_search_among_many_blocks_is_right_while_they_grow_and_shrink(
    steps: list[int], count: int, kept: int
) -> None:
    def check(entries: Entries, values: list[int]) -> None:
        asked = {-1, 0, values[-1] + 1, *values[::250], *(v + 1 for v in values[510:515])}
        for value in asked:
            below = [(v, n) for n, v in enumerate(values) if v <= value]
            assert entries.search(0, value) == len(below), value
            assert entries.last_at(value) == (below[-1] if below else None), value

    with TemporaryDirectory() as directory:
        entries = Entries(Files(), f"{directory}/some.index", PAIR, 12 * 4000)
        entries.create()
        values: list[int] = []
        for number in range(count):
            values.append((values[-1] if values else 0) + steps[number % len(steps)])
            entries.append(values[-1], number)
        check(entries, values)
        kept = max(1, min(kept, count))
        entries.keep(kept)
        values = values[:kept]
        for number in range(kept, kept + 600):
            values.append(values[-1] + 5)  # others than those that were there
            entries.append(values[-1], number)
        check(entries, values)
        entries.trim()
        entries.recount()
        check(entries, values)


def test_a_search_among_many_entries_reads_one_block(tmp_path: Path) -> None:
    reads = []

    class Counting(Files):
        def read_at(self, file: OpenFile, size: int, position: int) -> bytes:
            reads.append(size)
            return super().read_at(file, size, position)

    path = tmp_path / "some.index"
    path.write_bytes(b"".join(PAIR.pack(number, number) for number in range(20_000)))
    entries = Entries(Counting(), str(path), PAIR, 12 * 100_000)
    assert entries.last_at(12_345) == (12_345, 12_345)
    reads.clear()
    for number in range(0, 20_000, 777):
        assert entries.last_at(number) == (number, number)
    assert set(reads) <= {128 * 12, 20_000 % 128 * 12}
    assert len(reads) == len(range(0, 20_000, 777))


def test_a_search_among_many_entries_behind_a_header_reads_entries_not_the_header(
    tmp_path: Path,
) -> None:
    path = tmp_path / "some.index"
    path.write_bytes(bytes(range(52)) + b"".join(PAIR.pack(10 * n, n) for n in range(1, 1000)))
    entries = Entries(Files(), str(path), PAIR, 1 << 20, start=52)
    for number in range(1, 1000):
        for column, value in ((0, 10 * number), (1, number)):
            assert entries.search(column, value) == number
            assert entries.search(column, value - 1) == number - 1
        assert entries.last_at(10 * number) == (10 * number, number)
