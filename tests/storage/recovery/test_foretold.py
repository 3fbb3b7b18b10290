"""Recovery keeps exactly what `horolog log verify` calls whole."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from old_messages import build_messages
from partition_files import PartitionFiles
from storelogs import NOW, UnsyncedFiles

from horolog.config import TopicConfig
from horolog.errors import CorruptBatch
from horolog.record import HEADER_SIZE, Codec, LogRecord, iter_headers, with_records
from horolog.storage import Checked, LoadPlan, Recovery, TopicPartition, Verification, load_log

DIRECTORIES = 10_000 if settings().max_examples >= 500 else 300
PARTS = 10
ZEROS = re.compile(r"(\d+) bytes of zeros are at its end, as preallocation")
CUT = re.compile(r"a broker cuts the log here: (\d+) bytes, all from offset (\d+) on")
BASE = 1_000


class Cut(NamedTuple):
    """Where a start ends the log, and how many bytes it removes."""

    name: str
    position: int
    removed: int
    offset: int | None


def made(rng: random.Random, path: Path) -> PartitionFiles:
    """A partition of up to three segments, as a kill leaves it."""
    files = PartitionFiles(path, base_offset=rng.choice([0, BASE]))
    magic = rng.choice([0, 1, 2, 2, 2])
    for segment in range(rng.randrange(1, 4)):
        if segment:
            files.roll()
        for _ in range(rng.randrange(rng.choice([0, 1]), 5)):
            times = [NOW + rng.randrange(1000) for _ in range(rng.randrange(1, 4))]
            if magic == 2:
                codec = rng.choice([Codec.NONE, Codec.GZIP])
                files.add(times, codec=codec, value_bytes=rng.randrange(60))
                continue
            for ms in times:
                record = LogRecord(ms, b"key", rng.randbytes(rng.randrange(60)))
                files.write(build_messages([record], magic, base_offset=files.next_offset))
    if rng.random() < 0.5:
        files.write_indexes()
    return files


def damage(rng: random.Random, logs: Sequence[Path]) -> str:
    """Damage one of the files."""
    path, other = rng.choice(logs), rng.choice(logs)
    content = bytearray(path.read_bytes())
    at = rng.randrange(len(content) + 1)
    junk = rng.choice([rng.randbytes, bytes])(rng.randrange(1, 200))
    how = rng.choice(["flip", "header", "overwrite", "insert", "append", "cut", "end", "twice", ""])
    match how:
        case "flip" if content:
            content[at - 1] ^= 1 << rng.randrange(8)
        case "header" if content:  # what has no checksum, among others
            starts = [0]
            with suppress(CorruptBatch):
                starts += [position for position, _ in iter_headers(bytes(content))]
            at = rng.choice(starts) + rng.randrange(25)
            content[min(at, len(content) - 1)] ^= 1 << rng.randrange(8)
        case "overwrite":
            content[at : at + len(junk)] = junk
        case "insert":
            content[at:at] = junk
        case "append":
            content += rng.choice([junk, content[: len(junk)]])
        case "cut":
            del content[at : at + len(junk)]
        case "end":
            del content[at:]
        case "twice":
            content[at:at] = other.read_bytes()
        case _ if len(logs) > 1 and rng.random() < 0.3:
            path.unlink()
            return "removal"
    path.write_bytes(content)
    return how


def foretold(path: Path, sizes: dict[str, int]) -> Cut | None:
    """Where a start cuts the log, by what verify says."""
    for step in Verification.of(path).steps():
        if isinstance(step, Checked):
            continue
        name, position = os.path.basename(step.path), step.position
        if cut := CUT.search(step.mend or ""):
            assert position is not None
            return Cut(name, position, int(cut[1]), int(cut[2]))
        if zeros := ZEROS.match(step.what):
            return Cut(name, sizes[name] - int(zeros[1]), int(zeros[1]), None)
    return None


def recovered(files: PartitionFiles) -> tuple[int, Recovery]:
    """Have a start recover the log; its end, and what recovery reports."""
    plan = LoadPlan(TopicConfig(), NOW, is_clean=False)
    disk = UnsyncedFiles()
    partition = TopicPartition(files.topic, files.partition)
    log, report = load_log(disk, str(files.directory), partition, plan)
    disk.close()
    return log.log_end_offset, report


def check(seed: int, path: Path) -> None:
    rng = random.Random(seed)
    files = made(rng, path)
    kinds = [damage(rng, files.logs) for _ in range(rng.randrange(1, 3))]
    before = {log.name: log.read_bytes() for log in files.logs}
    cut = foretold(path, {name: len(content) for name, content in before.items()})
    kept = b"".join(
        content if cut is None or name < cut.name else content[: cut.position]
        for name, content in sorted(before.items())
        if cut is None or name <= cut.name
    )
    end, report = recovered(files)
    after = b"".join(log.read_bytes() for log in files.logs)
    assert after == kept, (seed, kinds, cut, report)
    assert report.removed_bytes == (0 if cut is None else cut.removed), (seed, kinds, cut, report)
    # A log that is cut ends where its records end, and not behind a gap.
    assert cut is None or cut.offset is None or end <= cut.offset, (seed, kinds, cut, report)


@pytest.mark.parametrize("part", range(PARTS))
def test_recovery_keeps_what_verify_calls_whole(tmp_path: Path, part: int) -> None:
    for seed in range(part, DIRECTORIES, PARTS):
        path = tmp_path / str(seed)
        check(seed, path)
        shutil.rmtree(path)


def test_a_batch_that_reaches_into_the_next_segment_is_where_a_start_cuts(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path)
    for _ in range(2):
        files.add([NOW])
    files.roll()
    files.add([NOW])
    files.write_indexes()
    log = files.logs[0]
    content = bytearray(log.read_bytes())
    begins = [position for position, _ in iter_headers(bytes(content))][1]
    content[begins + 5] ^= 1  # of its base offset, which has no checksum
    log.write_bytes(content)
    (found,) = [
        step
        for step in Verification.of(tmp_path).steps()
        if not isinstance(step, Checked) and step.position == begins and step.mend
        if step.path == str(log)
    ]
    assert "the next segment begins at 1002" in found.what
    assert "a broker cuts the log here" in (found.mend or "")
    end, _ = recovered(files)
    assert (end, log.stat().st_size) == (1_001, begins)


@pytest.mark.parametrize("field", ["epoch", "largest"])
def test_no_cut_is_foretold_of_a_wrong_header_that_a_start_trusts(
    tmp_path: Path, field: str
) -> None:
    files = PartitionFiles(tmp_path)
    files.add([NOW])
    files.write_indexes()
    content = bytearray(files.log.read_bytes())
    if field == "epoch":
        content[12] ^= 0x80
    else:
        _, header = next(iter_headers(bytes(content)))
        later = header._replace(max_timestamp=header.max_timestamp + 1)
        content = bytearray(with_records(later, content[HEADER_SIZE:]))
    files.log.write_bytes(content)
    (found,) = [
        step
        for step in Verification.of(tmp_path).steps()
        if not isinstance(step, Checked) and "not what it claims" in step.what
    ]
    assert "no start of a broker" in (found.mend or "")
    end, report = recovered(files)
    assert (end, report.removed_bytes) == (1_001, 0)
