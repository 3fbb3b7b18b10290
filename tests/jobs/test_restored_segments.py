"""The files of a restored segment: on disk, and proved, before its task is done."""

from pathlib import Path
from typing import Any

import pytest
from in_process_spark import InProcessSpark
from overrides import override
from partition_files import PartitionFiles

from horolog.jobs import archive, restore
from horolog.jobs.archives.restoring import Restored
from horolog.storage import Files, OpenFile, SyncFailed, names

NINE_MS = 1_700_000_000_000
BATCHES = 5


@pytest.fixture
def archived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an archive; logs are restored from it in a write and a sync a batch."""
    files = PartitionFiles(tmp_path / "log")
    for number in range(BATCHES):
        files.add([NINE_MS + number] * 10)
    files.write_indexes()
    log, to, state = files.log_dir, tmp_path / "archive", tmp_path / "archiving"
    archive(InProcessSpark(), source=log, archive=to, state=state)
    override(monkeypatch, "horolog.jobs", CHUNK_RECORDS=1, SYNC_BYTES=1)
    return tmp_path


def restored(base: Path) -> Restored:
    where = {"archive": base / "archive", "target": base / "target", "state": base / "restoring"}
    return restore(InProcessSpark(), **where)


@pytest.mark.parametrize("failing", range(BATCHES + 1))
def test_a_sync_that_fails_while_a_log_is_written_fails_its_segment(
    archived: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The kernel reports it once: later syncs of the file succeed."""
    sync = Files.sync
    syncs = 0

    def failing_once(files: Files, file: OpenFile) -> None:
        nonlocal syncs
        if file.path.endswith(names.LOG):
            syncs += 1
            if syncs == failing + 1:
                raise SyncFailed("the disk lost it")
        sync(files, file)

    with monkeypatch.context() as patched:
        patched.setattr(Files, "sync", failing_once)
        done = restored(archived)
    assert syncs > failing
    assert done.refused == {"orders-0": "the disk lost it"}
    assert not (archived / "target/orders-0").exists()
    assert not list(archived.glob("target/*/*"))
    assert restored(archived).refused == {}
    assert (archived / "target/orders-0").exists()


def test_a_log_is_proved_as_its_file_has_it(
    archived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_at = Files.write_at

    def flipping(files: Files, file: OpenFile, parts: Any, position: int) -> None:
        write_at(files, file, parts, position)
        if file.path.endswith(names.LOG) and position:
            write_at(files, file, [b"\x7f"], position - 1)

    with monkeypatch.context() as patched:
        patched.setattr(Files, "write_at", flipping)
        done = restored(archived)
    assert list(done.refused) == ["orders-0"]
    assert not (archived / "target/orders-0").exists()
    assert restored(archived).refused == {}


def test_large_records_are_restored_a_few_megabytes_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many records of usual sizes would be made at once."""
    files = PartitionFiles(tmp_path / "log")
    for number in range(24):
        files.add([NINE_MS + number, NINE_MS - number], value_bytes=1 << 20)
    files.write_indexes()
    archive(
        InProcessSpark(),
        source=files.log_dir,
        archive=tmp_path / "archive",
        state=tmp_path / "archiving",
    )
    write_at = Files.write_at
    sizes = []

    def noting(files: Files, file: OpenFile, parts: Any, position: int) -> None:
        if file.path.endswith(names.LOG):
            sizes.append(sum(map(len, parts)))
        write_at(files, file, parts, position)

    monkeypatch.setattr(Files, "write_at", noting)
    assert restored(tmp_path).records == 48
    assert sum(sizes) > 48 << 20
    assert max(sizes) < 10 << 20
