from __future__ import annotations

from pathlib import Path

import pytest

from horolog.storage import Files, OffsetIndex, OffsetPosition


@pytest.fixture
def index(tmp_path: Path) -> OffsetIndex:
    index = OffsetIndex(Files(), str(tmp_path / "00000000000000000045.index"), 45, 30 * 8)
    index.entries.create()
    index.append(52, 4096)
    index.append(60, 8200)
    return index


def test_entries_are_kafkas_bytes(index: OffsetIndex) -> None:
    data = Path(index.entries.path).read_bytes()
    assert data[:16] == bytes.fromhex("00000007 00001000 0000000f 00002008")
    assert data[16:] == bytes(28 * 8)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        pytest.param(45, OffsetPosition(45, 0), id="before the first entry: start of segment"),
        pytest.param(51, OffsetPosition(45, 0), id="just before the first entry"),
        pytest.param(52, OffsetPosition(52, 4096), id="exactly on an entry"),
        pytest.param(59, OffsetPosition(52, 4096), id="between two: the earlier"),
        pytest.param(99, OffsetPosition(60, 8200), id="after the last"),
    ],
)
def test_lookup(index: OffsetIndex, offset: int, expected: OffsetPosition) -> None:
    assert index.lookup(offset) == expected


@pytest.mark.parametrize(
    ("offset", "expected"), [(45, 4096), (51, 4096), (52, 8200), (59, 8200), (60, None), (99, None)]
)
def test_the_entry_after_an_offset(index: OffsetIndex, offset: int, expected: int | None) -> None:
    assert index.position_after(offset) == expected


def test_the_entry_after_an_offset_is_not_read_from_another_block(tmp_path: Path) -> None:
    index = OffsetIndex(Files(), str(tmp_path / "00000000000000000000.index"), 0, 300 * 8)
    index.entries.create()
    for number in range(200):
        index.append(number, 10 * number)
    assert index.position_after(126) == 1270
    assert index.position_after(127) is None
    assert index.position_after(128) == 1290


def test_an_empty_index_points_to_the_beginning(tmp_path: Path) -> None:
    index = OffsetIndex(Files(), str(tmp_path / "00000000000000000045.index"), 45, 80)
    index.entries.create()
    assert index.last == index.lookup(99) == OffsetPosition(45, 0)


def test_it_is_full_when_every_slot_is_taken(index: OffsetIndex) -> None:
    for number in range(27):
        index.append(61 + number, 10_000 + number)
        assert not index.is_full
    index.append(100, 20_000)
    assert index.is_full
