from __future__ import annotations

from itertools import chain
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
from batches import batch
from hypothesis import given
from hypothesis import strategies as st
from old_messages import build_messages
from plain_kernels import plain_and_compiled
from storelogs import NOW

from horolog.errors import CorruptBatch
from horolog.record import (
    CLEANING_KERNELS,
    HEADER_SIZE,
    BatchHeader,
    LogRecord,
    iter_headers,
    parse_header,
)
from horolog.storage import (
    EVERYTHING,
    FEWEST_BYTES,
    HEADERS,
    MAX_OFFSET,
    BatchReader,
    Files,
    OpenFile,
    ReadAhead,
    TornTail,
)

FILES = Files()
FIRST = "00000000000000000000"
# Small ones by the dozen, one larger than any read, and small ones again.
BATCHES = [
    batch(NOW, NOW, base_offset=40 + 2 * number, value=b"v" * size)
    for number, size in enumerate([10] * 80 + [200_000] + [10] * 30 + [5000] * 3)
]


class CountedFiles(Files):
    """Counts the bytes that are read."""

    read_bytes = 0

    def read_at(self, file: OpenFile, size: int, position: int) -> bytes:
        data = super().read_at(file, size, position)
        self.read_bytes += len(data)
        return data


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
    assert list(BatchReader(FILES, log, END).headers(positions()[first])) == expected[first:]


def test_nothing_is_looked_at_beyond_the_end(log: OpenFile) -> None:
    FILES.write_at(log, [b"junk"], END)
    assert len(list(BatchReader(FILES, log, END).headers(0))) == len(BATCHES)
    with pytest.raises(CorruptBatch, match=rf"byte {END}"):
        list(BatchReader(FILES, log, END + 4).headers(0))


def test_a_batch_that_reaches_beyond_the_end_is_damage(log: OpenFile) -> None:
    with pytest.raises(CorruptBatch, match="does not fit"):
        list(BatchReader(FILES, log, END - 1).headers(0))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_short_message_of_an_old_format_at_the_end_is_a_batch(log: OpenFile, magic: int) -> None:
    message = build_messages([LogRecord(NOW, b"k", b"v")], magic, base_offset=9_000)
    assert len(message) < HEADER_SIZE
    FILES.write_at(log, [message], END)
    end = END + len(message)
    *_, (position, header) = BatchReader(FILES, log, end).whole_headers()
    assert (position, header.magic, header.last_offset) == (END, magic, 9_000)
    assert BatchReader(FILES, log, end).header(END) == header
    assert len(list(BatchReader(FILES, log, end - 1).whole_headers())) == len(BATCHES)
    with pytest.raises(TornTail):
        list(BatchReader(FILES, log, end - 1).headers())


def test_each_offset_is_found_from_wherever_the_search_starts(log: OpenFile) -> None:
    last = 40 + 2 * len(BATCHES)
    for first in (0, 70, 80, 100):
        for offset in range(40 + 2 * first, last, 3):
            found = BatchReader(FILES, log, END).find(positions()[first], offset)
            assert found is not None
            position, header = found
            assert header.base_offset <= offset <= header.last_offset
            assert position == positions()[(offset - 40) // 2]
    assert BatchReader(FILES, log, END).find(0, last) is None


@pytest.mark.parametrize("small", [10, 5000])
def test_a_search_by_offset_and_time_finds_what_a_walk_finds(tmp_path: Path, small: int) -> None:
    times = [NOW + (number * 37) % 101 for number in range(150)]
    batches = [
        batch(time, base_offset=number, value=b"v" * (small if number % 40 else 70_000))
        for number, time in enumerate(times)
    ]
    batches[77] = build_messages([LogRecord(times[77], b"k", b"v")], 1, base_offset=77)
    file = FILES.create(str(tmp_path / f"{FIRST}.log"))
    FILES.write_at(file, [b"".join(batches)], 0)
    size = sum(map(len, batches))
    walked = list(BatchReader(FILES, file, size).headers())
    for start in (0, 3, 39, 40, 76, 77, 78, 149):
        for offset in (0, 41, 77, 78, 149, 150):
            for time in range(NOW - 1, NOW + 103, 13):
                found = BatchReader(FILES, file, size).find(walked[start][0], offset, time)
                expected = (
                    each
                    for each in walked[start:]
                    if each[1].last_offset >= offset and each[1].max_timestamp >= time
                )
                assert found == next(expected, None)


def test_records_are_read_as_far_as_they_are_asked_for(tmp_path: Path) -> None:
    data = batch(*range(NOW, NOW + 2000), value=b"v" * 500)
    files = CountedFiles()
    file = files.create(str(tmp_path / f"{FIRST}.log"))
    files.write_at(file, [data], 0)
    for least in (1, 10_000, 100_000, len(data)):
        files.read_bytes = 0
        log = BatchReader(files, file, len(data))
        ((position, header),) = log.headers()
        seen = b""
        held = log.held_records(position, header)
        for piece in chain((held,), log.more_records(position, header, len(held))):
            seen += piece
            if len(seen) >= least:
                break
        assert data[HEADER_SIZE:].startswith(seen)
        assert len(seen) >= min(least, len(data) - HEADER_SIZE)
        assert files.read_bytes <= 5 * least + 70_000
    assert seen == data[HEADER_SIZE:]


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
        BatchReader(FILES, log, END).find(0, 40 + 2 * len(BATCHES) - 1)


AHEADS = [HEADERS, FEWEST_BYTES, EVERYTHING, ReadAhead(100, 300, 1000)]


@pytest.mark.parametrize("missing", [1, 30, 60, 61, 62, 200])
def test_a_torn_tail_is_distinguished_from_damage_and_ends_a_walk_over_what_is_whole(
    log: OpenFile, missing: int
) -> None:
    reader = BatchReader(FILES, log, END - missing)
    whole = [place for place, data in zip(positions(), BATCHES, strict=True)]
    whole = [place for place in whole[1:] if place <= END - missing]
    assert len(list(reader.whole_headers())) == len(whole)
    with pytest.raises(TornTail):
        list(reader.headers())
    FILES.write_at(log, [b"\3"], positions()[-2] + 16)
    with pytest.raises(CorruptBatch, match="00040") as error:
        list(BatchReader(FILES, log, END).whole_headers())
    assert not isinstance(error.value, TornTail)
    assert "00040" not in error.value.reason


@pytest.mark.parametrize("ahead", AHEADS)
def test_headers_bytes_and_checksums_may_be_asked_for_in_any_order(
    log: OpenFile, ahead: ReadAhead
) -> None:
    reader = BatchReader(FILES, log, END, ahead)
    for number, (position, header) in enumerate(reader.headers()):
        if number % 3 == 0:
            reader.check(position, header)
        if number % 2 == 0:
            assert reader.batch(position, header) == BATCHES[number]
        if number % 5 == 0:
            assert reader.header(positions()[7]).base_offset == 54
        reader.check(position, header)


@pytest.mark.parametrize("ahead", AHEADS)
@pytest.mark.parametrize("number", [0, 80, 100])
def test_a_changed_byte_is_found_by_its_checksum(
    log: OpenFile, ahead: ReadAhead, number: int
) -> None:
    FILES.write_at(log, [b"~"], positions()[number] + len(BATCHES[number]) - 2)
    reader = BatchReader(FILES, log, END, ahead)
    for at, (position, header) in enumerate(reader.headers()):
        if at == number:
            with pytest.raises(CorruptBatch, match=f"byte {position}: Record is corrupt"):
                reader.check(position, header)
        else:
            reader.check(position, header)


@pytest.mark.parametrize("ahead", AHEADS)
@pytest.mark.parametrize("step", [1, 2, 7, 40])
def test_batches_that_are_asked_for_come_whole_and_no_others(
    log: OpenFile, ahead: ReadAhead, step: int
) -> None:
    def wants(header: BatchHeader) -> bool:
        return header.base_offset // 2 % step == 0

    last = 40 + 2 * 110
    buffers = BatchReader(FILES, log, END, ahead).selected(0, last, wants if step > 1 else None)
    got = [header.base_offset for data in buffers for _, header in iter_headers(bytes(data))]
    assert got == [offset for offset in range(40, last, 2) if offset // 2 % step == 0]


def test_batches_before_damage_are_given_before_the_damage_is_reported(log: OpenFile) -> None:
    FILES.write_at(log, [b"\3"], positions()[90] + 16)
    buffers = BatchReader(FILES, log, END).selected(0, 1 << 62, lambda header: True)
    found = []

    def read_on() -> None:
        for data in buffers:
            found.extend(header.base_offset for _, header in iter_headers(bytes(data)))

    with pytest.raises(CorruptBatch, match=f"byte {positions()[90]}"):
        read_on()
    assert found == list(range(40, 40 + 2 * 90, 2))


@given(st.randoms(use_true_random=False))
def test_kernels_pass_the_batches_that_the_walk_does(rng: Random) -> None:
    """Of all formats, some with wrong offsets, sizes or formats, or torn."""
    pieces, base = [], 40
    for _ in range(rng.randrange(1, 12)):
        if rng.random() < 0.2:
            records = [LogRecord(NOW, b"k", b"v", offset=base + at) for at in range(3)]
            pieces.append(build_messages(records, rng.randrange(2)))
            base += 3
        else:
            pieces.append(batch(*[NOW] * rng.randrange(1, 4), base_offset=base))
            base += rng.randrange(3, 6)
    data = bytearray(b"".join(pieces))
    if rng.random() < 0.7:
        start = sum(map(len, pieces[: rng.randrange(len(pieces))]))
        data[start + rng.choice((0, 3, 7, 8, 10, 11, 16, 23, 26))] ^= 1 << rng.randrange(8)
    data = data[: len(data) - rng.choice((0, 0, 1, 70))]
    limit, end_offset = rng.choice((None, base, base - 4)), rng.choice((MAX_OFFSET, base - 3))

    def read() -> list[bytes | str]:
        found: list[bytes | str] = []
        reader = BatchReader(FILES, file, len(data), EVERYTHING, rng.choice((0, 40)), limit)
        try:
            found += [bytes(each) for each in reader.selected(0, end_offset, None)]
        except CorruptBatch as error:
            found.append(str(error))
        return found

    with TemporaryDirectory() as directory:
        file = FILES.create(f"{directory}/{FIRST}.log")
        FILES.write_at(file, [data], 0)
        state = rng.getstate()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(CLEANING_KERNELS, "run", SimpleNamespace(pass_whole=lambda *_: None))
            expected = read()
        for kernels in plain_and_compiled(CLEANING_KERNELS):
            rng.setstate(state)
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(CLEANING_KERNELS, "run", kernels)
                assert read() == expected
        FILES.forget(file.path)
