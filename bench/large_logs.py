"""Logs of many segments of 1 GB, made in seconds and alike for both sides.

A batch takes 64 kB and holds sixteen records a millisecond apart; the value of the last one is
zeros, and they are a hole in the file. So a segment takes 64 MB on the disk, and yet is a log like
any other: lengths, offsets, times, checksums and both indexes are true. Both sides read the same
`.log` files (hard links); each has its own indexes, with the same content.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.clients import T0_MS

from horolog.config import TopicConfig
from horolog.record.batch import HEADER_SIZE, parse_header, with_records
from horolog.record.builder import LogRecord, build_batch
from horolog.storage.index.builder import IndexBuilder

SEGMENT_BYTES = 1 << 30
BATCH_BYTES = 64 << 10
RECORDS = 16  # of a batch
BATCHES = SEGMENT_BYTES // BATCH_BYTES
RECORDS_OF_SEGMENT = BATCHES * RECORDS
_BLOCK = 4096


def _sample() -> bytes:
    """A batch of exactly `BATCH_BYTES` that is zeros but for its first block."""

    def batch(padding: int) -> bytes:
        times = [T0_MS + at for at in range(RECORDS)]
        values = [b"%0100d" % at for at in range(RECORDS - 1)] + [bytes(padding)]
        return build_batch(
            [LogRecord(time, None, value) for time, value in zip(times, values, strict=True)]
        )

    near = BATCH_BYTES - _BLOCK
    sample = batch(near + BATCH_BYTES - len(batch(near)))
    assert len(sample) == BATCH_BYTES
    assert not any(sample[_BLOCK:])
    return sample


def write_segments(counts: Mapping[Path, int]) -> None:
    """Put this many segments into each partition directory, in place of what is there."""
    sample = _sample()
    for directory in counts:
        for old in directory.glob("0*"):
            old.unlink()
    for segment in range(max(counts.values())):
        base = segment * RECORDS_OF_SEGMENT
        first, *others = [directory for directory, count in counts.items() if count > segment]
        log = first / f"{base:020d}.log"
        facts = _write_log(log, base, sample)
        for directory in others:
            os.link(log, directory / log.name)
        for directory in (first, *others):
            (directory / f"{base:020d}.index").write_bytes(facts.offset_entries)
            (directory / f"{base:020d}.timeindex").write_bytes(facts.time_entries)


def _write_log(path: Path, base: int, sample: bytes) -> IndexBuilder:
    header, records = parse_header(sample), sample[HEADER_SIZE:]
    facts = IndexBuilder(base, TopicConfig().index_interval_bytes)
    with path.open("wb") as file:
        for number in range(BATCHES):
            offset, position = base + number * RECORDS, number * BATCH_BYTES
            moved = header._replace(
                base_offset=offset,
                leader_epoch=0,
                base_timestamp=header.base_timestamp + offset,
                max_timestamp=header.max_timestamp + offset,
            )
            os.pwrite(file.fileno(), with_records(moved, records)[:_BLOCK], position)
            facts.add(position, moved)
        file.truncate(SEGMENT_BYTES)
    facts.finish()
    return facts


def forget_cached(directories: Sequence[Path]) -> None:
    """Have the page cache forget these partitions, as far as no process has them mapped."""
    for directory in directories:
        for path in directory.iterdir():
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
