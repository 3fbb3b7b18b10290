from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from storelogs import NOW, append, new_log, partition_dir, reopened

from companions import lose_seals
from horolog.config import TopicConfig
from horolog.record import iter_headers
from horolog.storage import Files, OpenFile, SegmentEnd, SegmentReader, TimeEntry

CONFIG = TopicConfig(segment_bytes=1000, index_interval_bytes=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Twenty batches of two in several segments, killed, the first three records deleted."""
    with new_log(tmp_path, CONFIG) as log:
        for number in range(20):
            append(log, NOW + number, NOW - number)
    with reopened(tmp_path, CONFIG) as (log_dir, log):
        log.delete_records(3)
        log_dir.checkpoint()
    return tmp_path


def state_of(path: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(file): (file.stat().st_mtime_ns, file.read_bytes())
        for file in path.rglob("*")
        if file.is_file()
    }


def readers(path: Path, files: Files | None = None) -> list[SegmentReader]:
    files = files or Files(read_only=True)
    return [
        SegmentReader(files, str(log.with_suffix("")), int(log.stem), log.stat().st_size)
        for log in sorted(partition_dir(path).glob("*.log"))
    ]


def test_looking_changes_nothing(path: Path) -> None:
    lose_seals(partition_dir(path))
    (partition_dir(path) / "00000000000000000000.timeindex").unlink()
    before = state_of(path)
    for segment in readers(path):
        segment.largest()
        segment.indexes.proved_largest(segment.size)
        segment.whole_end()
        for offset in range(segment.base_offset, segment.base_offset + 10):
            segment.locate(offset)
            segment.position_for(NOW + 5, offset)
    assert state_of(path) == before


LOST: list[tuple[str, ...]] = [
    (),
    (".companion",),
    (".index",),
    (".timeindex",),
    (".companion", ".index", ".timeindex"),
]


@pytest.fixture(params=LOST, ids=["nothing", "seals", "offsets", "times", "all"])
def without(path: Path, request: pytest.FixtureRequest) -> Path:
    """The same, and some files beside the logs are missing."""
    for file in list(partition_dir(path).iterdir()):
        if file.suffix in request.param:
            file.unlink()
    return path


def test_every_offset_is_located_and_every_segment_knows_its_largest_time(without: Path) -> None:
    end = 40
    for segment in reversed(readers(without)):
        for offset in range(segment.base_offset, end):
            place = segment.locate(offset)
            assert place is not None
            assert place[1].base_offset <= offset <= place[1].last_offset
        assert segment.largest() == TimeEntry(NOW + end // 2 - 1, end - 1)
        assert segment.whole_end()[:2] == SegmentEnd(segment.size, end)[:2]
        end = segment.base_offset


def test_a_largest_time_is_proved_or_not_known(without: Path) -> None:
    end = 40
    for segment in reversed(readers(without)):
        known = segment.indexes.proved_largest(segment.size)
        is_known = any(
            (partition_dir(without) / f"{segment.base_offset:020d}{suffix}").exists()
            for suffix in (".companion", ".timeindex")
        )
        assert (known is not None) is is_known
        if known is not None:
            assert known.largest == TimeEntry(NOW + end // 2 - 1, end - 1)
        end = segment.base_offset


def test_no_batch_that_is_asked_for_is_before_the_position_for_its_time(without: Path) -> None:
    for segment in readers(without):
        batches = list(segment.batches().headers())
        for moment in range(NOW - 2, NOW + 22):
            for offset in (segment.base_offset, segment.base_offset + 3):
                start = segment.position_for(moment, offset)
                before = [header for position, header in batches if position < start]
                assert start in [*(position for position, _ in batches), segment.size]
                assert not any(
                    header.max_timestamp >= moment and header.last_offset >= offset
                    for header in before
                )


@pytest.mark.parametrize(
    "torn", [b"", b"\0" * 500, b"\x7f" * 90, b"\0\0\0"], ids=["nothing", "zeros", "junk", "few"]
)
def test_a_live_segment_ends_with_its_last_whole_batch(path: Path, torn: bytes) -> None:
    last = max(partition_dir(path).glob("*.log"))
    whole = last.stat().st_size
    with last.open("ab") as file:
        file.write(torn)
    assert readers(path)[-1].whole_end()[:2] == (whole, 40)
    *_, (position, header) = iter_headers(last.read_bytes()[:whole])
    os.truncate(last, whole - 1)
    assert readers(path)[-1].whole_end()[:2] == (position, header.base_offset)
    data = bytearray(last.read_bytes()[:whole] + b"\0")
    data[-1] ^= 0x55
    last.write_bytes(data)
    assert readers(path)[-1].whole_end()[:2] == (whole, 40), "a checksum is for who reads it"


def test_the_end_of_a_segment_of_an_old_format_is_found(tmp_path: Path) -> None:
    for partition in ("v1-none-0", "v1-gzip-0", "v0-lz4-0", "mixed-0"):
        golden = Path(__file__).parents[2] / "golden" / "old-formats" / partition
        for log in golden.glob("*.log"):
            data = log.read_bytes()
            *_, (position, last) = iter_headers(data)
            stem = tmp_path / partition / log.stem
            stem.parent.mkdir(exist_ok=True)
            stem.with_suffix(".log").write_bytes(data)
            reader = SegmentReader(Files(), str(stem), int(log.stem), len(data))
            assert reader.whole_end()[:2] == (len(data), last.next_offset)
            torn = SegmentReader(Files(), str(stem), int(log.stem), len(data) - 1)
            assert torn.whole_end()[0] == position


def test_entries_of_a_followers_index_name_the_end_of_what_it_appended_at_once(
    path: Path,
) -> None:
    """As those of Kafka until 3.9 do: the position of the first batch, the offset of the last."""
    reads: list[int] = []

    class Counting(Files):
        def read_at(self, file: OpenFile, size: int, position: int) -> bytes:
            reads.append(position)
            return super().read_at(file, size, position)

    log = partition_dir(path) / f"{0:020d}.log"
    lose_seals(log.parent)
    batches = list(iter_headers(log.read_bytes()))
    entries = b"".join(
        struct.pack(">ii", last.last_offset, position)
        for (position, _), (_, last) in zip(batches[1::3], batches[3::3], strict=False)
    )
    log.with_suffix(".index").write_bytes(entries)
    segment = readers(path, Counting(read_only=True))[0]
    for position, header in batches:
        assert segment.locate(header.base_offset) == (position, header)
        assert segment.indexes.position_before(header.last_offset, segment.size) <= position
    assert segment.indexes.position_before(batches[-1][1].last_offset, segment.size) > 0
