"""What `horolog log verify` says of the metadata of a directory, in both forms."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from horolog.metadata import MetadataLog, check_metadata
from horolog.record import LogRecord, build_batch
from horolog.schemas import metadata as m
from horolog.schemas.metadata import METADATA_VERSION
from horolog.storage import Files, Finding, RecordFile, Severity, Verification

NOW = 1_700_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of the file with the records, in a log directory."""
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=some\n")
    log = MetadataLog.open(Files(), str(tmp_path), node_id=1)
    log.append([m.FeatureLevel(METADATA_VERSION, 30)], NOW)
    log.append([m.TopicRecord("a", UUID(int=4))], NOW)
    log.snapshot(NOW)
    log.append([m.TopicRecord("b", UUID(int=5))], NOW)
    log.close()
    return tmp_path / f"__cluster_metadata-0/{0:020}.log"


def log_dir(path: Path) -> Path:
    return path.parent.parent


def findings_of(path: Path) -> list[Finding]:
    directory = log_dir(path)
    steps = [*Verification.of(directory).steps(), *check_metadata(directory)]
    return [each for each in steps if isinstance(each, Finding) and each.severity != Severity.NOTE]


def test_what_horolog_wrote_is_found_to_be_whole(path: Path) -> None:
    assert findings_of(path) == []


def test_damaged_batches_are_found_once(path: Path) -> None:
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 1
    path.write_bytes(damaged)
    found = findings_of(path)
    assert [(each.severity, each.path) for each in found] == [(Severity.DAMAGE, str(path))]


def test_records_that_do_not_count_are_found(path: Path) -> None:
    records = [
        m.encode(m.TopicRecord("c", UUID(int=6))),
        b"\1\2",
        m.encode(m.RemoveTopic(UUID(int=77))),
    ]
    offset = sum(1 for _ in RecordFile(Files(), str(path)).read())
    logged = [LogRecord(NOW, None, each) for each in records]
    with path.open("ab") as file:
        file.write(build_batch(logged, base_offset=offset))
    found = findings_of(path)
    assert [each.offset for each in found] == [offset + 1, offset + 2]
    assert "ends too early" in found[0].what
    assert "no topic" in found[1].what
    assert all(each.severity is Severity.DAMAGE for each in found)


def test_every_snapshot_is_read_to_its_footer(path: Path) -> None:
    snapshots = sorted(log_dir(path).glob("*/*.checkpoint"))
    for snapshot in snapshots:
        snapshot.write_bytes(snapshot.read_bytes()[:-80])
    found = findings_of(path)
    assert [each.path for each in found] == [str(each) for each in snapshots]
    assert all("no footer" in each.what for each in found)
