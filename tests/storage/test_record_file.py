"""A file of batches is read as far as it is whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import StorageFailed
from horolog.record import LogRecord, build_batch, parse_header, read_records
from horolog.storage import Files, RecordFile


def batch_of(*values: bytes, base_offset: int = 0) -> bytes:
    return build_batch([LogRecord(1000, None, each) for each in values], base_offset=base_offset)


def values_in(file: RecordFile) -> list[bytes | None]:
    return [record.value for batch in file.read() for record in read_records(batch)]


def offsets_in(file: RecordFile) -> list[int]:
    return [parse_header(batch).base_offset for batch in file.read()]


def file_at(path: Path) -> RecordFile:
    return RecordFile(Files(read_only=True), str(path / "some.log"))


def test_a_file_that_is_not_there_is_empty(tmp_path: Path) -> None:
    file = file_at(tmp_path)
    assert list(file.read()) == []
    assert (file.next_offset, [*tmp_path.iterdir()]) == (0, [])


def test_a_torn_tail_is_no_loss(tmp_path: Path) -> None:
    whole = batch_of(b"a")
    for tail in (batch_of(b"b", base_offset=1)[:-1], bytes(5000), b"\0"):
        (tmp_path / "some.log").write_bytes(whole + tail)
        file = file_at(tmp_path)
        assert (values_in(file), file.lost) == ([b"a"], ())
        assert (file.torn_bytes, file.next_offset) == (len(tail), 1)


def test_what_is_whole_in_a_damaged_file_counts(tmp_path: Path) -> None:
    path = tmp_path / "some.log"
    batches = [batch_of(bytes([each]), base_offset=each) for each in range(4)]
    damaged, size = bytearray(b"".join(batches)), len(batches[0])
    damaged[size + 65] ^= 1  # in the records of the second
    damaged[2 * size] ^= 0x40  # in the base offset of the third
    path.write_bytes(damaged)
    file = file_at(tmp_path)
    assert values_in(file) == [b"\0", b"\2", b"\3"]
    assert [each.start for each in file.lost] == [size, 2 * size]
    assert str(path) in str(file.lost[0])
    assert offsets_in(file) == [0, 1, 3]


@pytest.mark.parametrize("damaged", range(3))
def test_a_negative_base_offset_loses_no_batch(tmp_path: Path, damaged: int) -> None:
    batches = [batch_of(bytes([number]), base_offset=number) for number in range(3)]
    size, content = len(batches[0]), bytearray(b"".join(batches))
    content[damaged * size] ^= 0x80
    (tmp_path / "some.log").write_bytes(content)
    file = file_at(tmp_path)
    assert values_in(file) == [b"\0", b"\1", b"\2"]
    assert [(lost.start, lost.end) for lost in file.lost] == [(damaged * size, damaged * size + 8)]
    assert offsets_in(file) == [0, 1, 2]


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "some.log").symlink_to("/etc/passwd")
    with pytest.raises(StorageFailed, match="symbolic link"):
        list(file_at(tmp_path).read())


@given(st.data())
def test_any_damage_is_read_within_bounds(tmp_path: Path, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.binary(max_size=40), min_size=1, max_size=5))
    content = bytearray().join(
        batch_of(value, base_offset=offset) for offset, value in enumerate(values)
    )
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "some.log").write_bytes(content[: data.draw(st.integers(0, len(content)))])
    offsets = offsets_in(file_at(tmp_path))
    assert offsets == sorted(set(offsets))
    assert set(values_in(file_at(tmp_path))) <= set(values)
