"""How partitions and segments become units of work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from overrides import override
from partition_files import PartitionFiles

from horolog.errors import Misconfigured
from horolog.jobs.files import parts
from horolog.jobs.files.parts import FileRequest, LogPart, find_parts, fingerprint_now, units_of
from horolog.sources import LogPath
from horolog.storage import Checked, Verification, VerifyTarget


def request(*paths: Path | str, **more: str) -> FileRequest:
    return FileRequest.of(paths, more.get("topics"), more.get("topics_pattern"), None)


def a_part(number: int, size: int) -> LogPart:
    directory = Path(f"/log/t-{number}")
    return LogPart(LogPath.parse("/log"), VerifyTarget(directory.parent, (directory,)), size, "")


def test_large_parts_are_alone_and_small_ones_together() -> None:
    sizes = [1 << 30, 100 << 20, *[1 << 20] * 200, *[0] * 10]
    units = units_of([a_part(number, size) for number, size in enumerate(sizes)], cores=2)
    totals = [sum(part.size for part in unit) for unit in units]
    assert totals[:2] == [1 << 30, 100 << 20]
    assert [len(unit) for unit in units[:2]] == [1, 1]
    assert max(totals[2:]) <= parts.UNIT_BYTES
    assert sorted(part.size for unit in units for part in unit) == sorted(sizes)


def test_a_file_that_goes_away_while_it_is_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = PartitionFiles(tmp_path)
    for _ in range(3):
        files.add([1])
        files.roll()
    (going,) = sorted(files.directory.glob("*.log"))[1:2]
    scandir = os.scandir

    @contextmanager
    def scandir_then_remove(path: Path) -> Iterator[list[os.DirEntry[str]]]:
        with scandir(path) as entries:
            found = list(entries)
        going.unlink(missing_ok=True)
        yield found

    size = going.stat().st_size
    before = sum(log.stat().st_size for log in files.directory.glob("*.log"))
    monkeypatch.setattr("os.scandir", scandir_then_remove)
    assert find_parts(request(files.directory)).size == before - size


def test_a_small_job_still_has_work_for_every_core() -> None:
    units = units_of([a_part(number, 1 << 20) for number in range(32)], cores=4)
    assert len(units) == 16
    assert units_of([], cores=4) == []


def test_a_partition_beyond_a_unit_is_a_part_for_each_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("large", "small"):
        files = PartitionFiles(tmp_path, topic)
        for _ in range(4 if topic == "large" else 1):
            files.add([1, 2, 3])
            files.roll()
    override(monkeypatch, "horolog.jobs.files", UNIT_BYTES=400)
    found = find_parts(request(tmp_path))
    segments = [str(part.target.segment) for part in found.parts if part.target.segment]
    assert segments == [str(log) for log in sorted((tmp_path / "large-0").glob("*.log"))]
    assert [part.directory.name for part in found.parts if part.target.segment is None] == [
        "small-0"
    ]
    assert len({part.key for part in found.parts}) == 6
    # The same by another path is the same part.
    assert len(find_parts(request(tmp_path, tmp_path / "large-0")).parts) == 6


def test_a_partition_whose_segments_are_being_replaced_is_one_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments that have yet to get their names would be in no part, and not verified."""
    files = PartitionFiles(tmp_path, "large")
    for _ in range(4):
        files.add([1, 2, 3])
        files.roll()
    first = min(files.directory.glob("*.log"))
    first.rename(f"{first}.swap")
    override(monkeypatch, "horolog.jobs.files", UNIT_BYTES=400)
    (found,) = find_parts(request(tmp_path)).parts
    assert found.target.segment is None
    checked = [step for step in Verification(found.target).steps() if isinstance(step, Checked)]
    assert sum(step.records for step in checked) == 12


def test_a_fingerprint_changes_with_the_files_of_its_part_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = PartitionFiles(tmp_path)
    for _ in range(3):
        files.add([1, 2, 3])
        files.roll()
    override(monkeypatch, "horolog.jobs.files", UNIT_BYTES=100)
    before = {part.key: part.fingerprint for part in find_parts(request(tmp_path)).parts}
    wrong = min(files.directory.glob("*.timeindex"))
    wrong.unlink()
    found = find_parts(request(tmp_path)).parts
    changed = [part.key for part in found if before[part.key] != part.fingerprint]
    assert changed == [str(wrong.with_suffix(".log"))]
    assert all(fingerprint_now(part) == part.fingerprint for part in found)


def test_only_partitions_of_the_topics_are_found(tmp_path: Path) -> None:
    for topic in ("clicks", "orders", "order-lines"):
        PartitionFiles(tmp_path, topic)
    chosen = find_parts(request(tmp_path, topics_pattern="order.*")).parts
    assert {part.directory.name for part in chosen} == {"orders-0", "order-lines-0"}
    chosen = find_parts(request(tmp_path, topics="clicks")).parts
    assert [part.directory.name for part in chosen] == ["clicks-0"]
    with pytest.raises(Misconfigured, match="no topic nothing"):
        find_parts(request(tmp_path, topics="nothing"))
    with pytest.raises(Misconfigured, match="not both"):
        request(tmp_path, topics="a", topics_pattern="b")
    with pytest.raises(Misconfigured, match="no option of an object store"):
        FileRequest.of(tmp_path, None, None, {"kafka.x": "1"})
    with pytest.raises(Misconfigured, match="give a path"):
        request()
