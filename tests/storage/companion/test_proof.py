"""The one rule by which a file beside a log is believed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storelogs import NOW, append, new_log, partition_dir, reopened

from companions import put_seal, seal_in
from horolog.record import iter_headers, parse_header
from horolog.storage import Files, LastBatch, LogFile, identity_of, identity_of_header, proved


@pytest.fixture
def log(tmp_path: Path) -> LogFile:
    """A log of three batches."""
    with new_log(tmp_path) as written:
        for number in range(3):
            append(written, NOW + number)
    return LogFile(Files(read_only=True), f"{partition_dir(tmp_path)}/{0:020d}.log")


def test_what_is_said_of_a_log_holds_while_its_last_batch_is_there(log: LogFile) -> None:
    path = Path(log.path)
    content = path.read_bytes()
    batches = list(iter_headers(content))
    for position, header in batches:
        last = LastBatch.at(log, position, position + header.size)
        assert last.identity == identity_of(content[position:]) == identity_of_header(header)
        assert last.is_in(log)
        path.write_bytes(content + content)  # appended to
        assert last.is_in(log)
        for cut in (0, position, position + 20):
            path.write_bytes(content[:cut])
            assert not last.is_in(log)
        another = bytearray(content)
        another[position + 17] ^= 1  # of the checksum
        path.write_bytes(another)
        assert not last.is_in(log)
        path.write_bytes(content)
    assert LastBatch.at(log, 0, 0).is_in(log), "of no batch anything is true"


@pytest.mark.parametrize(
    "last",
    [
        LastBatch(-1, 80, 0),
        LastBatch(80, 80, 0),
        LastBatch(90, 80, 0),
        LastBatch(0, -5, 0),
        LastBatch(1 << 40, (1 << 40) + 70, 0),
        LastBatch((1 << 63) - 10, (1 << 63) - 1, 0),
    ],
)
def test_a_batch_that_no_log_can_have_is_in_none(log: LogFile, last: LastBatch) -> None:
    assert not last.is_in(log)


@given(first=st.integers(0, 40), more=st.integers(0, 40), true=st.integers(0, 80))
def test_entries_are_true_up_to_the_first_that_is_not(first: int, more: int, true: int) -> None:
    count, true = first + more, max(first, min(true, first + more))
    asked: list[int] = []

    def is_true(number: int) -> bool:
        asked.append(number)
        return number < true

    assert proved(first, count, is_true) == true
    assert all(first <= number < count for number in asked)
    assert len(asked) <= 8


@pytest.mark.parametrize("at", range(0, 80, 3))
def test_a_seal_with_a_flipped_bit_or_of_another_segment_changes_no_answer(
    tmp_path: Path, at: int
) -> None:
    with new_log(tmp_path) as log:
        for number in range(6):
            append(log, NOW + number)
            log.roll(NOW)
    first, second, *_ = sorted(partition_dir(tmp_path).glob("*.companion"))
    content = bytearray(seal_in(first))
    content[at] ^= 8
    put_seal(first, bytes(content) if at % 2 else seal_in(second))
    with reopened(tmp_path) as (_, log):
        assert log.log_end_offset == 6
        for number in range(6):
            found = log.find_by_timestamp(NOW + number)
            assert found is not None
            assert found.offset == number


def test_a_log_that_is_closed_again_without_an_append_is_sealed_with_its_last_batch(
    tmp_path: Path,
) -> None:
    with new_log(tmp_path) as log:
        for number in range(5):
            append(log, NOW + number)
    seals = []
    for cut in (5, 3):
        with reopened(tmp_path) as (log_dir, log):
            log.truncate_to(cut, NOW)
            assert log_dir.close() == []
        (companion,) = partition_dir(tmp_path).glob("*.companion")
        (data,) = (each.read_bytes() for each in partition_dir(tmp_path).glob("*.log"))
        *_, (position, header) = iter_headers(data)
        assert parse_header(data[position:]) == header
        assert int.from_bytes(seal_in(companion)[64:72], "big") == position
        seals.append(seal_in(companion))
    assert seals[0] != seals[1]
