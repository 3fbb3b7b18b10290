"""Indexes of many partitions verified and rebuilt: what verify and reindex do, in tasks."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from command_runner import run_command
from overrides import override
from partition_files import PartitionFiles, files_of
from s3_server import SECRET_KEY, S3Server

from golden import copy_directory
from horolog import jobs
from horolog.errors import Misconfigured
from horolog.jobs.files import work
from horolog.metadata import check_store
from horolog.storage import Checked, Finding, Severity, Verification, lock_directory

INDEXES = (".index", ".timeindex", ".companion")


@pytest.fixture
def log_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two partitions of a large topic, whose segments are parts, and small ones."""
    override(monkeypatch, "horolog.jobs.files", UNIT_BYTES=2_000)
    for topic, batches in ("large", 12), ("small", 3):
        for partition in range(2):
            files = PartitionFiles(tmp_path / "log", topic, partition)
            for number in range(batches):
                files.add([1_000 * number + 10 * partition + each for each in range(5)])
                if number % 3 == 2:
                    files.roll()
            files.write_indexes()
    (tmp_path / "log" / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    return tmp_path / "log"


def told_by_verify(path: Path) -> tuple[set[Finding], Checked]:
    verification, checked = Verification.of(path), Checked()
    findings = set()
    for step in [*verification.steps(), *check_store(path, is_live=False, is_clean=False)]:
        if isinstance(step, Finding):
            findings.add(step)
        else:
            checked = Checked(*map(sum, zip(checked, step, strict=True)))
    return findings, checked


def faults(found: tuple[Finding, ...]) -> list[Finding]:
    return [each for each in found if each.severity is not Severity.NOTE]


def test_a_verification_finds_what_log_verify_finds(in_process_spark: Any, log_dir: Path) -> None:
    logs = sorted(log_dir.glob("large-0/*.log"))
    data = bytearray(logs[1].read_bytes())
    data[-3] ^= 1
    logs[1].write_bytes(data)
    logs[2].with_suffix(".timeindex").unlink()
    for lost in sorted(log_dir.glob("large-1/*"))[2:5]:  # a segment in the middle
        lost.unlink()
    min(log_dir.glob("small-1/*.index")).write_bytes(b"\xff" * 16)
    before = files_of(log_dir, ".log", *INDEXES)
    report = jobs.index(in_process_spark, (path for path in [log_dir]))
    findings, checked = told_by_verify(log_dir)
    assert set(report.findings) == findings
    assert len(report.findings) == len(findings)
    assert report.checked == checked
    assert len(faults(report.findings)) >= 4
    assert not report.is_ok
    assert files_of(log_dir, ".log", *INDEXES) == before


def test_wrong_indexes_are_rebuilt_and_the_logs_untouched(
    in_process_spark: Any, log_dir: Path
) -> None:
    whole = jobs.index(in_process_spark, log_dir)
    assert whole.is_ok
    rng = random.Random(4)
    expected = files_of(log_dir, ".index", ".timeindex")
    for path in sorted(log_dir.rglob("*.*index"))[::2]:
        path.unlink() if rng.random() < 0.5 else path.write_bytes(rng.randbytes(24))
    logs = files_of(log_dir, ".log")
    state = log_dir.parent / "state"
    dry = jobs.index(in_process_spark, log_dir, rebuild=True, interval_bytes=0, dry_run=True)
    assert dry.reindexed
    assert files_of(log_dir, ".index", ".timeindex") != expected
    assert not state.exists()
    report = jobs.index(in_process_spark, log_dir, rebuild=True, interval_bytes=0, state=state)
    assert [each.path for each in report.reindexed] == [each.path for each in dry.reindexed]
    assert report.is_ok
    assert files_of(log_dir, ".index", ".timeindex") == expected
    assert files_of(log_dir, ".log") == logs
    assert jobs.index(in_process_spark, log_dir).is_ok
    again = jobs.index(in_process_spark, log_dir, rebuild=True, interval_bytes=0, state=state)
    assert (again.resumed, again.reindexed) == (12, report.reindexed)


def test_only_what_changed_is_verified_again(
    in_process_spark: Any, log_dir: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    broken = sorted(log_dir.glob("large-0/*.timeindex"))[1]
    content = broken.read_bytes()
    broken.unlink()
    first = jobs.index(in_process_spark, log_dir, state=state)
    assert [each.path for each in faults(first.findings)] == [str(broken)]
    second = jobs.index(in_process_spark, log_dir, state=state)
    assert (second.findings, second.checked) == (first.findings, first.checked)
    broken.write_bytes(content)
    third = jobs.index(in_process_spark, log_dir, state=state)
    assert third.is_ok
    assert third.resumed == second.resumed - 1
    with pytest.raises(Misconfigured, match="another rebuild"):
        jobs.index(in_process_spark, log_dir, state=state, rebuild=True)


def test_damage_and_a_lost_partition_leave_the_neighbours_alone(
    in_process_spark: Any, log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for log in (min(log_dir.glob(f"{name}-0/*.log")) for name in ("large", "small")):
        data = bytearray(log.read_bytes())
        data[70] ^= 1
        log.write_bytes(data)
    for path in log_dir.rglob("*.index"):
        path.unlink()
    units_of = work.units_of

    def lose_one(*arguments: Any) -> Any:
        shutil.rmtree(log_dir / "small-1")
        return units_of(*arguments)

    monkeypatch.setattr(work, "units_of", lose_one)
    report = jobs.index(in_process_spark, log_dir, rebuild=True, state=tmp_path / "state")
    assert len(report.refused) == 2
    assert "its log is damaged at byte 0" in str(report.refused[0].refused)
    assert [Path(path).name for path in report.failed] == ["small-1"]
    written = [each for each in report.reindexed if each.written]
    assert len(written) >= 6
    assert not report.is_ok


def test_a_running_broker_is_respected_and_verified_beside(
    in_process_spark: Any, log_dir: Path
) -> None:
    (log_dir / "meta.properties").unlink()  # a broker makes its own
    lock = log_dir / ".lock"
    lock.touch()
    min(log_dir.rglob("*.index")).unlink()
    before = files_of(log_dir, *INDEXES)
    fd = lock_directory(str(lock))
    ran = run_command("spark", "index", log_dir, "--rebuild", "--state", log_dir.parent / "state")
    assert ran.code == 2
    assert "a broker is at work in this directory" in ran.err
    assert files_of(log_dir, *INDEXES) == before
    ran = run_command("spark", "index", log_dir, "--json")
    assert ran.code == 1
    assert any("broker is at work" in each["what"] for each in ran.json["findings"])
    os.close(fd)


@pytest.mark.spark
def test_the_command_says_what_it_did_and_ends_with_1_where_something_is_wrong(
    spark: Any, tmp_path: Path
) -> None:
    path = copy_directory("clean", tmp_path / "clean")
    config = tmp_path / "index.toml"
    config.write_text(f'paths = ["{path}"]\nrebuild = true\nstate = "{tmp_path / "state"}"\n')
    assert run_command("spark", "index", path).code == 0
    for index in path.glob("*/*.timeindex"):
        index.unlink()
    ran = run_command("spark", "index", path)
    assert ran.code == 1
    assert "FAULT" in ran.out
    assert "index --rebuild" in ran.out or "log reindex" in ran.out
    assert run_command("spark", "index", path, "--rebuild").code == 2
    ran = run_command("spark", "index", "--config", config)
    assert ran.code == 0
    assert "wrote" in ran.out
    assert run_command("spark", "index", path, "--json").json["ok"]


def test_a_log_in_an_object_store_is_verified_and_not_written(
    in_process_spark: Any, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    min(log_dir.glob("large-1/*.timeindex")).unlink()
    min(log_dir.glob("small-0/*.index")).write_bytes(b"\xff" * 16)
    on_disk = jobs.index(in_process_spark, log_dir)
    with S3Server() as s3:
        s3.upload(log_dir, "logs/kafka")
        objects = dict(s3.objects)
        stored = jobs.index(in_process_spark, "s3a://logs/kafka", settings=s3.options())
        with pytest.raises(Misconfigured, match="in an object store") as refused:
            jobs.index(in_process_spark, "s3a://logs/kafka", settings=s3.options(), rebuild=True)
        assert SECRET_KEY not in str(refused.value)
        assert s3.objects == objects

    def seen(found: tuple[Finding, ...], root: str) -> list[tuple[str, str]]:
        return sorted((each.path.split(root)[1], each.what) for each in faults(found))

    assert seen(stored.findings, "logs/kafka/") == seen(on_disk.findings, f"{log_dir}/")
    assert stored.checked == on_disk.checked
    assert len(faults(stored.findings)) == 2


def test_each_file_in_an_object_store_is_looked_at_and_read_once(
    in_process_spark: Any, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with S3Server() as s3:
        s3.upload(log_dir, "logs/kafka")
        names = [name for name in s3.objects if "/small-" in name]
        address = "s3a://logs/kafka"
        report = jobs.index(in_process_spark, address, topics="small", settings=s3.options())
        requests = Counter(s3.requests)
    assert report.checked.partitions == 2
    assert not faults(report.findings)
    for name in names:
        assert requests["HEAD", f"/{name}"] <= 1
        assert requests["GET", f"/{name}"] == (len(s3.objects[name]) > 0)
    assert requests.total() <= 4 * len(names)


def test_a_dry_run_refuses_a_state_that_a_run_would_refuse(
    in_process_spark: Any, log_dir: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "theirs").touch()
    for dry_run in (True, False):
        with pytest.raises(Misconfigured, match="is no state directory: it holds theirs"):
            jobs.index(in_process_spark, log_dir, rebuild=True, state=state, dry_run=dry_run)
    assert [each.name for each in state.iterdir() if each.name != "lock"] == ["theirs"]
