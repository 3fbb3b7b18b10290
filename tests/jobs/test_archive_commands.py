"""The commands `archive` and `restore`: in the session of the tests, killed, and on a cluster."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from archive_reading import positions_of
from partition_files import PartitionFiles
from patience import PATIENCE_S
from spark_cluster import cluster
from typer.testing import CliRunner, Result

from horolog.cli.spark import app

NINE_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def filled(log_dir: Path, partitions: int = 2, batches: int = 5, value_bytes: int = 100) -> Path:
    for partition in range(partitions):
        files = PartitionFiles(log_dir, partition=partition)
        for number in range(batches):
            start_ms = NINE_MS + number * HOUR_MS
            files.add([start_ms + each for each in range(20)], value_bytes=value_bytes)
        files.write_indexes()
    return log_dir


def ask(*arguments: str | Path) -> Result:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_the_commands_print_summaries_and_set_exit_codes(
    in_process_spark: object, tmp_path: Path
) -> None:
    log_dir, lake = filled(tmp_path / "log"), tmp_path / "lake"
    state = "--state", tmp_path / "state"
    dry = ask("archive", "--source", log_dir, "--archive", lake, "--dry-run")
    assert (dry.exit_code, lake.exists()) == (0, False)
    assert "orders-1  1100" in dry.output
    done = ask("archive", "--source", log_dir, "--archive", lake, *state, "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["records"], told["refused"]) == (0, 200, {})
    assert (
        "Archived 0 records"
        in ask("archive", "--source", log_dir, "--archive", lake, *state).output
    )
    assert ask("archive", "--archive", lake, "--merge", "--dry-run").exit_code == 0
    checked = ask("archive", "--archive", lake, "--check")
    assert "with 200 records" in checked.output
    arguments = ["--archive", lake, "--target", tmp_path / "target"]
    assert "Would restore 200" in ask("restore", *arguments, "--dry-run").output
    restored = ask("restore", *arguments, "--state", tmp_path / "restoring")
    assert (restored.exit_code, "Restored and compared 200 records" in restored.output) == (0, True)
    again = ask("restore", *arguments, "--state", tmp_path / "other")
    assert again.exit_code == 1
    assert "is there already" in again.output
    next(iter((lake / "records").rglob("*.parquet"))).unlink()
    damaged = ask("archive", "--archive", lake, "--check", "--json")
    assert (damaged.exit_code, len(json.loads(damaged.stdout)["problems"])) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--check", "--merge"), "give one of"),
        (("--check", "--source", "log"), "give one of"),
        (("--remove-unreferenced",), "goes with --check"),
        ((), "give --source"),
        (("--source", "log"), "give --state"),
    ],
)
def test_misuse_is_named(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    done = ask("archive", "--archive", tmp_path / "lake", *arguments)
    assert done.exit_code == 2
    assert sentence in done.output


def started(*arguments: str | Path, master: str = "local[2]") -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "horolog", "spark", *map(str, arguments), "--master", master],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )


def killed_after(running: "subprocess.Popen[str]", changed: Path, wait_s: float) -> bool:
    """Kill it a moment after something appeared below a path; whether it was not done before."""
    before = entries(changed)
    until = time.monotonic() + PATIENCE_S
    while running.poll() is None and entries(changed) == before:
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(wait_s)
    was_running = running.poll() is None
    if was_running:
        os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    return was_running


def entries(path: Path) -> set[str]:
    return {str(each) for each in path.rglob("*") if each.is_file()}


SMALL = ["--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false"]


def finished(running: "subprocess.Popen[str]") -> str:
    try:
        output, errors = running.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        raise
    assert running.returncode == 0, output + errors
    return output


@pytest.mark.spark
@pytest.mark.slow
def test_commands_killed_at_any_moment_end_with_each_record_once(tmp_path: Path) -> None:
    rng = random.Random()
    log_dir = filled(tmp_path / "log", partitions=24, batches=40, value_bytes=1_000)
    lake, target = tmp_path / "lake", tmp_path / "target"
    command: list[str | Path] = ["archive", "--source", log_dir, "--archive", lake]
    command += ["--state", tmp_path / "state"]
    for _ in range(4):
        if not killed_after(started(*command), lake, rng.random() * 4):
            break
        if (lake / "manifest").exists():
            found = positions_of(lake)
            assert len(found) == len(set(found))
    finished(started(*command))
    expected = [(partition, 1_000 + offset) for partition in range(24) for offset in range(40 * 20)]
    assert positions_of(lake) == expected
    command = ["restore", "--archive", lake, "--target", target, "--state", tmp_path / "restoring"]
    for _ in range(4):
        if not killed_after(started(*command), target, rng.random() * 4):
            break
    finished(started(*command))
    for partition in range(24):
        name = f"orders-{partition}"
        logs = [sorted((each / name).glob("*.log")) for each in (log_dir, target)]
        before, after = (b"".join(path.read_bytes() for path in paths) for paths in logs)
        assert before == after
    assert not list(target.glob(".restore-*"))


@pytest.mark.spark
@pytest.mark.slow
def test_two_workers_archive_and_restore(tmp_path: Path) -> None:
    log_dir, lake = filled(tmp_path / "log", partitions=6, batches=20), tmp_path / "lake"
    with cluster(tmp_path) as master:
        command: list[str | Path] = ["archive", "--source", log_dir, "--archive", lake]
        finished(started(*command, *SMALL, "--state", tmp_path / "state", master=master))
        command = ["restore", "--archive", lake, "--target", tmp_path / "target"]
        finished(started(*command, *SMALL, "--state", tmp_path / "restoring", master=master))
        finished(started("archive", "--archive", lake, "--check", *SMALL, master=master))
    for partition in range(6):
        name = f"orders-{partition}"
        (before,) = (log_dir / name).glob("*.log")
        (after,) = (tmp_path / "target" / name).glob("*.log")
        assert before.read_bytes() == after.read_bytes()
