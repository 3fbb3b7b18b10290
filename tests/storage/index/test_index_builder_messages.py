"""Plain messages are indexed alike whether they are taken one by one or all at once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from old_messages import build_messages

from horolog.errors import CorruptBatch
from horolog.record import Codec, LogRecord, TimestampType, build_batch, iter_headers
from horolog.storage import BatchReader, Files, IndexBuilder

BASE = 1_000


def some_log(rng: random.Random) -> bytes:
    data, offset = b"", BASE
    for _ in range(rng.choice((1, 4, 9))):
        rows = []
        for _ in range(rng.choice((1, 3, 30))):
            offset += rng.choice((1, 1, 1, 5))
            time = rng.choice((-1, rng.randrange(-50, 50), rng.randrange(1_000)))
            rows.append(LogRecord(time, None, b"v" * rng.randrange(90), (), offset - 1))
        magic = rng.choice((0, 1, 1, 1, 2))
        if magic == 2:
            base = rows[0].offset or 0
            rows = [row._replace(offset=base + at) for at, row in enumerate(rows)]
            data += build_batch(rows, base_offset=base)
            offset = max(offset, base + len(rows))
            continue
        data += build_messages(
            rows,
            magic,
            codec=rng.choice((Codec.NONE, Codec.NONE, Codec.GZIP)),
            timestamp_type=TimestampType(rng.choice((0, 0, 1))),
            append_time=rng.randrange(2_000),
        )
    return data


def entries(rng: random.Random, content: bytes, width: int) -> bytes:
    """Some of an index's entries, and some that are wrong."""
    kept = bytearray()
    for at in range(0, len(content), width):
        entry = bytearray(content[at : at + width])
        if rng.random() < 0.1:
            entry[rng.randrange(width - 4, width)] ^= 1
        if rng.random() < 0.7:
            kept += entry
    return bytes(kept)


def state_of(builder: IndexBuilder) -> tuple[object, ...]:
    return (
        bytes(builder.offset_entries),
        bytes(builder.time_entries),
        builder.largest,
        builder.first_timestamp,
        builder.last_append_time,
        builder.next_offset,
        builder.end,
        builder.last_entry_position,
        builder.untrue,
    )


def built(
    path: Path, found: tuple[bytes, bytes], interval: int, base: int, *, at_once: bool
) -> tuple[object, ...]:
    files = Files()
    reader = BatchReader.of_file(files, str(path))
    builder = IndexBuilder(base, interval, *found)
    stretches = (
        reader.stretches()
        if at_once
        else ((position, header, None) for position, header in reader.headers())
    )
    try:
        builder.add_all(stretches)
    except CorruptBatch as error:
        return (*state_of(builder), str(error))
    finally:
        files.close()
    return state_of(builder)


@pytest.mark.parametrize("case", range(60))
def test_stretches_are_indexed_as_their_messages_are(tmp_path: Path, case: int) -> None:
    rng = random.Random(case)
    path = tmp_path / f"{BASE:020d}.log"
    data = some_log(rng)
    path.write_bytes(data)
    assert list(iter_headers(data))
    interval = rng.choice((0, 60, 300, 4_096))
    plain = built(path, (b"", b""), 0, BASE, at_once=False)
    assert isinstance(plain[0], bytes)
    assert isinstance(plain[1], bytes)
    found = entries(rng, plain[0], 8), entries(rng, plain[1], 12)
    # Offsets may not fit into the index of a segment with another base, in the middle of a stretch.
    for base in (BASE, BASE + 20, BASE - (1 << 31) + 25):
        for given in ((b"", b""), found):
            once = built(path, given, interval, base, at_once=True)
            assert once == built(path, given, interval, base, at_once=False)
