"""`log verify` finds the same in logs of plain messages, walked many at a time or one by one."""

from __future__ import annotations

import random
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples import some_of
from old_messages import build_messages
from storelogs import NOW, new_log, partition_dir

from horolog.config import TopicConfig
from horolog.record import BatchHeader, Codec, LogRecord, TimestampType, iter_headers
from horolog.storage import BatchReader, Checked, Finding, Severity, Verification, prepare

EVER = 1 << 60


def written(path: Path, rng: random.Random) -> Path:
    """Segments of v0 and v1, with all files that a broker keeps beside them."""
    with new_log(path, TopicConfig()) as log:
        for at in range(12):
            magic, kind = rng.choice((0, 1, 1)), TimestampType(rng.choice((0, 0, 1)))
            log.config = TopicConfig(
                message_format_version=magic,
                message_timestamp_type=kind,
                segment_bytes=4_000,
                index_interval_bytes=200,
                segment_ms=EVER,
                message_timestamp_after_max_ms=EVER,
            )
            rows = [
                LogRecord(
                    rng.choice((-1, rng.randrange(-9, 9), NOW + rng.randrange(99))), b"k", b"v" * 9
                )
                for _ in range(rng.choice((1, 5, 30)))
            ]
            codec = rng.choice((Codec.NONE, Codec.NONE, Codec.GZIP))
            sent = build_messages(rows, magic, codec=codec)
            now_ms = NOW + at // 3
            log.append(prepare(sent, log.config, now_ms, produce_version=2), now_ms)
        log.roll(NOW + 9)
    return partition_dir(path)


def damage(directory: Path, rng: random.Random) -> None:
    """Change some bytes of some files; often with a checksum that is right again."""
    files = [
        each
        for each in sorted(directory.iterdir())
        if each.suffix in (".log", ".index", ".timeindex", ".companion") and each.stat().st_size
    ]
    for _ in range(rng.choice((0, 1, 1, 3))):
        path = rng.choice(files)
        data = bytearray(path.read_bytes())
        if path.suffix == ".log":
            position, header = rng.choice(list(iter_headers(bytes(data))) or [(0, None)])
            if header is None:
                continue
            match rng.randrange(4):
                case 0:  # offsets that do not follow
                    data[position : position + 8] = (
                        header.last_offset + rng.choice((-1, 9))
                    ).to_bytes(8, "big", signed=True)
                case 1:
                    data[position + rng.randrange(12, header.size)] ^= 1
                case 2:  # a key that goes on past its message, with a checksum
                    at = position + (26 if header.magic else 18)
                    data[at : at + 4] = (1 << 20).to_bytes(4, "big")
                    crc = zlib.crc32(data[position + 16 : position + header.size])
                    data[position + 12 : position + 16] = crc.to_bytes(4, "big")
                case _:
                    del data[position + 5 :]
        else:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(data))
        files = [each for each in files if each.stat().st_size]


def found(directory: Path) -> tuple[list[Finding], tuple[int, int, int]]:
    findings, size, batches, records = [], 0, 0, 0
    for step in Verification.of(directory).steps():
        if isinstance(step, Finding):
            findings.append(step)
        elif isinstance(step, Checked):
            size, batches, records = size + step[0], batches + step[1], records + step[2]
    return findings, (size, batches, records)


def one_by_one(log: BatchReader, start: int, **_: bool) -> Iterator[tuple[int, BatchHeader, None]]:
    return ((position, header, None) for position, header in log.headers(start))


@pytest.mark.parametrize("case", some_of(range(60), 30))
def test_what_is_found_does_not_depend_on_how_messages_are_read(
    tmp_path: Path, case: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(case)
    directory = written(tmp_path / "log", rng)
    sound, (size, _, _) = found(directory)
    assert [each for each in sound if each.severity is not Severity.NOTE] == []
    assert size == sum(each.stat().st_size for each in directory.glob("*.log"))
    for turn in range(3):
        copy = Path(shutil.copytree(directory, tmp_path / f"{turn}" / directory.name))
        damage(copy, rng)
        at_once = found(copy)
        with monkeypatch.context() as patch:
            patch.setattr(BatchReader, "stretches", one_by_one)
            assert at_once == found(copy)
    (log, *_) = sorted(directory.glob("*.log"))
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    assert any(each.severity is Severity.DAMAGE for each in found(directory)[0])
