"""Jobs on files that are killed: run again, nothing is lost, half or done twice."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from partition_files import PartitionFiles, records_by_partition
from patience import PATIENCE_S

from horolog.record import Codec, iter_headers
from horolog.storage import Finding, Severity, Verification

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# Units of a few kilobytes, so that a kill meets some that are done and some that are not.
RUN = """
import sys
from horolog.jobs.files import parts
parts.UNIT_BYTES = 20_000
parts.LEAST_UNIT_BYTES = 20_000
from horolog.cli import main
main()
"""


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    rng = random.Random(5)
    for topic, batches in ("large", 240), ("small", 8):
        for partition in range(3):
            files = PartitionFiles(tmp_path / "log", topic, partition)
            for number in range(batches):
                codec = rng.choice([Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.SNAPPY])
                files.add([1_000 * number + each for each in range(20)], codec=codec)
                if number % 8 == 7:
                    files.roll()
            files.write_indexes()
    (tmp_path / "log" / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    return tmp_path / "log"


def wrong(path: Path) -> list[Finding]:
    return [
        step
        for step in Verification.of(path).steps()
        if isinstance(step, Finding) and step.severity is not Severity.NOTE
    ]


def start(*arguments: object, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            RUN,
            "spark",
            *map(str, arguments),
            "--conf",
            "spark.ui.enabled=false",
        ],
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ,
    )


def run_with_kills(state: Path, kills: int, *arguments: object) -> str:
    """Run the job until it ends, killed each time it has done some more; its last output."""
    lines, killed = 0, 0
    while killed < kills:
        process = start(*arguments)
        journal = state / "done.jsonl"
        while process.poll() is None:
            done = journal.read_bytes().count(b"\n") if journal.exists() else 0
            if done > lines:
                process.send_signal(signal.SIGKILL)
                killed, lines = killed + 1, done
                break
        process.wait(PATIENCE_S)
        if process.returncode == 0:
            break
    assert killed > 1
    process = start(*arguments, stdout=subprocess.PIPE)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, out
    return out


def test_a_conversion_that_is_killed_again_and_again_loses_no_record(log_dir: Path) -> None:
    before = records_by_partition(log_dir)
    state = log_dir.parent / "state"
    run_with_kills(state, 4, "convert", log_dir, "--to", "v1", "--state", state)
    assert records_by_partition(log_dir) == before
    assert {
        header.magic
        for log in log_dir.rglob("*.log")
        for _, header in iter_headers(log.read_bytes())
    } == {1}
    assert wrong(log_dir) == []
    assert not list(log_dir.rglob("converting"))
    assert not [path for path in log_dir.rglob("*") if path.suffix in (".swap", ".cleaned")]


def test_a_rebuild_that_is_killed_again_and_again_ends_with_every_index(log_dir: Path) -> None:
    original = log_dir.parent / "original"
    shutil.copytree(log_dir, original)
    for number, path in enumerate(sorted(log_dir.rglob("*.*index"))):
        path.unlink() if number % 2 else path.write_bytes(b"\xff" * 24)
    assert wrong(log_dir)
    state = log_dir.parent / "state"
    run_with_kills(
        state, 4, "index", log_dir, "--rebuild", "--index-interval-bytes", 0, "--state", state
    )
    assert wrong(log_dir) == []
    for path in original.rglob("*.*"):
        if path.suffix in (".log", ".index", ".timeindex"):
            assert (log_dir / path.relative_to(original)).read_bytes() == path.read_bytes()
    assert not list(log_dir.rglob("*.tmp"))
