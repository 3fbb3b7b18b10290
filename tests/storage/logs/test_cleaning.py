"""Cleaning of a log that is in use: what is left, what readers see, and kills at any step."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from compacting import COMPACT, check_lookups, clean, faults, latest, put
from examples import some_of, stride
from faultyfiles import FaultyFiles, Killed
from interleave import at_each_line
from storelogs import (
    DAY,
    NOW,
    TOPIC_ID,
    UnsyncedFiles,
    new_follower,
    new_log,
    open_dir,
    partition_dir,
    pull,
    records_in,
    reopened,
    snapshot_of,
)

from horolog.config import TopicConfig
from horolog.errors import StorageFailed
from horolog.record import Codec, LogRecord, TimestampType, build_batch, iter_headers, verify_crc
from horolog.storage import (
    Cleaning,
    Files,
    KeyMap,
    Log,
    LogDir,
    Origin,
    SourceBatches,
    TopicPartition,
    find_by_append_time,
)

PARTITION = TopicPartition("events", 3)
KEYS = [b"a", b"b", b"c", b"d", b"e"]
LARGER = replace(COMPACT, segment_bytes=1200)
"""Two or three segments become one."""


def fill(log: Log, count: int = 30, first: int = 0, **more: object) -> None:
    """Records of five keys in turn, a second apart by both clocks."""
    for at in range(first, first + count):
        put(log, KEYS[at % 5], at=NOW + 1000 * at, now=NOW + 1000 * at + 7, **more)


def offsets(log: Log) -> list[int]:
    return [record.offset or 0 for record in records_in(log)]


def base_offsets(data: bytes) -> list[int]:
    """Of whole batches, each with the checksum that it should have."""
    found = []
    for position, header in iter_headers(data):
        verify_crc(data, position, header)
        found.append(header.base_offset)
    return found


def left_over(path: Path) -> list[str]:
    """Names of files in the partition's directory that a finished swap does not leave."""
    found = (each.name for each in partition_dir(path).iterdir())
    return [n for n in found if n.endswith((".swap", ".cleaned", "segments")) or n == "cleaning"]


# What is left.


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
def test_the_latest_record_of_each_key_stays_at_its_offset(tmp_path: Path, codec: Codec) -> None:
    with new_log(tmp_path / "log", COMPACT) as log:
        for at in range(0, 30, 2):
            put(log, KEYS[at % 5], KEYS[(at + 1) % 5], at=NOW + at, codec=codec)
        before = records_in(log)
        end = log.segments[-1].base_offset
        log.config = LARGER
        run = clean(log)
        assert run is not None
        assert run.is_whole
        assert run.end_offset == log.cleaner_point == end
        assert run.bytes_after < run.bytes_before
        assert run.segments_after < run.segments_before
        expected = latest(before, end)
        check_lookups(log, expected)
        assert (log.log_start_offset, log.log_end_offset) == (0, 30)
        assert left_over(tmp_path / "log") == []
        clean(log)
        put(log, b"a")
    assert faults(tmp_path / "log") == []
    with reopened(tmp_path / "log", COMPACT) as (log_dir, log):
        check_lookups(log, [*expected, *records_in(log)[-1:]])
        assert [each for one in log_dir.recoveries for each in one.warnings] == []


def test_append_times_and_hidden_create_times_stay(tmp_path: Path) -> None:
    config = replace(COMPACT, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    for settings in (COMPACT, config):
        path = tmp_path / settings.message_timestamp_type.name
        with new_log(path, settings) as log:
            fill(log)
            clean(log, NOW + DAY)
            found = offsets(log)
            times = {each.offset: each.ms for each in log.append_times(0, 30)}
            for offset in found:
                assert times[offset] == NOW + 1000 * offset + 7
                at = log.find_by_append_time(NOW + 1000 * offset + 7)
                assert at is not None
                assert at.offset == offset
            check_lookups(log)
        with reopened(path, settings) as (_, log):
            assert offsets(log) == found
            check_lookups(log)
            assert {e.offset: e.ms for e in log.append_times(0, 30)}.items() >= {
                (offset, times[offset]) for offset in found
            }


@pytest.mark.parametrize("is_stamped", [True, False])
def test_a_lookup_by_append_time_names_a_record_that_is_left(
    tmp_path: Path, *, is_stamped: bool
) -> None:
    settings = replace(COMPACT, message_timestamp_type=TimestampType(is_stamped), segment_bytes=999)
    with new_log(tmp_path, settings) as log:
        put(log, b"a", b"b", at=-1)  # the first has no time of its own
        put(log, b"b", b"c", b"d")
        put(log, b"b", b"d")
        log.roll(NOW)
        put(log, b"e")
        clean(log)
        assert offsets(log) == [0, 3, 5, 6, 7]
        assert [_appended_from(log, start) for start in range(8)] == [0, 3, 3, 3, 5, 5, 6, 7]
    if is_stamped:  # as another broker leaves them: only the batches say when they were appended
        for companion in partition_dir(tmp_path).glob("*.companion"):
            companion.unlink()
    with reopened(tmp_path, settings) as (_, log):
        assert [_appended_from(log, start) for start in range(8)] == [0, 3, 3, 3, 5, 5, 6, 7]


def _appended_from(log: Log, start: int) -> int | None:
    found = find_by_append_time(log.segments, NOW, start)
    return None if found is None else found.offset


def test_nothing_is_cleaned_without_the_policy_or_of_an_adopted_log(tmp_path: Path) -> None:
    with new_log(tmp_path, replace(COMPACT, cleanup_policy=frozenset({"delete"}))) as log:
        fill(log)
        assert log.cleanable(NOW) is None
        log.config = COMPACT
        log.retention_exempt = True
        assert log.cleanable(NOW) is None
        assert not log.must_roll_to_clean(NOW + 900 * DAY)
        log.retention_exempt = False
        assert log.cleanable(NOW) is not None


def test_nothing_is_cleaned_that_consumers_may_not_read_yet(tmp_path: Path) -> None:
    with new_log(tmp_path / "leader", COMPACT) as log:
        fill(log)
        sent = b"".join(Path(e.log.path).read_bytes()[: e.size] for e in log.segments)
    with new_follower(tmp_path / "follower", COMPACT) as log:
        log.append(SourceBatches(sent), NOW, Origin.FOLLOWER)
        log.move_high_watermark(13)
        chosen = log.cleanable(NOW)
        assert chosen is not None
        assert chosen.end <= 13
        clean(log)
        kept = offsets(log)
        log.move_high_watermark(30)
        assert [each for each in offsets(log) if each >= chosen.end] == list(range(chosen.end, 30))
        assert [each for each in offsets(log) if each < chosen.end] == [
            each for each in kept if each < chosen.end
        ]


def test_a_map_that_is_full_ends_the_run_where_it_is_and_the_next_goes_on(tmp_path: Path) -> None:
    with new_log(tmp_path, COMPACT) as log:
        for at in range(60):
            put(log, b"%d" % (at % 20), at=NOW + at)
        end = log.segments[-1].base_offset
        before = records_in(log)
        runs = []
        while (run := clean(log, key_map=KeyMap(24 * 9, 1.0))) is not None:
            runs.append(run)
            assert run.keys <= 9
            assert log.cleaner_point == run.end_offset
        assert len(runs) > 3
        assert records_in(log) == latest(before, end)


def test_a_pass_under_way_says_how_far_it_may_have_removed_records(tmp_path: Path) -> None:
    with new_log(tmp_path, COMPACT) as log:
        for at in range(60):
            put(log, KEYS[at % 5], at=NOW + at)
        end, before = log.segments[-1].base_offset, offsets(log)
        removed = []

        def look() -> None:
            assert log.cleaner_point is None
            removed.append(offsets(log) != before)
            assert log.compacted_to == (end if removed[-1] else None)

        clean(log, while_cleaning=look)
        assert set(removed) == {False, True}
        assert log.compacted_to == end
        log.truncate_to(3, NOW)
        assert log.compacted_to in (None, 3)


def test_a_killed_pass_has_written_how_far_it_may_have_removed_records(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with new_log(path, COMPACT) as log:
        for at in range(60):
            put(log, KEYS[at % 5], at=NOW + at)
        end, before = log.segments[-1].base_offset, offsets(log)

        def kill() -> None:
            if offsets(log) != before:
                snapshot_of(path, tmp_path / "killed")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            clean(log, while_cleaning=kill)
    for name in ("log", "killed"):
        with reopened(tmp_path / name, COMPACT) as (_, log):
            assert log.cleaner_point is None
            assert log.compacted_to == end
    damaged = partition_dir(tmp_path / "log") / "cleaning-checkpoint"
    damaged.write_text("0\n12")
    assert any("cleaning-checkpoint" in str(fault) for fault in faults(tmp_path / "log"))
    with reopened(tmp_path / "log", COMPACT) as (_, log):
        assert log.compacted_to == log.log_end_offset


# With the rest of the log's life.


def test_retention_deletes_what_is_cleaned_as_well(tmp_path: Path) -> None:
    config = replace(COMPACT, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=30_000)
    with new_log(tmp_path, config) as log:
        fill(log)
        clean(log, NOW + 30_000)
        kept = offsets(log)
        gone = log.apply_retention(NOW + 55_001, 0)
        assert gone
        assert offsets(log) == [each for each in kept if each >= log.log_start_offset]
        assert log.log_start_offset > 0
        check_lookups(log)


def test_records_that_are_deleted_by_a_client_stay_deleted(tmp_path: Path) -> None:
    config = replace(COMPACT, cleanup_policy=frozenset({"compact", "delete"}))
    with new_log(tmp_path / "log", config) as log:
        fill(log)
        log.delete_records(26)
        clean(log)
        assert min(offsets(log)) >= 26
        check_lookups(log)
        log.apply_retention(NOW, 0)
        assert log.log_start_offset == 26


def test_a_group_of_which_a_segment_has_gone_is_left(tmp_path: Path) -> None:
    config = replace(COMPACT, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1000)
    with new_log(tmp_path, config) as log:
        fill(log)
        chosen = log.cleanable(NOW)
        assert chosen is not None
        cleaning = Cleaning(
            log, chosen, KeyMap(1 << 16), now_ms=lambda: NOW, monotonic_ms=lambda: 0
        )

        steps = cleaning.steps(lambda call: call())
        next(steps)
        log.apply_retention(NOW + 20_000, 0)
        before = records_in(log)
        for _ in steps:
            pass
        assert not cleaning.run.is_whole
        assert records_in(log) == before
        assert left_over(tmp_path) == []


@pytest.mark.parametrize("pieces", [0, 1, 3])
@pytest.mark.parametrize("again", [False, True])
def test_a_run_over_a_log_that_is_truncated_meanwhile_removes_nothing_more(
    tmp_path: Path, pieces: int, again: bool
) -> None:
    with new_log(tmp_path / "leader", COMPACT) as log:
        fill(log)
        sent = b"".join(Path(e.log.path).read_bytes()[: e.size] for e in log.segments)
    with new_follower(tmp_path / "log", COMPACT) as log:
        pull(log, sent)
        chosen = log.cleanable(NOW)
        assert chosen is not None
        cleaning = Cleaning(
            log, chosen, KeyMap(1 << 16), now_ms=lambda: NOW, monotonic_ms=lambda: 0
        )
        steps = cleaning.steps(lambda call: call())
        for _ in range(pieces):
            next(steps)
        log.truncate_to(9, NOW)
        if again:
            log.roll(NOW)
            for at in range(log.log_end_offset, 40):
                pull(log, build_batch([LogRecord(NOW, b"new", b"v" * 20)], base_offset=at))
        before = records_in(log)
        for _ in steps:
            pass
        assert not cleaning.run.is_whole
        assert records_in(log) == before, "those that were the latest are gone"
        assert log.cleaner_point is None
        if again:
            clean(log)
            assert records_in(log) == latest(before, log.segments[-1].base_offset)
        assert left_over(tmp_path / "log") == []


def test_a_run_does_not_begin_where_another_one_has_been(tmp_path: Path) -> None:
    with new_log(tmp_path, COMPACT) as log:
        fill(log)
        chosen = log.cleanable(NOW)
        assert chosen is not None
        clean(log)
        before = records_in(log)
        late = Cleaning(log, chosen, KeyMap(1 << 16), now_ms=lambda: NOW, monotonic_ms=lambda: 0)
        assert list(late.steps(lambda call: call())) == []
        assert not late.run.is_whole
        assert records_in(log) == before


@pytest.mark.parametrize("to", [0, 3, 12, 27])
def test_a_truncation_below_what_was_cleaned_takes_the_cleaner_point_back(
    tmp_path: Path, to: int
) -> None:
    with new_log(tmp_path / "leader", COMPACT) as log:
        fill(log)
        sent = b"".join(Path(e.log.path).read_bytes()[: e.size] for e in log.segments)
    with new_follower(tmp_path / "log", COMPACT) as log:
        log.append(SourceBatches(sent), NOW, Origin.FOLLOWER)
        log.move_high_watermark(30)
        clean(log)
        before = records_in(log)
        log.truncate_to(to, NOW)
        assert (log.cleaner_point or 0) <= log.log_end_offset <= to
        assert records_in(log) == [each for each in before if (each.offset or 0) < to]
        log.append(
            SourceBatches(sent[sent.find(sent[:8]) :] if to == 0 else b""), NOW, Origin.FOLLOWER
        )
        check_lookups(log)
    assert [each for each in faults(tmp_path / "log") if ".cut" not in each.path] == []


def test_producers_go_on_after_their_batches_were_cleaned_and_the_broker_was_killed(
    tmp_path: Path,
) -> None:
    def send(log: Log, sequence: int) -> object:
        more = {"producer_id": 9, "producer_epoch": 2, "base_sequence": sequence}
        return put(log, b"mine", at=NOW, **more)

    with new_log(tmp_path, COMPACT) as log:
        for sequence in range(10):
            send(log, sequence)
        for _ in range(20):
            put(log, b"mine")
        log.roll(NOW)
        for _ in range(2):
            put(log, b"other")
            log.roll(NOW)
            clean(log)
        assert offsets(log)[0] == 29
    for path in partition_dir(tmp_path).glob("*.snapshot"):
        path.unlink()
    with reopened(tmp_path, COMPACT) as (_, log):
        assert send(log, 9).duplicate
        assert not send(log, 10).duplicate


def test_the_active_segment_is_rolled_when_its_records_are_overdue(tmp_path: Path) -> None:
    config = replace(COMPACT, max_compaction_lag_ms=DAY, segment_bytes=1 << 20)
    with new_log(tmp_path, config) as log:
        assert not log.must_roll_to_clean(NOW + 900 * DAY), "it is empty"
        put(log, b"a", at=NOW)
        assert not log.must_roll_to_clean(NOW + DAY)
        assert log.must_roll_to_clean(NOW + DAY + 1)
        put(log, b"a", at=NOW + DAY, now=NOW + DAY)
        assert len(log.segments) == 1
        put(log, b"a", at=NOW + DAY + 1, now=NOW + DAY + 1)
        assert len(log.segments) == 2, "also by what is appended, as in Kafka"


# The checkpoint.


def test_the_cleaner_point_is_remembered_and_gone_with_its_topic(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path, COMPACT)
    log = log_dir.create(*PARTITION, TOPIC_ID, COMPACT, NOW)
    fill(log)
    log_dir.checkpoint()
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    assert not checkpoint.exists() or checkpoint.read_text() == "0\n0\n"
    clean(log)
    log_dir.checkpoint_cleaner()
    assert checkpoint.read_text() == f"0\n1\nevents 3 {log.cleaner_point}\n"
    point = log.cleaner_point
    log_dir.close()
    log_dir = open_dir(tmp_path, COMPACT)
    assert log_dir.logs[PARTITION].cleaner_point == point
    log_dir.delete([PARTITION], 0)
    assert checkpoint.read_text() == "0\n0\n"
    log = log_dir.create(*PARTITION, TOPIC_ID, COMPACT, NOW)
    assert log.cleaner_point is None
    log_dir.close()


@pytest.mark.parametrize("line", ["31", "9223372036854775800"])
def test_a_cleaner_point_beyond_the_log_does_not_count(tmp_path: Path, line: str) -> None:
    with new_log(tmp_path, COMPACT) as log:
        fill(log)
    (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n1\nevents 3 {line}\n")
    with reopened(tmp_path, COMPACT) as (_, log):
        chosen = log.cleanable(NOW)
        assert chosen is not None
        assert chosen.first_dirty == 0


def test_a_cleaner_point_of_another_topic_of_that_name_does_not_count(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path, COMPACT)
    log = log_dir.create(*PARTITION, TOPIC_ID, COMPACT, NOW)
    fill(log)
    clean(log)
    log_dir.close()
    metadata = partition_dir(tmp_path) / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg")
    with reopened(tmp_path, COMPACT) as (_, log):
        assert log.cleaner_point is None


# Readers.


def test_a_reader_in_a_segment_that_is_replaced_reads_on(tmp_path: Path) -> None:
    with new_log(tmp_path, COMPACT) as log:
        fill(log)
        for again in range(3):
            before = records_in(log)
            segments = log.segments[:-1]
            held = log.read(0, 1 << 20)
            whole = bytes(held.read())
            texts = [Path(each.log.path).read_bytes()[: each.size] for each in segments]
            aborted = [each.aborted() for each in segments]
            files = log.files
            clean(log, monotonic=again)
            assert bytes(held.read()) == whole
            files.close()  # all are opened again, under the names that they have now
            for segment, text, entries in zip(segments, texts, aborted, strict=True):
                found = segment.slice(segment.base_offset, 1 << 20, min_one_batch=True)
                assert (b"" if found is None else bytes(found.read())) == text
                assert segment.aborted() == entries
                assert (segment.locate(segment.base_offset) is not None) == bool(text)
            assert records_in(log) != before
            fill(log, 30, 30 * (again + 1))
        assert log.removed_files.remove_due(59_999) == 0
        assert log.removed_files.remove_due(60_002) > 0
        assert list(partition_dir(tmp_path).glob("*.log*.deleted")) == []
        check_lookups(log)


READS: dict[str, Callable[[Log], object]] = {
    "first": lambda log: bytes(log.read(0, 1 << 20).read()),
    "middle": lambda log: bytes(log.read(14, 1 << 20).read()),
    "time": lambda log: log.find_by_timestamp(NOW + 11_500),
    "largest": lambda log: log.find_max_timestamp(),
    "append time": lambda log: log.find_by_append_time(NOW + 11_500),
    "append times": lambda log: log.append_times(27, 30),
}


@pytest.mark.parametrize("read", some_of(READS, 3))
def test_a_read_beside_a_swap_answers_as_before_or_as_after(tmp_path: Path, read: str) -> None:
    with new_log(tmp_path, COMPACT) as log:
        fill(log)
        first = 30
        answers = [READS[read](log)]

        def swap() -> None:
            nonlocal first
            fill(log, 10, first)
            first += 10
            clean(log)

        for found in at_each_line(lambda: READS[read](log), swap, every=stride(3)):
            answers.append(READS[read](log))
            if isinstance(found, bytes):
                # Segments are replaced one after the other: some may be as before, some as after.
                assert base_offsets(answers[-2])[0] <= base_offsets(found)[0]
                assert base_offsets(found)[0] <= base_offsets(answers[-1])[0]
            elif read in ("time", "append time"):
                assert found.offset >= 12
            elif read == "largest":
                assert found.offset >= answers[-2].offset, "appends go on meanwhile"
            if first > 900:
                break
        assert first > 60
        check_lookups(log)


# Kills, and disks that refuse.


def live(path: Path, files: Files) -> tuple[LogDir, Log, list[LogRecord]]:
    """A log of several segments that was never cleaned."""
    log_dir = open_dir(path, COMPACT, files=files)
    log = log_dir.create(*PARTITION, TOPIC_ID, COMPACT, NOW)
    fill(log)
    log.flush()
    log_dir.checkpoint()
    log.config = LARGER
    return log_dir, log, records_in(log)


def check_left(log: Log, before: list[LogRecord], point: int) -> None:
    """Of each segment the old or the new records are there; and the next run does the rest."""
    expected, found = latest(before, point), records_in(log)
    assert set(expected) <= set(found) <= set(before)
    assert (log.log_start_offset, log.log_end_offset) == (0, 30)
    check_lookups(log)
    times = {each.offset: each.ms for each in log.append_times(0, 30)}
    for record in found:
        assert times[record.offset] == NOW + 1000 * (record.offset or 0) + 7
    clean(log, NOW)
    check_lookups(log, expected)
    fill(log, 5, 30)
    assert offsets(log)[-5:] == list(range(30, 35))


def test_a_kill_at_any_step_leaves_the_old_segments_or_the_new_ones(tmp_path: Path) -> None:
    files = FaultyFiles(None)
    log_dir, log, before = live(tmp_path / "whole", files)
    point, start = log.segments[-1].base_offset, files.count
    clean(log)
    log_dir.checkpoint_cleaner()
    steps = files.count - start
    assert steps > 50
    assert any(not each.size for each in log.segments[:-1]), "nothing is left of a group"
    log_dir.close(clean=False)
    for step in range(0, steps, stride(7)):
        path = tmp_path / str(step)
        files = FaultyFiles(None)
        log_dir, log, before = live(path, files)
        files.fail_after(step, Killed())
        with pytest.raises(Killed):
            killed(log, log_dir)
        log_dir.close(clean=False)
        with reopened(path, COMPACT) as (log_dir, log):
            try:
                assert left_over(path) == []
                assert list(partition_dir(path).glob("*.cut")) == []
                check_left(log, before, point)
            except AssertionError as error:
                raise AssertionError(f"killed at {files.faults}") from error
        assert faults(path) == []


def killed(log: Log, log_dir: LogDir) -> None:
    """A run that a kill ends: nothing is done afterwards."""
    chosen = log.cleanable(NOW)
    assert chosen is not None
    cleaning = Cleaning(log, chosen, KeyMap(1 << 16), now_ms=lambda: NOW, monotonic_ms=lambda: 0)
    for _ in cleaning.steps(lambda call: call()):
        pass
    log_dir.checkpoint_cleaner()


def test_a_disk_that_refuses_any_step_ends_nothing_half_way(tmp_path: Path) -> None:
    for step in range(0, 1 << 20, stride(7)):
        path = tmp_path / str(step)
        files = FaultyFiles(None)
        log_dir, log, before = live(path, files)
        point = log.segments[-1].base_offset
        files.fail_after(step, OSError(errno.ENOSPC, "refused"))
        with suppress(StorageFailed):
            clean(log)
        if not files.faults:
            log_dir.close(clean=False)
            break
        files.heal()
        try:
            log.flush()
            check_left(log, before, point)
            assert left_over(path) == []
        except AssertionError as error:
            raise AssertionError(f"refused at {files.faults}") from error
        assert log_dir.close() == []
        assert faults(path) == []
        with reopened(path, COMPACT) as (log_dir, log):
            assert log_dir.was_clean
    assert step > 50


def test_a_flush_at_any_moment_of_a_swap_claims_nothing_that_is_not_synced(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path, COMPACT, files=UnsyncedFiles())
    log = log_dir.create(*PARTITION, TOPIC_ID, COMPACT, NOW)
    fill(log)
    first = 30

    def fill_and_clean() -> None:
        nonlocal first
        fill(log, 6, first)
        first += 6
        clean(log)

    for _ in at_each_line(fill_and_clean, log.flush, "horolog/storage/logs/replacing", stride(3)):
        assert not log.is_in_doubt
        assert log.recovery_point <= log.log_end_offset
    log_dir.close(clean=False)


def test_settings_that_change_while_a_run_is_at_it_end_it(tmp_path: Path) -> None:
    with new_log(tmp_path, COMPACT) as log:
        fill(log)
        chosen = log.cleanable(NOW)
        assert chosen is not None
        cleaning = Cleaning(
            log, chosen, KeyMap(1 << 16), now_ms=lambda: NOW, monotonic_ms=lambda: 0
        )
        steps = cleaning.steps(lambda call: call())
        next(steps)
        before = records_in(log)
        log.config = TopicConfig()
        for _ in steps:
            pass
        assert records_in(log) == before
        assert not cleaning.run.is_whole


def test_a_run_that_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    with new_log(tmp_path, COMPACT) as log:
        fill(log)
        chosen = log.cleanable(NOW)
        assert chosen is not None
        for count in range(20):
            cleaning = Cleaning(
                log, chosen, KeyMap(1 << 16), now_ms=lambda: NOW, monotonic_ms=lambda: 0
            )
            steps = cleaning.steps(lambda call: call())
            for _ in zip(range(count), steps, strict=False):
                pass
            steps.close()
            assert left_over(tmp_path) == []
            check_lookups(log)
