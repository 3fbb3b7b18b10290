"""`horolog log convert` killed by the kernel, and started again until it is done."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from old_messages import build_messages
from patience import PATIENCE_S
from storelogs import NOW

from horolog.record import Codec, LogRecord, build_batch, decode, iter_headers
from horolog.storage import Finding, Severity, Verification

CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
SEGMENTS, BATCHES, RECORDS = 6, 12, 150


def written(directory: Path, rng: random.Random) -> None:
    """Segments that mix all formats and codecs; each has some of every format."""
    directory.mkdir()
    offset = 0
    for _ in range(SEGMENTS):
        data, base = bytearray(), offset
        for at in range(BATCHES):
            rows = [
                LogRecord(
                    NOW + offset + place - rng.randrange(99), b"k%d" % place, rng.randbytes(60)
                )
                for place in range(RECORDS)
            ]
            magic, codec = at % 3, rng.choice(CODECS)
            if magic == 2:
                data += build_batch(rows, base_offset=offset, codec=codec)
            else:
                data += build_messages(rows, magic, base_offset=offset, codec=codec)
            offset += RECORDS
        (directory / f"{base:020d}.log").write_bytes(data)


def records_in(directory: Path, *, timed: bool = True) -> list[tuple[object, ...]]:
    """All records of the log, as a reader has them that knows only `.log` files."""
    columns = ("offset", "key", "value", *(("timestamp_ms",) if timed else ()))
    return [
        tuple(row.values())
        for log in sorted(directory.glob("*.log"))
        for table in decode(log.read_bytes(), columns=columns)
        for row in table.to_pylist()
    ]


def start(directory: Path, to: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "horolog", "log", "convert", str(directory), "--to", to]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, env={**os.environ, "NO_COLOR": "1"}, **quiet)


def is_at_work(directory: Path) -> bool:
    return (directory / "converting").exists()


def kill_at_work(directory: Path, to: str, rng: random.Random) -> bool:
    """Kill a conversion at some moment after it has begun to write; whether it was killed."""
    with start(directory, to) as process:
        while process.poll() is None and not is_at_work(directory):
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.002)
        try:
            process.wait(rng.uniform(0, 0.3))
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate(timeout=PATIENCE_S)
        return process.returncode < 0


@pytest.mark.slow
@pytest.mark.parametrize("to", ["v2", "v1"])
def test_a_conversion_that_is_killed_again_and_again_loses_nothing(tmp_path: Path, to: str) -> None:
    rng = random.Random(os.environ.get("SEED", "7"))
    directory = tmp_path / "events-0"
    written(directory, rng)
    before = records_in(directory)
    assert len(before) == SEGMENTS * BATCHES * RECORDS
    killed = 0
    for _ in range(60):
        was_killed = kill_at_work(directory, to, rng)
        killed += was_killed
        # Whoever reads the log meanwhile, Kafka's start included, takes `.swap` files for it.
        if not list(directory.glob("*.swap")):
            assert records_in(directory) == before
        if not was_killed:
            break
    with start(directory, to) as process:
        said, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said.decode()
    assert killed > 0
    assert records_in(directory) == before
    formats = {
        header.magic
        for log in directory.glob("*.log")
        for _, header in iter_headers(log.read_bytes())
    }
    assert formats == {int(to[1])}
    assert not is_at_work(directory)
    assert not [each for each in directory.iterdir() if each.suffix in (".cleaned", ".swap")]
    wrong = [
        step
        for step in Verification.of(directory).steps()
        if isinstance(step, Finding) and step.severity is not Severity.NOTE
    ]
    assert wrong == []
