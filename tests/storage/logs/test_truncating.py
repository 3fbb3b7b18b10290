"""Truncation of a log that follows: what goes, what is kept of it, and what readers see."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from batches import marker
from examples import some_of, stride
from faultyfiles import FaultyFiles, Killed
from interleave import at_each_line
from old_messages import build_messages
from storelogs import (
    DAY,
    NOW,
    TOPIC_ID,
    UnsyncedFiles,
    append,
    batch,
    new_follower,
    open_dir,
    partition_dir,
    pull,
    records_in,
    reopened,
    snapshot_of,
)

from horolog.config import TopicConfig
from horolog.errors import HorologError, StorageFailed
from horolog.record import AppendTimeStretch, Codec, LogRecord, TimeRange, iter_headers
from horolog.storage import (
    EpochStart,
    Files,
    Finding,
    Log,
    LogDir,
    OpenFile,
    Origin,
    Severity,
    SourceBatches,
    TimestampOffset,
    TopicPartition,
    Verification,
    read_offsets,
)

PARTITION = TopicPartition("events", 3)
SMALL = TopicConfig(segment_bytes=400, index_interval_bytes=0, retention_ms=-1)
PRODUCER = {"producer_id": 9, "producer_epoch": 0}


def v2(offset: int, *times: int, epoch: int = 3, **more: int | bool) -> bytes:
    return batch(*(times or (NOW + offset,)), base_offset=offset, leader_epoch=epoch, **more)


def some(first: int, end: int, epoch: int = 3, late_ms: int = 0) -> bytes:
    return b"".join(v2(at, NOW + at + late_ms, epoch=epoch) for at in range(first, end))


def stamps(first: int, end: int, late_ms: int = 0) -> list[AppendTimeStretch]:
    return [AppendTimeStretch(at, NOW + 5 + at + late_ms) for at in range(first, end)]


def bytes_of(log: Log) -> bytes:
    found = [each for each in log.segments if each.size]
    return b"".join(Path(each.log.path).read_bytes()[: each.size] for each in found)


def set_aside(path: Path) -> bytes:
    """What was set aside, in the order of its offsets."""
    numbers = {each: each.name.split(".") for each in partition_dir(path).glob("*.cut")}
    found = sorted(numbers, key=lambda each: (int(numbers[each][0]), int(numbers[each][2])))
    return b"".join(each.read_bytes() for each in found)


def faults(path: Path) -> list[Finding]:
    """What `horolog log verify` says but of the files that were set aside."""
    return [
        step
        for step in Verification.of(path).steps()
        if isinstance(step, Finding) and step.severity is not Severity.NOTE
        if ".cut" not in step.path
    ]


def check(log: Log, expected: bytes) -> None:
    """Whether every answer is that of a log that never had anything else."""
    log.move_high_watermark(log.log_end_offset)
    assert bytes_of(log) == expected
    headers = [header for _, header in iter_headers(expected)]
    found = records_in(log)
    times = [record.timestamp for record in found]
    assert [record.offset for record in found] == [
        offset
        for each in headers
        for offset in range(max(each.base_offset, log.log_start_offset), each.next_offset)
    ]
    for time in {*times, *(ms + 1 for ms in times)}:
        at = next((r.offset for r in found if r.timestamp >= time), None)
        hit = log.find_by_timestamp(time)
        assert (hit and hit.offset) == at
    top = log.find_max_timestamp()
    assert (top and top.timestamp) == max(times, default=None)
    window = TimeRange(NOW - DAY, NOW + DAY)
    ranges = log.time_ranges(window, 0, 1000).ranges
    covered = {offset for each in ranges for offset in range(each.start, each.end)}
    assert covered >= {record.offset for record in found}
    for segment in log.segments[:-1]:
        assert segment.indexes.check(segment.size)
        facts = segment.indexes.scan(segment.size, keep=False)
        assert Path(segment.path_of(".index")).read_bytes() == facts.offset_entries


# What goes, and what is kept of it.


@pytest.mark.parametrize("to", range(13))
def test_a_log_is_as_if_it_had_never_had_more(tmp_path: Path, to: int) -> None:
    sent = [v2(2 * at, NOW + at, NOW + at, epoch=3 + at // 3) for at in range(6)]
    times = [AppendTimeStretch(2 * at, NOW + 50 + at) for at in range(6)]
    with new_follower(tmp_path / "log", SMALL) as log:
        pull(log, *sent, append_times=times)
        log.truncate_to(to, NOW + 99)
        kept = to // 2
        assert log.log_end_offset == log.high_watermark == 2 * kept
        assert log.epochs.entries == tuple(
            EpochStart(3 + each, 6 * each) for each in range((kept + 2) // 3)
        )
        assert log.floor.last == (NOW + 49 + kept if kept else None)
        assert set_aside(tmp_path / "log") == b"".join(sent[kept:])
        check(log, b"".join(sent[:kept]))
        snapshot_of(tmp_path / "log", tmp_path / "killed")
        others = [v2(2 * at, NOW - 9, NOW - 9, epoch=9) for at in range(kept, 8)]
        pull(log, *others, append_times=[AppendTimeStretch(2 * kept, NOW + 49 + kept)])
        check(log, b"".join([*sent[:kept], *others]))
        assert log.append_times(0, 2 * kept) == times[:kept]
        assert log.floor.resets == ()
    assert faults(tmp_path / "log") == []
    with reopened(tmp_path / "killed", SMALL, follows=True) as (log_dir, log):
        check(log, b"".join(sent[:kept]))
        assert log.append_times(0, log.log_end_offset) == times[:kept]
        assert log.floor.last == (NOW + 49 + kept if kept else None)
        assert [each for one in log_dir.recoveries for each in one.warnings] == []


def test_the_log_goes_on_in_a_new_segment_behind_the_cut(tmp_path: Path) -> None:
    config = replace(SMALL, segment_bytes=1 << 20)
    with new_follower(tmp_path, config) as log:
        pull(log, some(0, 10))
        log.truncate_to(4, NOW)
        log.truncate_to(3, NOW)
        assert [each.base_offset for each in log.segments] == [0]
        pull(log, some(3, 5, epoch=4))
        pull(log, some(5, 7, epoch=4))
        assert [each.base_offset for each in log.segments] == [0, 3]
        check(log, some(0, 3) + some(3, 7, epoch=4))


def test_a_log_that_leads_afterwards_goes_on_in_a_new_segment(tmp_path: Path) -> None:
    with new_follower(tmp_path) as log:
        pull(log, some(0, 5), append_times=stamps(0, 5))
        log.truncate_to(2, NOW)
        log.lead(7, 0)
        assert append(log, NOW, now=NOW).base_offset == 2
        assert append(log, NOW, now=NOW).base_offset == 3
        assert [each.base_offset for each in log.segments] == [0, 2]
        times = [each.ms for each in log.append_times(1, 4)]
        assert set(times) == {NOW + 6}, "it never goes back"


@pytest.mark.parametrize("start", [0, 3, 40, 1000])
def test_a_log_starts_anew_at_any_offset(tmp_path: Path, start: int) -> None:
    with new_follower(tmp_path / "log", SMALL) as log:
        pull(log, some(0, 20), v2(20, base_sequence=0, **PRODUCER))
        log.start_at(5)
        log.truncate_fully(start, NOW)
        assert log.log_start_offset == log.log_end_offset == log.high_watermark == start
        assert log.epochs.entries == ()
        assert len(log.producers) == 0
        assert set_aside(tmp_path / "log") == some(0, 20) + v2(20, base_sequence=0, **PRODUCER)
        pull(log, some(start, start + 9, epoch=1))
        check(log, some(start, start + 9, epoch=1))
        snapshot_of(tmp_path / "log", tmp_path / "killed")
    with reopened(tmp_path / "killed", SMALL, follows=True) as (_, log):
        assert log.log_start_offset == start
        check(log, some(start, start + 9, epoch=1))


def test_nothing_is_done_at_the_log_end_or_beyond(tmp_path: Path) -> None:
    with new_follower(tmp_path, SMALL) as log:
        pull(log, some(0, 5))
        before = log.segments
        log.truncate_to(5, NOW)
        log.truncate_to(1 << 62, NOW)
        assert log.segments is before
        assert set_aside(tmp_path) == b""


@pytest.mark.parametrize("to", [4, 5, 7, 99, 100, 101])
def test_a_log_is_cut_before_and_behind_a_gap(tmp_path: Path, to: int) -> None:
    sent = some(0, 5) + v2(100) + v2(101)
    with new_follower(tmp_path, SMALL) as log:
        pull(log, sent)
        log.truncate_to(to, NOW)
        expected = some(0, min(to, 5)) + (v2(100) if to == 101 else b"")
        check(log, expected)
        pull(log, v2(50, epoch=8)) if to <= 100 else pull(log, v2(101, epoch=8))
        check(log, expected + v2(50 if to <= 100 else 101, epoch=8))


def test_a_log_that_begins_at_a_large_offset_is_cut_below_its_first_segment(tmp_path: Path) -> None:
    first = 1 << 40
    with new_follower(tmp_path, SMALL) as log:
        log.truncate_fully(first, NOW)
        pull(log, some(first, first + 9))
        log.truncate_to(first + 4, NOW)
        check(log, some(first, first + 4))
        log.truncate_to(17, NOW)
        assert (log.log_start_offset, log.log_end_offset) == (17, 17)
        pull(log, some(17, 20))
        check(log, some(17, 20))


def test_messages_of_old_formats_are_cut_at_any_of_them(tmp_path: Path) -> None:
    records = [LogRecord(NOW + at, b"k", b"v", offset=at) for at in range(6)]
    plain = bytes(build_messages(records, 1))
    packed = bytes(
        build_messages(
            [LogRecord(NOW + at, b"k", b"v", offset=at) for at in (6, 7)], 1, codec=Codec.GZIP
        )
    )
    for to in range(9):
        with new_follower(tmp_path / str(to), SMALL) as log:
            log.append(SourceBatches(plain), NOW, Origin.FOLLOWER)
            log.append(SourceBatches(packed), NOW, Origin.FOLLOWER)
            log.truncate_to(to, NOW)
            expected = plain[: to * len(plain) // 6] if to < 7 else plain + packed * (to == 8)
            assert bytes_of(log) == expected
            assert log.log_end_offset == (to if to != 7 else 6)
            assert log.epochs.entries == ()


def test_what_is_set_aside_expires_and_is_counted(tmp_path: Path) -> None:
    config = replace(SMALL, retention_ms=1000)
    with new_follower(tmp_path, config) as log:
        pull(log, some(0, 10))
        log.truncate_to(1, NOW)
        assert sum(size for _, size in log.removed_files.set_aside()) == len(some(1, 10))
        log.apply_retention(NOW + 500, NOW)
        assert log.removed_files.set_aside() != []
        log.apply_retention(NOW + 2000, NOW)
        assert log.removed_files.set_aside() == []
        assert set_aside(tmp_path) == b""


# Producers and transactions.


def test_producers_are_as_before_the_batches_that_go(tmp_path: Path) -> None:
    with new_follower(tmp_path, SMALL) as log:
        pull(log, *(v2(at, base_sequence=at, **PRODUCER) for at in range(12)))
        log.truncate_to(5, NOW)
        log.lead(8, 0)
        done = append(log, NOW, base_sequence=4, **PRODUCER)
        assert (done.duplicate, done.base_offset) == (True, 4)
        assert append(log, NOW, base_sequence=5, **PRODUCER).base_offset == 5


def test_a_transaction_whose_end_goes_is_open_again(tmp_path: Path) -> None:
    more = {"is_transactional": True, **PRODUCER}
    with new_follower(tmp_path, SMALL) as log:
        pull(
            log,
            v2(0),
            v2(1, base_sequence=0, **more),
            some(2, 8),
            marker(8, 9, kind=0),
            some(9, 12),
        )
        assert log.last_stable_offset == 12
        log.truncate_to(8, NOW)
        assert (log.high_watermark, log.last_stable_offset) == (8, 1)
        pull(log, marker(8, 9, kind=1))
        assert log.last_stable_offset == 9
        assert log.look().aborted_transactions(0, 9) == []


def test_a_transaction_that_begins_behind_the_cut_is_gone(tmp_path: Path) -> None:
    more = {"is_transactional": True, **PRODUCER}
    with new_follower(tmp_path, SMALL) as log:
        pull(log, some(0, 6), v2(6, base_sequence=0, **more), some(7, 9))
        log.truncate_to(6, NOW)
        pull(log, some(6, 9, epoch=4))
        assert log.last_stable_offset == 9


# Append times.


def test_resets_of_the_append_time_go_with_their_records(tmp_path: Path) -> None:
    ahead = [AppendTimeStretch(0, NOW + DAY), AppendTimeStretch(4, NOW)]
    with new_follower(tmp_path / "log", SMALL) as log:
        pull(log, some(0, 8), append_times=ahead)
        assert [each.offset for each in log.floor.resets] == [4]
        log.truncate_to(4, NOW)
        assert log.floor.resets == ()
        assert log.floor.last == NOW + DAY
        pull(log, some(4, 6), append_times=[AppendTimeStretch(4, NOW + DAY)])
        assert log.floor.resets == ()
        log.truncate_to(0, NOW)
        assert log.floor.last is None
    with reopened(tmp_path / "log", SMALL, follows=True) as (_, log):
        assert log.floor.last is None
        pull(log, some(0, 2), append_times=[AppendTimeStretch(0, NOW - DAY)])
        assert log.floor.resets == ()


# Kills, and disks that refuse.

OLD = some(0, 9) + v2(9, base_sequence=0, **PRODUCER) + some(10, 16, epoch=4)
TIMES = stamps(0, 16)


def live(path: Path, files: Files) -> tuple[LogDir, Log]:
    """A log of several segments in which consumers have read everything."""
    log_dir = open_dir(path, SMALL, files=files)
    log = log_dir.create(*PARTITION, TOPIC_ID, SMALL, NOW)
    log.begin_following(0)
    pull(log, OLD, append_times=TIMES)
    log.flush()
    log.start_at(1)
    log_dir.checkpoint()
    return log_dir, log


def truncate(log: Log, to: int, *, anew: bool) -> None:
    if anew:
        log.truncate_fully(to, NOW + 99)
    else:
        log.truncate_to(to, NOW + 99)


def expected_after(to: int, *, anew: bool) -> bytes:
    headers = list(iter_headers(OLD))
    return b"" if anew else b"".join(OLD[p : p + h.size] for p, h in headers if h.next_offset <= to)


def check_left(path: Path, log: Log, to: int, *, anew: bool) -> None:
    """After a kill the log ends anywhere from there on, and nothing of it is lost or made up."""
    left, kept = bytes_of(log), expected_after(to, anew=anew)
    assert OLD.startswith(left)
    assert left.startswith(kept) or anew
    assert left == OLD or log.high_watermark <= max(to, log.log_start_offset)
    if left:
        for each in log.append_times(log.log_start_offset, log.log_end_offset):
            assert each.ms in (None, NOW + 5 + each.offset)
    truncate(log, to, anew=anew)
    check(log, kept)
    aside = set_aside(path)
    assert all(OLD[p : p + h.size] in aside for p, h in iter_headers(OLD, len(kept)))
    assert log.last_stable_offset == log.log_end_offset == to
    log.flush()  # ends what a sync that failed leaves in doubt
    end = log.log_end_offset
    pull(log, some(end, end + 6, epoch=7, late_ms=3), append_times=stamps(end, end + 6, 40))
    check(log, kept + some(end, end + 6, epoch=7, late_ms=3))
    assert log.append_times(end, end + 6) == stamps(end, end + 6, 40)
    assert log.epochs.epoch_at(end) == 7
    assert log.floor.resets == ()
    assert faults(path) == []


CUTS = [(11, False), (6, False), (5, False), (1, False), (0, False), (0, True), (700, True)]
EVERY = 4
STEPS = some_of([(*cut, first) for cut in CUTS for first in range(EVERY)], 7)


@pytest.mark.parametrize("case", STEPS)
def test_a_kill_at_any_step_leaves_what_can_be_truncated_again(
    tmp_path: Path, case: tuple[int, bool, int]
) -> None:
    to, anew, first = case
    files = FaultyFiles(None)
    log_dir, log = live(tmp_path / "whole", files)
    before = files.count
    truncate(log, to, anew=anew)
    steps = files.count - before
    assert steps > 10
    log_dir.close(clean=False)
    for step in range(first, steps, EVERY):
        path = tmp_path / str(step)
        files = FaultyFiles(None)
        log_dir, log = live(path, files)
        files.fail_after(step, Killed())
        with pytest.raises(Killed):
            truncate(log, to, anew=anew)
        log_dir.close(clean=False)
        with reopened(path, SMALL, follows=True) as (log_dir, log):
            try:
                check_left(path, log, to, anew=anew)
            except AssertionError as error:
                raise AssertionError(f"killed at {files.faults}") from error


@pytest.mark.parametrize("case", STEPS)
def test_a_disk_that_refuses_any_step_ends_nothing_half_way(
    tmp_path: Path, case: tuple[int, bool, int]
) -> None:
    to, anew, first = case
    for step in range(first, 1 << 20, EVERY):
        path = tmp_path / str(step)
        files = FaultyFiles(None)
        log_dir, log = live(path, files)
        files.fail_after(step, OSError(errno.ENOSPC, "refused"))
        try:
            truncate(log, to, anew=anew)
        except StorageFailed:
            assert not list(partition_dir(path).glob("*.log.[0-9]*[0-9].tmp")), "it takes room"
        if not files.faults:
            log_dir.close(clean=False)
            break
        files.heal()
        try:
            check_left(path, log, to, anew=anew)
        except AssertionError as error:
            raise AssertionError(f"refused at {files.faults}") from error
        log_dir.close()
        with reopened(path, SMALL, follows=True) as (log_dir, log):
            assert log_dir.was_clean
            assert log.epochs.latest == 7
    assert step > 10


# Readers, flushes and retention beside a truncation.


def version(number: int) -> tuple[bytes, list[AppendTimeStretch]]:
    """What the log has after this many truncations to offset 3: other batches, the same offsets.

    They differ in size, so that a position of one version is within a batch of another.
    """
    later = b"".join(
        batch(NOW + 100 * number + at, base_offset=at, leader_epoch=3 + number, value=b"v" * size)
        for at, size in zip(range(3, 9), (number % 7 + 1,) * 6, strict=True)
    )
    times = [AppendTimeStretch(at, NOW + 1000 + 10 * number + at) for at in range(3, 9)]
    return later, times


READS: dict[str, Callable[[Log, int], object]] = {
    "changed": lambda log, number: bytes(log.read(4, 1 << 20).read()),
    "time": lambda log, number: log.find_by_timestamp(NOW + 100 * number + 5),
    "largest": lambda log, number: log.find_max_timestamp(),
    "first": lambda log, number: bytes(log.read(0, 1 << 20).read()),
    "append time": lambda log, number: log.find_by_append_time(NOW + 1000 + 10 * number + 5),
    "append times": lambda log, number: log.append_times(0, 9),
}


@pytest.mark.parametrize("read", some_of(READS, 3))
@pytest.mark.parametrize("segment_bytes", some_of([300, 1 << 20], 2))
def test_a_reader_gets_what_it_began_to_read_or_is_refused(
    tmp_path: Path, read: str, segment_bytes: int
) -> None:
    config = replace(SMALL, segment_bytes=segment_bytes)
    with new_follower(tmp_path, config) as log:
        pull(log, some(0, 3), append_times=stamps(0, 3))
        number = 1
        pull(log, version(number)[0], append_times=version(number)[1])

        def replace_records() -> None:
            nonlocal number
            number += 1
            later, times = version(number)
            log.truncate_to(3, NOW)
            pull(log, later, append_times=times)

        def answer() -> object:
            try:
                return READS[read](log, number)
            except HorologError as error:
                return error

        before = number
        for found in at_each_line(answer, replace_records, every=stride(3)):
            check_answer(found, before, number)
            before = number
        check_answer(answer(), number, number)
        assert not isinstance(answer(), HorologError)
        assert number > 10


def check_answer(found: object, before: int, after: int) -> None:
    """Whether it is of one of two versions, or of the moment in between."""
    if isinstance(found, bytes):
        texts = [some(0, 3) + version(each)[0] for each in (before, after)]
        assert any(found in text for text in texts), "torn"
    elif isinstance(found, TimestampOffset):
        times = {0: NOW, 1: NOW + 1, 2: NOW + 2}
        versions = [
            times | {at: NOW + 100 * each + at for at in range(3, 9)} for each in (before, after)
        ]
        assert found.timestamp in [each[found.offset] for each in versions]
    elif isinstance(found, list):
        known = {each.ms for number in (before, after) for each in version(number)[1]}
        assert all(each.ms in {None, *known} for each in found[3:])


def test_a_slice_that_is_held_reads_what_it_had_or_less(tmp_path: Path) -> None:
    with new_follower(tmp_path, replace(SMALL, segment_bytes=1 << 20)) as log:
        pull(log, some(0, 8))
        held = log.read(0, 1 << 20)
        log.truncate_to(3, NOW)
        pull(log, some(3, 8, epoch=9, late_ms=7))
        assert held.read() == some(0, 3), "no byte of what came afterwards"
        assert held.read_cached() is None
        whole = log.read(3, 1 << 20)
        log.truncate_to(0, NOW)
        pull(log, some(0, 8, epoch=10, late_ms=9))
        assert whole.read() == some(3, 8, epoch=9, late_ms=7), "it was set aside, not changed"


@pytest.mark.parametrize("to", some_of([3, 0, 11], 3))
def test_a_flush_at_any_moment_of_a_truncation_claims_nothing_that_is_gone(
    tmp_path: Path, to: int
) -> None:
    log_dir, log = live(tmp_path, UnsyncedFiles())

    def fill_and_truncate() -> int:
        truncate(log, to, anew=False)
        return log.recovery_point

    def flush() -> None:
        with suppress(StorageFailed):
            log.flush()

    within = "horolog/storage/logs/truncating"
    for point in at_each_line(fill_and_truncate, flush, within, stride(3)):
        assert point <= log.log_end_offset == to
        assert not log.is_in_doubt
        log.flush()
        assert log.recovery_point == to
        end = log.log_end_offset
        pull(log, some(end, 16, epoch=log.epochs.latest + 1))
    log_dir.close(clean=False)


def test_retention_at_any_moment_of_following_and_truncating_keeps_to_its_order(
    tmp_path: Path,
) -> None:
    config = replace(SMALL, retention_ms=1000)
    with new_follower(tmp_path, config) as log:
        pull(log, some(0, 20))
        log.truncate_to(14, NOW)
        gone = [each.base_offset for each in log.apply_retention(NOW + DAY, NOW)]
        assert gone == [0, 4, 8, 12, 12, 16], "the last two were set aside"
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (14, 14, 14)
        pull(log, some(14, 20, epoch=5))
        check(log, some(14, 20, epoch=5))
        log.truncate_to(3, NOW)
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)


def test_what_retention_has_removed_stays_removed_after_a_truncation(tmp_path: Path) -> None:
    config = replace(SMALL, retention_ms=1000, file_delete_delay_ms=60_000)
    log_dir = open_dir(tmp_path, config)
    log = log_dir.create(*PARTITION, TOPIC_ID, config, NOW)
    log.begin_following(0)
    pull(log, some(0, 8) + some(8, 20, late_ms=DAY))
    assert [gone.base_offset for gone in log.apply_retention(NOW + DAY, NOW)] == [0, 4]
    log.truncate_fully(0, NOW)
    pull(log, some(0, 8, epoch=9, late_ms=DAY))
    assert log.removed_files.remove_due(NOW + 60_000) > 0
    check(log, some(0, 8, epoch=9, late_ms=DAY))
    log_dir.close()


# What the disk has of it after a power cut.


def test_what_is_cut_is_on_the_disk_before_anything_follows(tmp_path: Path) -> None:
    """Else a power cut brought records back that others follow, below the recovery point."""
    synced: list[str] = []

    class Synced(UnsyncedFiles):
        def sync(self, file: OpenFile) -> None:
            synced.append(Path(file.path).name)
            super().sync(file)

    log_dir, log = live(tmp_path, Synced())
    synced.clear()
    log.truncate_to(6, NOW)
    first = f"{4:020d}.log.178.tmp"
    assert synced.index(first) < synced.index("recovery-point-offset-checkpoint.tmp")
    assert synced.index("replication-offset-checkpoint.tmp") < synced.index(f"{4:020d}.log")
    assert f"{4:020d}.companion" in synced
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert read_offsets(Files(), str(tmp_path / name))[PARTITION] == 6
    log_dir.close(clean=False)
