"""Files that recovery set aside: what they hold, how long they stay, and what verify says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_runner import run_command
from storelogs import DAY, NOW, append, new_log, open_dir, partition_dir, placed, reopened

from horolog.config import TopicConfig
from horolog.record import iter_headers
from horolog.storage import Finding, Severity, TopicPartition, Verification, set_aside_of

CONFIG = TopicConfig(index_interval_bytes=0, segment_bytes=1000, retention_ms=DAY)
KEY = TopicPartition("events", 3)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("00000000000000000500.log.0.cut", (500, 0)),
        ("00000000000000000500.log.77.cut", (500, 77)),
        ("00000000000000000500.log.77.2.cut", (500, 77)),
        ("00000000000000000500.log.cut", (500, 0)),
        ("00000000000000000500.index.cut", None),
        ("00000000000000000500.log.cut.tmp", None),
        ("500.log.0.cut", None),
    ],
)
def test_names(name: str, found: tuple[int, int] | None) -> None:
    assert set_aside_of(name) == found


# -- in a log -------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log whose second segment was damaged, and all behind that set aside."""
    with new_log(tmp_path / "log", CONFIG) as log:
        for _ in range(25):
            append(log, NOW)
    second = sorted(partition_dir(tmp_path / "log").glob("*.log"))[1]
    data = bytearray(second.read_bytes())
    (position, _), *_ = iter_headers(bytes(data))
    data[position + 70] ^= 1
    second.write_bytes(data)
    with reopened(tmp_path / "log", CONFIG) as (log_dir, _):
        assert len(log_dir.recoveries[0].warnings) == len(cuts(tmp_path / "log")) > 1
    return tmp_path / "log"


def cuts(path: Path) -> list[Path]:
    return sorted(partition_dir(path).glob("*.cut"))


def findings(path: Path) -> list[Finding]:
    return [each for each in Verification.of(path).steps() if isinstance(each, Finding)]


def test_verify_names_what_was_set_aside_and_how_it_comes_back(path: Path) -> None:
    told = {each.path: each for each in findings(path) if each.path.endswith(".cut")}
    assert sorted(told) == [str(file) for file in cuts(path)]
    for file, finding in told.items():
        assert finding.severity is Severity.FAULT
        assert "it is not served" in finding.what
        assert f"`horolog log inspect {file} --records --json | horolog produce events" in (
            finding.mend or ""
        )
    first = told[str(cuts(path)[0])].what
    assert "offsets 12 to 21" in first, first


def test_verify_reports_unreadable_bytes_as_removable(path: Path) -> None:
    file = partition_dir(path) / "00000000000000000007.log.0.cut"
    file.write_bytes(placed(0)[:-1])
    (finding,) = [each for each in findings(path) if each.path == str(file)]
    assert (finding.severity, finding.mend) == (Severity.NOTE, "rm it")


def test_what_was_set_aside_expires_with_retention_since_recovery(path: Path) -> None:
    config = TopicConfig(retention_ms=DAY, retention_bytes=1 << 40)
    with reopened(path, config) as (_, log):
        size = log.size
        assert log.apply_retention(NOW + DAY, 0) == []
        log.config = TopicConfig(retention_ms=-1)
        assert log.apply_retention(NOW + 9 * DAY, 0) == []
        log.config = TopicConfig(retention_ms=DAY, cleanup_policy=["compact"])
        assert log.apply_retention(NOW + 9 * DAY, 0) == []
        log.config, log.retention_exempt = config, True
        assert log.apply_retention(NOW + 9 * DAY, 0) == []
        log.retention_exempt = False
        assert log.size == size
        kept, expected = cuts(path), len(cuts(path))
        assert kept
        gone = log.apply_retention(NOW + DAY + 1, 0)
        assert sum("was set aside" in each.reason for each in gone) == expected
        assert cuts(path) == []
        assert log.apply_retention(NOW + DAY + 2, 0) == []


def test_a_later_recovery_does_not_renew_what_was_set_aside(path: Path) -> None:
    with reopened(path, CONFIG, now=NOW + DAY) as (_, log):
        assert log.apply_retention(NOW + DAY + 1, 0)
        assert cuts(path) == []


def test_retention_by_size_does_not_count_what_was_set_aside(path: Path) -> None:
    with reopened(path, CONFIG) as (_, log):
        for _ in range(10):
            append(log, NOW)
        log.config = TopicConfig(retention_ms=-1, retention_bytes=log.size)
        assert log.apply_retention(NOW, 0) == []


def test_deletion_of_the_topic_removes_what_was_set_aside(path: Path) -> None:
    log_dir = open_dir(path, CONFIG)
    log_dir.delete([KEY], 0)
    log_dir.remove_deleted(1 << 60)
    assert list(path.glob("events*")) == []
    log_dir.close()


# -- with append times ----------------------------------------------------------------------


def inspected(file: Path) -> dict[int, int | None]:
    """The append time of each whole record in a file that was set aside."""
    lines = run_command("log", "inspect", file, "--records", "--json").lines
    return {each["offset"]: each["append_time"] for each in map(json.loads, lines)}


def damaged_after_a_kill(log_dir: Path, *, at: int, in_header: bool) -> dict[int, int]:
    """A log that was killed, one of whose batches is damaged; when each record was appended."""
    truth = {}
    with new_log(log_dir, CONFIG) as log:
        for number in range(25):
            truth[append(log, NOW, now=NOW + number // 2 * 7).base_offset] = NOW + number // 2 * 7
        segment = next(s for s in reversed(log.segments) if s.base_offset <= at)
        found = segment.locate(at)
        assert found is not None
        file, position = Path(segment.log.path), found[0]
    data = bytearray(file.read_bytes())
    data[position + (9 if in_header else 70)] ^= 1
    file.write_bytes(data)
    return truth


@pytest.mark.parametrize("in_header", [False, True], ids=["record damaged", "header damaged"])
@pytest.mark.parametrize("at", [0, 5, 14, 23])
def test_records_that_were_set_aside_keep_their_append_times(
    tmp_path: Path, at: int, in_header: bool
) -> None:
    truth = damaged_after_a_kill(tmp_path, at=at, in_header=in_header)
    with reopened(tmp_path, CONFIG) as (_, log):
        kept = {offset: log.append_times(offset, offset + 1)[0].ms for offset in range(at)}
    found = [inspected(file) for file in cuts(tmp_path)]
    assert {offset: ms for each in found for offset, ms in each.items()} == {
        offset: ms for offset, ms in truth.items() if offset > at
    }
    assert kept == {offset: ms for offset, ms in truth.items() if offset < at}
    with reopened(tmp_path, CONFIG) as (_, log):
        assert [inspected(file) for file in cuts(tmp_path)] == found, (
            "a later start changes nothing"
        )
        log.apply_retention(NOW + 2 * DAY, 0)
    assert list(partition_dir(tmp_path).glob("*.cut*")) == []


def test_append_times_of_a_file_that_a_user_removed_go_at_the_next_start(tmp_path: Path) -> None:
    damaged_after_a_kill(tmp_path, at=5, in_header=False)
    with reopened(tmp_path, CONFIG):
        pass
    first, *others = cuts(tmp_path)
    first.unlink()
    with reopened(tmp_path, CONFIG):
        pass
    names = {path.name for path in partition_dir(tmp_path).glob("*.cut.times")}
    assert names == {f"{path.name}.times" for path in others}


def test_append_times_that_are_not_sure_are_not_kept(tmp_path: Path) -> None:
    damaged_after_a_kill(tmp_path, at=5, in_header=False)
    for path in partition_dir(tmp_path).glob("*.appending.deleted"):
        path.unlink()  # as a start of Apache Kafka removes it
    with reopened(tmp_path, CONFIG):
        pass
    last = cuts(tmp_path)[-1]
    assert set(inspected(last).values()) == {None}


@pytest.mark.parametrize("at", [0, 20, 30, 45, 150, -1])
def test_damaged_append_times_of_what_was_set_aside_are_unknown_or_true(
    tmp_path: Path, at: int
) -> None:
    truth = damaged_after_a_kill(tmp_path, at=5, in_header=False)
    with reopened(tmp_path, CONFIG):
        pass
    for path in partition_dir(tmp_path).glob("*.cut.times"):
        content = bytearray(path.read_bytes())
        content[at % len(content)] ^= 1
        path.write_bytes(content)
    found = {offset: ms for file in cuts(tmp_path) for offset, ms in inspected(file).items()}
    assert all(ms in (None, truth[offset]) for offset, ms in found.items())
    assert None in found.values()
