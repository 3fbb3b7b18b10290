"""Record formats of many partitions: what `log convert` does, in tasks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from command_runner import run_command
from old_messages import build_messages
from overrides import override
from partition_files import formats_in, records_by_partition

import horolog.jobs.files.parts  # noqa: F401 - has the constant that tests lower
from horolog import jobs
from horolog.errors import Misconfigured
from horolog.record import Codec, LogRecord, build_batch
from horolog.storage import lock_directory

NOW = 1_763_000_000_000


@pytest.fixture
def log_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A large partition of v1 and v2, whose segments are parts; small ones; one to be refused."""
    override(monkeypatch, "horolog.jobs.files", UNIT_BYTES=3_000)
    for topic, segments in ("large-0", 9), ("small-0", 1), ("small-1", 2):
        directory = tmp_path / "log" / topic
        directory.mkdir(parents=True)
        for number in range(segments):
            base = 10 * number
            records = [
                LogRecord(NOW + base + each, b"key-%d" % each, b"value" * (each + number))
                for each in range(10)
            ]
            codec = [Codec.NONE, Codec.GZIP, Codec.LZ4][number % 3]
            data = (
                build_messages(records, 1, base_offset=base, codec=codec)
                if number % 2 == 0
                else build_batch(records, base_offset=base, codec=codec)
            )
            (directory / f"{base:020d}.log").write_bytes(data)
    in_transaction = tmp_path / "log" / "paid-0"
    in_transaction.mkdir()
    data = build_batch(
        [LogRecord(NOW, None, b"paid")], producer_id=7, producer_epoch=0, is_transactional=True
    )
    (in_transaction / f"{0:020d}.log").write_bytes(data)
    (tmp_path / "log" / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    return tmp_path / "log"


def bytes_of(log_dir: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in log_dir.rglob("*.*") if path.is_file()}


def test_all_segments_get_the_format_and_keep_their_records(
    in_process_spark: Any, log_dir: Path
) -> None:
    before, files = records_by_partition(log_dir), bytes_of(log_dir)
    state = log_dir.parent / "state"
    paths = {log_dir: "whole"}.keys()  # cannot be pickled
    dry = jobs.convert(in_process_spark, paths, to="v1", dry_run=True)
    assert {name: data for name, data in bytes_of(log_dir).items() if ".lock" not in name} == files
    report = jobs.convert(in_process_spark, log_dir, to="v1", state=state)
    assert [each.path for each in report.converted] == [each.path for each in dry.converted]
    assert [each.bytes_after for each in report.converted] == [
        each.bytes_after for each in dry.converted
    ]
    assert len(report.converted) == 5
    assert report.records == 50
    assert report.segments == 13
    assert ["paid-0" in each.path for each in report.refused] == [True]
    assert "part of a transaction" in str(report.refused[0].refused)
    assert not report.is_ok
    assert records_by_partition(log_dir) == before
    assert formats_in(log_dir / "large-0") == formats_in(log_dir / "small-1") == {1}
    assert not list(log_dir.rglob("converting"))
    again = jobs.convert(in_process_spark, log_dir, to="v1", state=state)
    assert (again.converted, again.refused) == (report.converted, report.refused)
    assert again.resumed == 9 + 3
    everything = jobs.convert(
        in_process_spark, log_dir, to="v2", topics="large,small", state=state.parent / "b"
    )
    assert everything.is_ok
    assert records_by_partition(log_dir) == before
    assert formats_in(log_dir) == {2}
    assert jobs.index(in_process_spark, log_dir, topics="large,small").is_ok


def test_what_cannot_be_is_refused_before_anything_is_written(
    in_process_spark: Any, log_dir: Path
) -> None:
    files = bytes_of(log_dir)
    with pytest.raises(Misconfigured, match="there are v0, v1, v2"):
        jobs.convert(in_process_spark, log_dir, to="v3")
    with pytest.raises(Misconfigured, match="zstd_as is best"):
        jobs.convert(in_process_spark, log_dir, to="v1", zstd_as="best")
    with pytest.raises(Misconfigured, match="no topic nothing"):
        jobs.convert(in_process_spark, log_dir, to="v1", topics="nothing")
    assert run_command("spark", "convert", log_dir, "--to", "v1").code == 2
    fd = lock_directory(str(log_dir / ".lock"))
    ran = run_command(
        "spark", "convert", log_dir, "--to", "v1", "--state", log_dir.parent / "state"
    )
    assert ran.code == 2
    assert "a broker is at work in this directory" in ran.err
    os.close(fd)
    assert {name: data for name, data in bytes_of(log_dir).items() if ".lock" not in name} == files


@pytest.mark.spark
def test_the_command_says_what_it_did_and_what_it_refused(spark: Any, log_dir: Path) -> None:
    state = log_dir.parent / "state"
    ran = run_command("spark", "convert", log_dir, "--to", "v1", "--dry-run")
    assert ran.code == 1
    assert "5 would be converted to v1 (50 records), 1 left as they are" in ran.out
    ran = run_command("spark", "convert", log_dir, "--to", "v1", "--state", state)
    assert ran.code == 1
    assert "13 segments, 5 converted to v1 (50 records), 1 left as they are" in ran.out
    assert "paid-0/00000000000000000000.log: left as it is" in ran.out
    ran = run_command("spark", "convert", log_dir, "--to", "v1", "--state", state, "--json")
    assert ran.json["records"] == 50
    assert ran.json["resumed"] == 12
    assert list(ran.json["refused"]) == [str(log_dir / "paid-0" / f"{0:020d}.log")]


def test_a_dry_run_refuses_a_state_that_a_run_would_refuse(
    in_process_spark: Any, log_dir: Path
) -> None:
    state = log_dir.parent / "state"
    jobs.convert(in_process_spark, log_dir, to="v1", state=state)
    before = bytes_of(state)
    jobs.convert(in_process_spark, log_dir, to="v1", state=state, dry_run=True)
    assert bytes_of(state) == before
    for dry_run in (True, False):
        with pytest.raises(Misconfigured, match="another to"):
            jobs.convert(in_process_spark, log_dir, to="v0", state=state, dry_run=dry_run)
