"""`horolog log compact`: the latest record of each key stays, and a kill loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from batches import marker
from compacting import COMPACT, check_lookups, faults, latest, put
from faultyfiles import FaultyFiles, Killed
from storelogs import NOW, new_follower, new_log, partition_dir, pull, records_in, reopened

from horolog.errors import CorruptFile, Misconfigured
from horolog.record import LogRecord, build_batch
from horolog.storage import (
    CLEANER_OFFSETS,
    LOCK,
    META_PROPERTIES,
    CompactedPartition,
    Compaction,
    Files,
    Origin,
    SourceBatches,
    TopicPartition,
    find_target,
    prepare,
    read_offsets,
)

PLAIN = replace(COMPACT, cleanup_policy=frozenset({"delete"}))
KEYS = [b"a", b"b", b"c"]


def compact(
    path: Path, files: Files | None = None, now: int = NOW, **options: int
) -> list[CompactedPartition]:
    work = Compaction(find_target(path), now, files=files or Files(), **options)
    with work.locked():
        steps = work.steps()
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                return ended.value


def filled(path: Path, count: int = 30) -> tuple[list[LogRecord], int]:
    with new_log(path, PLAIN) as log:
        for at in range(count):
            put(log, KEYS[at % 3], at=NOW + at, now=NOW + at + 5)
        return records_in(log), log.segments[-1].base_offset


def killed_runs(path: Path) -> Iterator[tuple[int, Path, list[LogRecord], int]]:
    """Each a log whose compaction was killed at another step; the last one was not killed."""
    for step in range(0, 400, 7):
        before, end = filled(path / str(step), 15)
        killed = False
        try:
            with suppress(OSError):
                compact(path / str(step), FaultyFiles(step, Killed(), for_ops=1 << 30))
        except Killed:
            killed = True
        yield step, path / str(step), before, end
        if not killed:
            return
    pytest.fail("the last step was never reached")


@pytest.mark.parametrize("memory", [1 << 20, 24 * 3])
def test_the_latest_record_of_each_key_stays(tmp_path: Path, memory: int) -> None:
    before, end = filled(tmp_path)
    (would,) = compact(tmp_path, dry_run=True)
    with reopened(tmp_path, PLAIN) as (_, log):
        assert records_in(log) == before, "nothing was written"
    (done,) = compact(tmp_path, memory_bytes=memory)
    assert (done.refused, done.end_offset) == (None, end)
    if memory > 100:
        assert (would.records_after, would.records_before) == (3, end)
        assert (done.records_after, done.records_before) == (3, end)
        assert done.bytes_after < done.bytes_before
    assert faults(tmp_path) == []
    with reopened(tmp_path, PLAIN) as (_, log):
        check_lookups(log, latest(before, end))
        times = {each.offset: each.ms for each in log.append_times(0, 30)}
        assert all(times[each.offset or 0] == each.timestamp + 5 for each in records_in(log))


def test_records_without_a_key_stay_unless_they_are_to_go(tmp_path: Path) -> None:
    with new_log(tmp_path, PLAIN) as log:
        sent = [LogRecord(NOW, None, b"v" * 30), LogRecord(NOW, b"k", b"v" * 30)]
        for _ in range(12):
            log.append(prepare(build_batch(sent), log.config, NOW, partition=str(log)), NOW)
        end = log.segments[-1].base_offset
    (done,) = compact(tmp_path)
    assert (done.keyless, done.records_after) == (end // 2, end // 2 + 1)
    (done,) = compact(tmp_path, removes_keyless=True)
    assert done.records_after == 1


def test_nothing_is_compacted_from_an_open_transaction_on(tmp_path: Path) -> None:
    def sent(offset: int, producer: int, sequence: int) -> bytes:
        return build_batch(
            [LogRecord(NOW, b"k", b"v")],
            base_offset=offset,
            is_transactional=True,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )

    with new_follower(tmp_path, PLAIN) as log:
        pull(log, sent(0, 7, 0), marker(1, 7, kind=1))
        pull(log, sent(2, 8, 0), marker(3, 8, kind=0))
        log.roll(NOW)
        pull(log, sent(4, 7, 1), marker(5, 7, kind=1), sent(6, 9, 0))
        log.roll(NOW)
        pull(log, sent(7, 7, 2), marker(8, 7, kind=1))
    (done,) = compact(tmp_path)
    assert done.end_offset == 4
    assert done.refused is None
    with reopened(tmp_path, PLAIN) as (_, log):
        assert records_in(log)[0].offset == 0, "the aborted one is not the latest"


def test_nothing_is_compacted_that_a_follower_may_have_to_truncate(tmp_path: Path) -> None:
    with new_log(tmp_path / "leader", PLAIN) as log:
        for at in range(30):
            put(log, KEYS[at % 3], at=NOW + at)
        before = records_in(log)
        sent = b"".join(Path(e.log.path).read_bytes()[: e.size] for e in log.segments)
    with new_follower(tmp_path / "log", PLAIN) as log:
        log.append(SourceBatches(sent), NOW, Origin.FOLLOWER)
        log.move_high_watermark(13)
        log.checkpoint()
        end = max(each.base_offset for each in log.segments if each.base_offset <= 13)
        assert 3 < end < log.segments[-1].base_offset
    (done,) = compact(tmp_path / "log")
    assert (done.refused, done.end_offset) == (None, end)
    with reopened(tmp_path / "log", PLAIN, follows=True) as (_, log):
        log.move_high_watermark(30)
        assert records_in(log) == latest(before, end)
    checkpoint = tmp_path / "log" / "replication-offset-checkpoint"
    checkpoint.write_text("damaged")
    with pytest.raises(CorruptFile, match="replication-offset-checkpoint"):
        compact(tmp_path / "log")
    assert faults(tmp_path / "log") != [], "`log verify` says how to repair it"


def test_a_damaged_partition_is_left_and_the_others_are_compacted(tmp_path: Path) -> None:
    filled(tmp_path)
    good = partition_dir(tmp_path)
    bad = good.with_name("bad-0")
    bad.mkdir()
    for log in good.glob("*.log"):
        (bad / log.name).write_bytes(log.read_bytes())
    first = bad / f"{0:020}.log"
    first.write_bytes(first.read_bytes()[:100] + b"\xff" + first.read_bytes()[101:])
    before = {each.name: each.read_bytes() for each in bad.iterdir()}
    done = {Path(each.path).name: each for each in compact(tmp_path)}
    assert "damaged" in (done["bad-0"].refused or "")
    assert done[good.name].refused is None
    assert {e.name: e.read_bytes() for e in bad.iterdir() if e.name in before} == before


def lines_of(log_dir: Path) -> dict[TopicPartition, int]:
    return read_offsets(Files(), str(log_dir / CLEANER_OFFSETS))


def test_a_log_directory_says_up_to_where_its_logs_were_cleaned(tmp_path: Path) -> None:
    _, end = filled(tmp_path)
    (tmp_path / CLEANER_OFFSETS).write_text("0\n2\nother 0 41\nevents 3 1000\n")
    compact(tmp_path, dry_run=True)
    assert lines_of(tmp_path) == {("other", 0): 41, ("events", 3): 1000}
    compact(tmp_path)
    assert lines_of(tmp_path) == {("other", 0): 41, ("events", 3): end}
    with reopened(tmp_path, replace(PLAIN, cleanup_policy=frozenset({"compact"}))) as (_, log):
        assert log.cleaner_point == end
        found = log.cleanable(NOW)
        assert found is None or found.first_dirty == end


def test_what_was_cleaned_further_stays_so(tmp_path: Path) -> None:
    _, end = filled(tmp_path)
    (tmp_path / CLEANER_OFFSETS).write_text(f"0\n1\nevents 3 {end + 1}\n")
    compact(tmp_path)
    assert lines_of(tmp_path) == {("events", 3): end + 1}


def test_a_kill_leaves_a_line_before_the_first_gap_and_none_too_far(tmp_path: Path) -> None:
    for step, path, before, end in killed_runs(tmp_path):
        line = lines_of(path).get(TopicPartition("events", 3))
        with reopened(path, PLAIN) as (_, log):
            is_changed = records_in(log) != before
            is_compacted = records_in(log) == latest(before, end)
        assert line is not None or not is_changed, step
        assert not line or (line == end and is_compacted), step


def test_a_directory_that_is_no_brokers_gets_no_file(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / LOCK).unlink()
    (tmp_path / META_PROPERTIES).unlink(missing_ok=True)
    compact(partition_dir(tmp_path))
    assert not (tmp_path / CLEANER_OFFSETS).exists()


def test_one_segment_is_not_compacted_alone(tmp_path: Path) -> None:
    filled(tmp_path)
    with pytest.raises(Misconfigured, match="one segment"):
        compact(partition_dir(tmp_path) / f"{0:020}.log")


def test_a_kill_at_any_step_loses_nothing(tmp_path: Path) -> None:
    for step, path, before, end in killed_runs(tmp_path):
        compact(path)
        with reopened(path, PLAIN) as (_, log):
            assert records_in(log) == latest(before, end), step
