"""Archives that are checked, merged and tidied."""

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from archive_reading import manifest_of, records_of
from in_process_spark import InProcessSpark
from partition_files import PartitionFiles
from s3_server import ACCESS_KEY, SECRET_KEY, S3Server

from horolog.clock import SystemClock
from horolog.errors import Misconfigured
from horolog.jobs import archive, check_archive, merge_archive, restore
from horolog.jobs.archives import merging
from horolog.jobs.archives.store import ArchiveStore
from horolog.sources import StoreOptions

NINE_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def files(tmp_path: Path) -> PartitionFiles:
    """Archived in five runs, of two hours each and a third of all."""
    files = PartitionFiles(tmp_path / "log")
    for start in range(5):
        files.add([NINE_MS + start, NINE_MS + start * HOUR_MS, -1])
        files.roll()
        run(files, tmp_path)
    return files


def run(files: PartitionFiles, tmp_path: Path) -> None:
    where = {"archive": tmp_path / "archive", "state": tmp_path / "state"}
    archive(InProcessSpark(), source=files.log_dir, **where)


def check(tmp_path: Path, **more: Any) -> Any:
    return check_archive(InProcessSpark(), archive=tmp_path / "archive", **more)


def merge(tmp_path: Path, session: Any = None, **more: Any) -> merging.Merged:
    return merge_archive(session or InProcessSpark(), archive=tmp_path / "archive", **more)


def test_small_files_of_an_hour_become_one(files: PartitionFiles, tmp_path: Path) -> None:
    before = records_of(tmp_path / "archive")
    would = merge(tmp_path, dry_run=True)
    done = merge(tmp_path)
    assert (would.files_before, would.files_after) == (done.files_before, done.files_after)
    assert (done.files_before, done.files_after, done.refused) == (15, 3, {})
    assert records_of(tmp_path / "archive") == before
    (state,) = manifest_of(tmp_path / "archive").partitions().values()
    by_hour = {file.hour: (file.first_ms, file.last_ms) for file in state.records}
    assert by_hour["2023-11-14T22"] == (NINE_MS, NINE_MS + 4)
    assert len(by_hour) == len(state.records) == 6
    assert len(state.batches) == 1
    checked = check(tmp_path)
    assert checked.problems == {}
    assert len(checked.unreferenced) == 15
    assert merge(tmp_path).files_before == 0


def test_a_merged_archive_grows_and_is_restored(files: PartitionFiles, tmp_path: Path) -> None:
    merge(tmp_path)
    files.add([NINE_MS])
    files.write_indexes()
    run(files, tmp_path)
    check(tmp_path, remove_unreferenced=True, grace_ms=0)
    where = {"target": tmp_path / "target", "state": tmp_path / "restoring"}
    done = restore(InProcessSpark(), archive=tmp_path / "archive", **where)
    assert (done.records, done.refused) == (16, {})


def test_files_of_half_the_target_size_are_left_alone(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path / "log")
    for _ in range(3):
        files.add([NINE_MS], value_bytes=600_000)
        files.roll()
        run(files, tmp_path)
    assert merge(tmp_path, target_bytes=1 << 20).files_before == 3  # of facts
    assert merge(tmp_path, target_bytes=4 << 20).files_before == 3
    with pytest.raises(Misconfigured, match="below a megabyte"):
        merge(tmp_path, target_bytes=5)


def test_two_merges_and_a_run_at_a_time_lose_nothing(files: PartitionFiles, tmp_path: Path) -> None:
    before = records_of(tmp_path / "archive")
    others: list[merging.Merged] = []

    def between(place: int) -> None:
        if not others:
            others.append(merge(tmp_path))
            files.add([NINE_MS])
            files.write_indexes()
            run(files, tmp_path)

    done = merge(tmp_path, InProcessSpark(between))
    assert (done.files_after, others[0].files_after) == (0, 3)
    found = records_of(tmp_path / "archive")
    assert found[:-1] == before
    assert len(found) == 16
    assert check(tmp_path).problems == {}


def test_a_merge_during_a_run_loses_nothing(files: PartitionFiles, tmp_path: Path) -> None:
    files.add([NINE_MS])
    files.write_indexes()
    where = {"archive": tmp_path / "archive", "state": tmp_path / "state"}
    session = InProcessSpark(lambda place: merge(tmp_path) and None)
    archive(session, source=files.log_dir, **where)
    assert len(records_of(tmp_path / "archive")) == 16
    assert check(tmp_path).problems == {}


def test_a_check_names_each_file_that_is_not_as_it_was(
    files: PartitionFiles, tmp_path: Path
) -> None:
    (state,) = manifest_of(tmp_path / "archive").partitions().values()
    gone, longer, other = (tmp_path / "archive" / file.path for file in state.records[:3])
    gone.unlink()
    longer.write_bytes(longer.read_bytes() + b"\0")
    content = other.read_bytes()
    other.write_bytes(content[:50] + bytes([content[50] ^ 1]) + content[51:])
    problems = check(tmp_path).problems
    paths = [file.path for file in state.records[:3]]
    assert sorted(problems) == sorted(paths)
    assert "is not there" in problems[paths[0]]
    assert "bytes, and" in problems[paths[1]]
    assert "another checksum" in problems[paths[2]]
    done = merge(tmp_path)
    assert "orders-0" in done.refused
    assert len(records_of_sound(tmp_path, set(paths))) == 15 - sum(
        file.rows for file in state.records[:3]
    )


def records_of_sound(tmp_path: Path, damaged: set[str]) -> list[Any]:
    rows: list[Any] = []
    for state in manifest_of(tmp_path / "archive").partitions().values():
        for file in state.records:
            if file.path not in damaged:
                rows += pq.read_table(tmp_path / "archive" / file.path).to_pylist()
    return rows


def test_files_that_nothing_names_are_listed_and_removed_on_request(
    files: PartitionFiles, tmp_path: Path
) -> None:
    root = tmp_path / "archive"
    of_a_killed_run = root / "records/orders/date=2020-01-01/hour=00/0-abc-1.parquet"
    of_a_killed_run.parent.mkdir(parents=True)
    of_a_killed_run.write_bytes(b"PAR1")
    fresh = of_a_killed_run.with_name("0-def-1.parquet")
    fresh.write_bytes(b"PAR1")
    (root / "notes.txt").write_text("mine")
    os.utime(of_a_killed_run, (0, 1))
    os.utime(root / "notes.txt", (0, 1))
    named = {str(each.relative_to(root)) for each in (of_a_killed_run, fresh, root / "notes.txt")}
    found = check(tmp_path)
    assert (set(found.unreferenced), found.removed, found.problems) == (named, (), {})
    done = check(tmp_path, remove_unreferenced=True)
    assert done.removed == (str(of_a_killed_run.relative_to(root)),)
    assert fresh.exists()
    assert (root / "notes.txt").exists()
    assert len(records_of(root)) == 15


def test_an_archive_that_is_none_is_refused(tmp_path: Path) -> None:
    for function in (check, merge):
        with pytest.raises(Misconfigured, match="no archive"):
            function(tmp_path)


def test_an_archive_in_an_object_store(s3: S3Server, tmp_path: Path) -> None:
    s3.objects["lake/.keep"] = b""
    files = PartitionFiles(tmp_path / "log")
    uri, settings = "s3a://lake/orders", s3.options()
    session = InProcessSpark()
    for start in range(3):
        files.add([NINE_MS + start * HOUR_MS, NINE_MS, -1], value_bytes=100_000)
        files.roll()
        where = {"archive": uri, "state": tmp_path / "state", "settings": settings}
        done = archive(session, source=files.log_dir, **where)
        assert (done.records, done.refused) == (3, {})
    files.write_indexes()
    assert merge_archive(session, archive=uri, settings=settings).files_before == 9
    checked = check_archive(session, archive=uri, settings=settings)
    assert (checked.problems, checked.records) == ({}, 9)
    where = {"target": tmp_path / "target", "state": tmp_path / "restoring"}
    restored = restore(session, archive=uri, settings=settings, **where)
    assert (restored.records, restored.refused) == (9, {})
    before = [path.read_bytes() for path in files.logs]
    assert b"".join(before) == b"".join(
        path.read_bytes() for path in sorted((tmp_path / "target/orders-0").glob("*.log"))
    )
    commits = [name for name in s3.puts if "/manifest/" in name]
    assert commits == sorted(set(commits))


def test_no_secret_of_an_object_store_is_kept_or_said(s3: S3Server, tmp_path: Path) -> None:
    s3.objects["lake/.keep"] = b""
    files = PartitionFiles(tmp_path / "log")
    files.add([NINE_MS])
    files.write_indexes()
    uri = f"s3://{ACCESS_KEY}:{SECRET_KEY}@lake/orders"
    more = {name: value for name, value in s3.options().items() if "key" not in name}
    where = {"archive": uri, "state": tmp_path / "state", "settings": more}
    done = archive(InProcessSpark(), source=files.log_dir, **where)
    assert done.records == 1
    kept = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*.json*"))
    assert SECRET_KEY.encode() not in kept
    assert SECRET_KEY not in repr(done)
    assert not any(SECRET_KEY.encode() in content for content in s3.objects.values())


def test_another_writer_in_an_object_store_is_noticed(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes the same number of a manifest between the look and the write."""
    s3.objects["lake/.keep"] = b""
    store = ArchiveStore("s3://lake/orders", StoreOptions.parse(s3.options()))
    assert store.put_new("manifest/1.json", b"mine")
    assert not store.put_new("manifest/1.json", b"other")
    read = store.read
    monkeypatch.setattr(store, "read", lambda path: read(path) and b"theirs")
    assert not store.put_new("manifest/2.json", b"mine")


def test_the_age_of_files_is_counted_by_the_clock_of_the_store(
    files: PartitionFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver whose clock is days ahead removes nothing that a run has just written."""
    merge(tmp_path)
    ahead_ms = SystemClock().now_ms() + 7 * 24 * HOUR_MS
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: ahead_ms)
    found = check(tmp_path, remove_unreferenced=True)
    assert (len(found.unreferenced), found.removed) == (15, ())
