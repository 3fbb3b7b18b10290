from __future__ import annotations

from pathlib import Path

import pytest
from storelogs import NOW, batch

from horolog.errors import CorruptBatch
from horolog.record.batch import parse_header
from horolog.storage.files import Files, OpenFile
from horolog.storage.headers import find_batch, walk_headers

FILES = Files()
# Small ones by the dozen, one larger than any read, and small ones again.
BATCHES = [
    batch(NOW, NOW, base_offset=40 + 2 * number, value=b"v" * size)
    for number, size in enumerate([10] * 80 + [200_000] + [10] * 30 + [5000] * 3)
]


@pytest.fixture
def log(tmp_path: Path) -> OpenFile:
    file = FILES.create(str(tmp_path / "00000000000000000040.log"))
    FILES.write_at(file, [b"".join(BATCHES)], 0)
    return file


def positions() -> list[int]:
    return [sum(map(len, BATCHES[:number])) for number in range(len(BATCHES))]


END = sum(map(len, BATCHES))


@pytest.mark.parametrize("first", [0, 1, 79, 80, 81, 113])
def test_every_header_is_met_once_with_its_position(log: OpenFile, first: int) -> None:
    expected = [
        (position, parse_header(data)) for position, data in zip(positions(), BATCHES, strict=True)
    ]
    assert list(walk_headers(FILES, log, positions()[first], END)) == expected[first:]


def test_nothing_is_looked_at_beyond_the_end(log: OpenFile) -> None:
    FILES.write_at(log, [b"junk"], END)
    assert len(list(walk_headers(FILES, log, 0, END))) == len(BATCHES)
    with pytest.raises(CorruptBatch, match=rf"byte {END}"):
        list(walk_headers(FILES, log, 0, END + 4))


def test_a_batch_that_reaches_beyond_the_end_is_damage(log: OpenFile) -> None:
    with pytest.raises(CorruptBatch, match="does not fit"):
        list(walk_headers(FILES, log, 0, END - 1))


def test_each_offset_is_found_from_wherever_the_search_starts(log: OpenFile) -> None:
    last = 40 + 2 * len(BATCHES)
    for first in (0, 70, 80, 100):
        for offset in range(40 + 2 * first, last, 3):
            found = find_batch(FILES, log, positions()[first], END, offset)
            assert found is not None
            position, header = found
            assert header.base_offset <= offset <= header.last_offset
            assert position == positions()[(offset - 40) // 2]
    assert find_batch(FILES, log, 0, END, last) is None


@pytest.mark.parametrize(
    ("at", "damage"),
    [
        pytest.param(8, b"\xff\xff\xff\xff", id="a length below zero"),
        pytest.param(8, b"\0\0\0\0", id="no length"),
        pytest.param(8, b"\x7f\xff\xff\xff", id="a length beyond the end"),
        pytest.param(16, b"\3", id="another magic"),
        pytest.param(23, b"\xff\xff\xff\xff", id="an offset delta below zero"),
    ],
)
@pytest.mark.parametrize("number", [0, 5, 80, 90])
def test_a_search_ends_at_damage(log: OpenFile, at: int, damage: bytes, number: int) -> None:
    position = positions()[number]
    FILES.write_at(log, [damage], position + at)
    with pytest.raises(CorruptBatch, match=rf"00040\.log, byte {position}"):
        find_batch(FILES, log, 0, END, 40 + 2 * len(BATCHES) - 1)
