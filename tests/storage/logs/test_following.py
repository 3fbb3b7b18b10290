"""A log that follows: batches of a source as they are, and what consumers see of them."""

from __future__ import annotations

import errno
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from batches import marker
from examples import examples
from faultyfiles import FaultyFiles
from hypothesis import given
from hypothesis import strategies as st
from old_messages import build_messages
from storelogs import (
    DAY,
    NOW,
    TOPIC_ID,
    Truth,
    append,
    batch,
    new_follower,
    new_log,
    open_dir,
    partition_dir,
    pull,
    records_in,
    reopened,
    times_in,
)

from horolog.config import TopicConfig
from horolog.errors import (
    CorruptBatch,
    ErrorCode,
    RequestRefused,
    StorageFailed,
    code_for,
)
from horolog.record import AppendTimeStretch, Codec, LogRecord, TimeRange, TimestampType
from horolog.sources import scan
from horolog.storage import (
    EpochStart,
    Finding,
    Log,
    Origin,
    Severity,
    SourceBatches,
    TopicPartition,
    Unended,
    Verification,
)

PARTITION = TopicPartition("events", 3)
SMALL = TopicConfig(segment_bytes=300, index_interval_bytes=0)
FOREVER = TopicConfig(index_interval_bytes=0, retention_ms=-1)


def v2(offset: int, *times: int, epoch: int = 3, **more: int | bool) -> bytes:
    return batch(*(times or (NOW,)), base_offset=offset, leader_epoch=epoch, **more)


def bytes_of(log: Log) -> bytes:
    return b"".join(Path(each.log.path).read_bytes()[: each.size] for each in log.segments)


# Batches.


def test_batches_are_kept_as_they_are_with_their_offsets_and_epochs(tmp_path: Path) -> None:
    sent = v2(0, 17) + v2(1, NOW, NOW + 1, epoch=4) + v2(9, NOW + 2, epoch=7)
    with new_follower(tmp_path, FOREVER) as log:
        followed = pull(log, sent)
        assert (followed.last_offset, followed.next_offset, followed.size) == (9, 10, len(sent))
        assert bytes_of(log) == sent
        assert log.epochs.entries == (EpochStart(3, 0), EpochStart(4, 1), EpochStart(7, 9))
        assert times_in(log) == [(0, 17), (1, NOW), (2, NOW + 1), (9, NOW + 2)]
        found = log.find_by_timestamp(NOW + 1)
        assert found is not None
        assert (found.offset, found.leader_epoch) == (2, 4)


FAR = 1 << 31
"""As many offsets as a segment has room for."""


@pytest.mark.parametrize("kill", [True, False])
@pytest.mark.parametrize("kind", ["v2", "plain", "packed"])
@pytest.mark.parametrize(
    "offsets",
    [(FAR - 1,), (FAR,), (FAR + 5, FAR + 6), (0, FAR), (3, FAR + 2, FAR + 3), (7, FAR, 3 * FAR)],
)
def test_gaps_of_compaction_that_are_wider_than_a_segment_are_followed(
    tmp_path: Path, offsets: tuple[int, ...], kind: str, kill: bool
) -> None:
    records = [LogRecord(NOW, b"k", b"v", offset=offset) for offset in offsets]
    codec = Codec.GZIP if kind == "packed" else Codec.NONE
    if kind == "v2":
        sent = b"".join(v2(offset) for offset in offsets)
    elif kind == "plain":
        sent = bytes(build_messages(records, 1))
    else:
        sent = b"".join(bytes(build_messages([each], 1, codec=codec)) for each in records)
    log_dir = open_dir(tmp_path, FOREVER)
    log = log_dir.create("events", 3, TOPIC_ID, FOREVER, NOW)
    log.begin_following(0)
    assert pull(log, sent).last_offset == offsets[-1]
    assert [each.offset for each in records_in(log)] == [*offsets]
    log_dir.close(clean=not kill)
    with reopened(tmp_path, FOREVER, follows=True) as (log_dir, log):
        assert log_dir.recoveries == [] or not log_dir.recoveries[0].has_findings
        log.move_high_watermark(offsets[-1] + 1)
        assert log.log_start_offset == 0
        assert [each.offset for each in records_in(log)] == [*offsets]
        assert pull(log, v2(offsets[-1] + 1)).next_offset == offsets[-1] + 2


def test_messages_of_old_formats_are_followed(tmp_path: Path) -> None:
    records = [LogRecord(NOW + number, b"k", b"v", offset=number) for number in range(4)]
    plain = bytes(build_messages(records[:3], 0))
    packed = bytes(build_messages(records[3:], 1, codec=Codec.GZIP))
    with new_follower(tmp_path, FOREVER) as log:
        assert pull(log, plain).next_offset == 3
        assert pull(log, packed).next_offset == 4
        assert bytes_of(log) == plain + packed
        assert log.epochs.entries == ()


@pytest.mark.parametrize("at", [20, 61, -1])
def test_good_batches_before_a_damaged_one_stay_and_nothing_of_it(tmp_path: Path, at: int) -> None:
    damaged = bytearray(v2(1))
    damaged[at] ^= 0x40
    with new_follower(tmp_path, FOREVER) as log:
        with pytest.raises(CorruptBatch):
            pull(log, v2(0) + bytes(damaged) + v2(2))
        assert log.log_end_offset == 1
        assert bytes_of(log) == v2(0)
        pull(log, v2(1))
        assert bytes_of(log) == v2(0) + v2(1)


def test_a_base_offset_ahead_of_those_that_follow_is_not_taken(tmp_path: Path) -> None:
    damaged = bytearray(v2(1))
    damaged[0] ^= 0x40
    with new_follower(tmp_path, FOREVER) as log:
        with pytest.raises(CorruptBatch):
            pull(log, v2(0) + bytes(damaged) + v2(2))
        assert bytes_of(log) == v2(0)


@pytest.mark.parametrize(
    "wrong",
    [
        v2(0),  # is there already
        v2(1, NOW, NOW, NOW)[:-1],  # not whole
        v2(1)[:30],
        v2((1 << 63) - 2),
        v2(1) + v2(1),
    ],
)
def test_batches_that_cannot_follow_are_refused(tmp_path: Path, wrong: bytes) -> None:
    with new_follower(tmp_path, FOREVER) as log:
        pull(log, v2(0))
        with pytest.raises(CorruptBatch):
            pull(log, wrong)
        assert bytes_of(log) == v2(0)


def test_a_damaged_plain_message_is_found_among_those_of_one_write(tmp_path: Path) -> None:
    records = [LogRecord(NOW, b"k", b"value", offset=number) for number in range(5)]
    plain = bytearray(build_messages(records, 1))
    plain[3 * len(plain) // 5 + 30] ^= 1
    with new_follower(tmp_path, FOREVER) as log:
        with pytest.raises(CorruptBatch):
            log.append(SourceBatches(bytes(plain)), NOW, Origin.FOLLOWER)
        assert log.log_end_offset <= 3


def test_append_times_of_the_source_are_kept_and_never_made_up(tmp_path: Path) -> None:
    times = [AppendTimeStretch(0, NOW - 5), AppendTimeStretch(1, None), AppendTimeStretch(2, NOW)]
    with new_follower(tmp_path, FOREVER) as log:
        pull(log, v2(0) + v2(1) + v2(2), append_times=times, now=NOW + DAY)
        assert log.append_times(0, 3) == times
        pull(log, v2(3), now=NOW + DAY)
        assert log.append_times(3, 4) == [AppendTimeStretch(3, None)]


def test_a_log_that_leads_again_stamps_no_earlier_than_its_source_did(tmp_path: Path) -> None:
    with new_follower(tmp_path, FOREVER) as log:
        pull(log, v2(0), append_times=[AppendTimeStretch(0, NOW + 500)])
        log.lead(9, 0)
        append(log, NOW, now=NOW)
        assert log.append_times(1, 2) == [AppendTimeStretch(1, NOW + 500)]


# Segments.


def test_segments_are_rolled_by_size_and_seen_by_readers(tmp_path: Path) -> None:
    sent = b"".join(v2(number, NOW + number) for number in range(20))
    with new_follower(tmp_path, SMALL) as log:
        assert pull(log, sent).rolled
        assert len(log.segments) > 5
        assert [each.offset for each in records_in(log)] == list(range(20))
        log.flush_rolled()
        assert log.recovery_point == log.segments[-1].base_offset


def test_a_segment_behind_a_gap_begins_where_the_one_before_ends(tmp_path: Path) -> None:
    """Otherwise it looks as if a segment between them were missing."""
    with new_follower(tmp_path, SMALL) as log:
        pull(log, v2(0) + v2(1) + v2(2))
        pull(log, v2(1000))
        assert [each.base_offset for each in log.segments] == [0, 3]
        assert [each.offset for each in records_in(log)] == [0, 1, 2, 1000]


@pytest.mark.parametrize("kill", [True, False])
@pytest.mark.parametrize("far", [50, FAR + 50])
def test_a_gap_of_the_source_at_a_roll_is_no_missing_segment(
    tmp_path: Path, far: int, *, kill: bool
) -> None:
    """Also where no segment spans it, and after a restart."""
    log_dir = open_dir(tmp_path, SMALL)
    log = log_dir.create("events", 3, TOPIC_ID, SMALL, NOW)
    log.begin_following(0)
    stretches = [AppendTimeStretch(0, NOW), AppendTimeStretch(far, NOW + 70)]
    for offset in (0, 1, 2, far, far + 1, far + 2, far + 3):
        pull(log, v2(offset), append_times=[stretches[offset >= far]])
    log.move_high_watermark(far + 4)
    assert len(log.segments) > 2
    assert log.find_by_append_time(NOW + 1) == (far, NOW + 70, 3)
    log.flush()
    log_dir.close(clean=not kill)
    for _ in range(2):
        steps = Verification.of(tmp_path).steps()
        found = [each for each in steps if isinstance(each, Finding)]
        assert {each.severity for each in found} <= {Severity.NOTE}, found
        rows = scan(partition_dir(tmp_path), "events", columns=("offset",)).read_all()
        assert rows["offset"].to_pylist() == [0, 1, 2, far, far + 1, far + 2, far + 3]
        with reopened(tmp_path, SMALL, follows=True) as (_, log):
            log.move_high_watermark(far + 4)
            assert log.find_by_append_time(NOW + 1) == (far, NOW + 70, 3)


@examples(1)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=25),
    st.sampled_from(["first-time", "record-time", "append-time"]),
    st.data(),
)
def test_segments_are_rolled_by_time_however_batches_arrive(
    steps: list[int], by: str, data: st.DataObject
) -> None:
    config = replace(FOREVER, segment_ms=40, horolog_roll_by=by)
    times = [NOW + sum(steps[: at + 1]) for at in range(len(steps))]
    stretches = [AppendTimeStretch(at, ms + 7) for at, ms in enumerate(times)]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as many:
        with new_follower(Path(one), config) as log:
            for at, ms in enumerate(times):
                pull(log, v2(at, ms), append_times=stretches[at : at + 1])
            expected = [each.base_offset for each in log.segments]
        first = 0
        with new_follower(Path(many), config) as log:
            while first < len(times):
                end = data.draw(st.integers(first + 1, len(times)))
                sent = b"".join(v2(at, times[at]) for at in range(first, end))
                pull(log, sent, append_times=stretches[first:end])
                first = end
            assert [each.base_offset for each in log.segments] == expected


def test_flush_messages_counts_what_is_followed(tmp_path: Path) -> None:
    with new_follower(tmp_path, replace(FOREVER, flush_messages=3)) as log:
        pull(log, v2(0) + v2(1))
        assert log.recovery_point == 0
        pull(log, v2(2))
        assert log.recovery_point == 3


def test_a_refused_write_leaves_what_was_written_before_and_is_tried_again(tmp_path: Path) -> None:
    files = FaultyFiles(None)
    with new_follower(tmp_path, SMALL, files=files) as log:
        sent = [v2(number, epoch=3 + number // 6) for number in range(12)]
        for steps in range(0, 40, 3):
            end = log.log_end_offset
            if end == 12:
                break
            files.fail_after(steps, OSError(errno.ENOSPC, "full"))
            try:
                pull(log, *sent[end:])
            except StorageFailed:
                assert log.epochs.latest <= 3 + log.log_end_offset // 6
            files.heal()
        pull(log, *sent[log.log_end_offset :])
        assert bytes_of(log) == b"".join(sent)
        assert log.epochs.entries == (EpochStart(3, 0), EpochStart(4, 6))


@pytest.mark.parametrize("steps", range(12))
def test_a_refused_write_leaves_no_epoch_of_records_that_are_not_there(
    tmp_path: Path, steps: int
) -> None:
    """The batches of both epochs are one write; their source may lose the later one meanwhile."""
    files = FaultyFiles(None)
    with new_follower(tmp_path, FOREVER, files=files) as log:
        pull(log, v2(0))
        files.fail_after(steps, OSError(errno.ENOSPC, "full"))
        with suppress(StorageFailed):
            pull(log, v2(1), v2(2), v2(3, epoch=4), v2(4, epoch=5))
        assert all(each.start_offset <= log.log_end_offset for each in log.epochs.entries)
        files.heal()
        pull(log, *[v2(at) for at in range(log.log_end_offset, 3)], v2(5, epoch=6))
        epochs = log.epochs.entries
    with reopened(tmp_path, FOREVER) as (_, again):
        assert again.epochs.entries == epochs


# What consumers see.


def test_consumers_read_up_to_the_high_watermark(tmp_path: Path) -> None:
    with new_follower(tmp_path, FOREVER) as log:
        log.append(
            SourceBatches(b"".join(v2(at, NOW + at) for at in range(4))), NOW, Origin.FOLLOWER
        )
        assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (4, 0, 0)
        assert not log.read(0, 1000).size
        assert log.move_high_watermark(2)
        assert bytes(log.read(0, 1000).read()) == v2(0, NOW) + v2(1, NOW + 1)
        assert log.readable_end(committed=False) == log.readable_end(committed=True) == 2
        assert not log.move_high_watermark(1)
        assert log.high_watermark == 2, "it never goes back"
        assert log.move_high_watermark(99)
        assert log.high_watermark == 4, "no further than the log"
        log.append(SourceBatches(v2(4)), NOW, Origin.FOLLOWER)
        assert log.high_watermark == 4


def test_lookups_show_nothing_beyond_the_high_watermark(tmp_path: Path) -> None:
    times = [AppendTimeStretch(at, NOW + at) for at in range(8)]
    with new_follower(tmp_path, SMALL) as log:
        sent = b"".join(v2(at, NOW + at) for at in range(8))
        log.append(SourceBatches(sent, times), NOW, Origin.FOLLOWER)
        assert log.find_max_timestamp() is None
        for visible in range(1, 9):
            log.move_high_watermark(visible)
            top = log.find_max_timestamp()
            assert top is not None
            assert top.offset == visible - 1
            for at in range(8):
                by_time = log.find_by_timestamp(NOW + at)
                by_append_time = log.find_by_append_time(NOW + at)
                assert (by_time and by_time.offset) == (at if at < visible else None)
                assert (by_append_time and by_append_time.offset) == (at if at < visible else None)
            assert log.look().unread(0, 8).records == visible
            ranges = log.time_ranges(TimeRange(NOW, NOW + 100), 0, 100)
            assert max(each.end for each in ranges.ranges) <= visible
            assert max(log.offsets_before(NOW + DAY * 9999, 100, NOW)) == visible


def test_nothing_above_the_high_watermark_is_deleted(tmp_path: Path) -> None:
    config = replace(SMALL, retention_ms=1000)
    with new_follower(tmp_path, config) as log:
        log.append(
            SourceBatches(b"".join(v2(at, NOW - DAY) for at in range(9))), NOW, Origin.FOLLOWER
        )
        assert log.apply_retention(NOW, NOW) == []
        with pytest.raises(RequestRefused):
            log.delete_records(1)
        assert log.start_at(5) == 0
        log.move_high_watermark(4)
        assert [gone.base_offset for gone in log.apply_retention(NOW, NOW)] == [0]
        assert log.start_at(99) == 4
        assert log.start_at(2) == 4, "a log start never goes back"


def test_producers_are_refused_until_it_leads(tmp_path: Path) -> None:
    with new_follower(tmp_path) as log:
        pull(log, v2(0, epoch=5))
        with pytest.raises(RequestRefused) as refused:
            append(log, NOW)
        assert code_for(refused.value) is ErrorCode.not_leader_or_follower
        log.lead(6, 0)
        assert not log.is_following
        assert append(log, NOW).base_offset == 1
        assert log.epochs.entries == (EpochStart(5, 0), EpochStart(6, 1))
        assert log.high_watermark == log.log_end_offset == 2


def test_the_epoch_of_a_log_that_leads_is_on_disk_before_its_first_batch(tmp_path: Path) -> None:
    with new_follower(tmp_path) as log:
        pull(log, v2(0, epoch=5))
        log.lead(8, 0)
    with reopened(tmp_path) as (_, log):
        assert log.leader_epoch >= 8


def test_a_slower_clock_stamps_nothing_before_what_another_product_has_stamped(
    tmp_path: Path,
) -> None:
    """Kafka leads and tells no append times, but those in records of LogAppendTime."""
    ahead = NOW + 9_000
    stamped = {"timestamp_type": TimestampType.LOG_APPEND_TIME}
    with new_follower(tmp_path) as log:
        pull(log, v2(0, ahead, **stamped) + v2(1, ahead - 5, **stamped) + v2(2, NOW - DAY))
        assert log.floor.resets == ()
        assert [at.ms for at in log.append_times(0, 2)] == [ahead, ahead - 5]
    assert not (partition_dir(tmp_path) / "append-time-checkpoint").exists(), "as after a kill"
    with reopened(tmp_path, follows=True) as (_, log):
        log.lead(9, NOW)
        append(log, NOW + 1, now=NOW + 1)
        assert log.append_times(3, 4) == [AppendTimeStretch(3, ahead)]
        append(log, NOW + 1, now=ahead + 1)
        assert log.append_times(4, 5) == [AppendTimeStretch(4, ahead + 1)]
        assert log.floor.resets == ()


# Transactions.

PRODUCER = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}


def test_open_transactions_bound_the_last_stable_offset(tmp_path: Path) -> None:
    with new_follower(tmp_path) as log:
        pull(log, v2(0), v2(1, base_sequence=0, **PRODUCER), v2(2))
        assert (log.high_watermark, log.last_stable_offset) == (3, 1)
        pull(log, marker(3, 9, kind=1))
        assert log.last_stable_offset == 4


def test_a_transaction_is_stable_once_its_marker_is_readable(tmp_path: Path) -> None:
    with new_follower(tmp_path) as log:
        pull(log, v2(0))
        sent = v2(1, base_sequence=0, **PRODUCER) + v2(2) + marker(3, 9, kind=0)
        log.append(SourceBatches(sent), NOW, Origin.FOLLOWER)
        log.move_high_watermark(3)
        assert log.last_stable_offset == 1
        log.move_high_watermark(4)
        assert log.last_stable_offset == 4


def test_transactions_count_as_open_after_a_restart_as_before(tmp_path: Path) -> None:
    with new_log(tmp_path, SMALL):
        pass
    log_dir = open_dir(tmp_path, SMALL, follows=True)
    log = log_dir.logs[PARTITION]
    pull(log, v2(0), v2(1, base_sequence=0, **PRODUCER))
    log.append(
        SourceBatches(b"".join(v2(at) for at in range(2, 8)) + marker(8, 9, kind=0)),
        NOW,
        Origin.FOLLOWER,
    )
    assert (log.high_watermark, log.last_stable_offset) == (2, 1)
    log_dir.close()
    with reopened(tmp_path, SMALL, follows=True) as (_, log):
        assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (9, 2, 1)
        log.move_high_watermark(9)
        assert log.last_stable_offset == 9


def part(offset: int, producer_id: int) -> bytes:
    """A record of an open transaction."""
    return v2(offset, base_sequence=0, **{**PRODUCER, "producer_id": producer_id})


def aborted_in(log: Log) -> list[tuple[int, int, int]]:
    found = log.look().aborted_transactions(0, log.log_end_offset)
    return [(each.producer_id, each.first_offset, each.last_offset) for each in found]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("config", [FOREVER, replace(SMALL, retention_ms=-1)])
def test_transactions_that_a_marker_aborts_are_known_at_once_and_after_a_restart(
    tmp_path: Path, clean: bool, config: TopicConfig
) -> None:
    with new_follower(tmp_path, config) as log:
        pull(log, part(0, 5) + part(1, 6) + marker(2, 5, kind=0) + v2(3) + marker(4, 6, kind=1))
        assert aborted_in(log) == [(5, 0, 2)]
        pull(log, part(5, 5) + v2(6) + marker(7, 5, kind=0))
        assert aborted_in(log) == [(5, 0, 2), (5, 5, 7)]
    with reopened(tmp_path, config, follows=True) as (log_dir, log):
        assert aborted_in(log) == [(5, 0, 2), (5, 5, 7)]
        log_dir.close(clean=clean)
    with reopened(tmp_path, config, follows=True) as (_, log):
        assert aborted_in(log) == [(5, 0, 2), (5, 5, 7)]


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("clean", [True, False])
def test_what_is_cut_off_was_not_aborted(tmp_path: Path, cut: int, clean: bool) -> None:
    with new_follower(tmp_path, FOREVER) as log:
        pull(log, part(0, 5) + part(1, 6) + marker(2, 5, kind=0) + v2(3) + marker(4, 6, kind=1))
        pull(log, part(5, 5) + v2(6) + marker(7, 5, kind=0))
        log.truncate_to(cut, NOW)
        left = [each for each in ((5, 0, 2), (5, 5, 7)) if each[2] < cut]
        assert aborted_in(log) == left
        pull(log, b"".join(v2(offset) for offset in range(cut, 9)))
        assert aborted_in(log) == left
    for _ in range(2):
        with reopened(tmp_path, FOREVER, follows=True) as (log_dir, log):
            assert aborted_in(log) == left
            log_dir.close(clean=clean)


def test_what_is_open_counts_as_aborted_once_it_leads(tmp_path: Path) -> None:
    with new_follower(tmp_path) as log:
        pull(log, v2(0), v2(1, base_sequence=0, **PRODUCER))
        assert log.look().aborted_transactions(0, 2) == []
        log.lead(4, 0)
        assert log.last_stable_offset == log.log_end_offset == 3, "a marker ends it"
        assert log.unended == ()
        (aborted,) = log.look().aborted_transactions(0, 2)
        assert (aborted.producer_id, aborted.first_offset) == (9, 1)


def test_what_no_marker_ends_counts_as_at_the_source(tmp_path: Path) -> None:
    with new_follower(tmp_path) as log:
        pull(log, part(0, 5) + part(1, 6) + part(2, 7) + v2(3))
        assert (log.last_stable_offset, aborted_in(log)) == (0, [])
        log.count_unended([Unended(5, 0), Unended(6, 1, is_committed=True)])
        assert (log.last_stable_offset, aborted_in(log)) == (2, [(5, 0, 4)])
        assert not log.is_news([Unended(5, 0)])
        assert log.is_news([Unended(7, 2)])
        assert set(log.unended) == {Unended(5, 0), Unended(6, 1, is_committed=True)}
        pull(log, marker(4, 7, kind=1))
        assert (log.last_stable_offset, aborted_in(log)) == (5, [(5, 0, 5)])


def test_what_the_source_says_counts_for_what_comes_later_and_for_no_other_transaction(
    tmp_path: Path,
) -> None:
    with new_follower(tmp_path) as log:
        log.count_unended([Unended(5, 2)])
        assert log.unended == ()
        pull(log, part(0, 5) + marker(1, 5, kind=1))
        assert (log.last_stable_offset, aborted_in(log)) == (2, [])
        pull(log, part(2, 5) + part(3, 6))
        assert (log.last_stable_offset, aborted_in(log)) == (3, [(5, 2, 4)])
        log.truncate_to(2, NOW)
        pull(log, part(2, 5))
        assert (log.last_stable_offset, aborted_in(log)) == (2, [])


def test_a_marker_that_comes_after_all_is_believed(tmp_path: Path) -> None:
    with new_follower(tmp_path) as log:
        pull(log, part(0, 5))
        log.count_unended([Unended(5, 0)])
        log.append(SourceBatches(marker(1, 5, kind=1)), NOW, Origin.FOLLOWER)
        assert (log.last_stable_offset, aborted_in(log)) == (0, [])
        log.move_high_watermark(2)
        assert (log.last_stable_offset, aborted_in(log)) == (2, [])


def test_after_a_restart_a_transaction_is_open_until_the_source_says_so_again(
    tmp_path: Path,
) -> None:
    with new_follower(tmp_path) as log:
        pull(log, v2(0), part(1, 5))
        log.count_unended([Unended(5, 1)])
        assert log.last_stable_offset == 2
    with reopened(tmp_path, follows=True) as (_, log):
        log.move_high_watermark(2)
        assert (log.last_stable_offset, aborted_in(log)) == (1, [])
        log.count_unended([Unended(5, 1)])
        assert (log.last_stable_offset, aborted_in(log)) == (2, [(5, 1, 2)])


def test_what_another_source_said_is_forgotten(tmp_path: Path) -> None:
    with new_follower(tmp_path) as log:
        pull(log, part(0, 5))
        log.count_unended([Unended(5, 0)])
        log.lead(4, 0)
        assert aborted_in(log) == [(5, 0, 1)], "by a marker of this leader"
        log.truncate_to(1, NOW)
        log.begin_following(1)
        assert (log.unended, log.last_stable_offset) == ((), 0)


def test_a_retry_of_a_followed_batch_is_known_once_it_leads(tmp_path: Path) -> None:
    more = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
    with new_follower(tmp_path) as log:
        pull(log, v2(0, **more))
        log.lead(4, 0)
        done = append(log, NOW, **more)
        assert (done.duplicate, done.base_offset) == (True, 0)


# Restarts.


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_goes_on_in_the_epoch_of_the_source(tmp_path: Path, clean: bool) -> None:
    log_dir = open_dir(tmp_path)
    log = log_dir.create(*PARTITION, TOPIC_ID, TopicConfig(), NOW)
    log.begin_following(0)
    pull(log, v2(0), v2(1, epoch=5))
    log.leader_epoch = 8  # of the source, in which nothing was followed yet
    log.append(SourceBatches(v2(2, epoch=5)), NOW, Origin.FOLLOWER)
    log_dir.checkpoint()
    log_dir.close(clean=clean)
    with reopened(tmp_path, follows=True) as (_, log):
        assert log.is_following
        assert log.leader_epoch == 5
        assert log.epochs.entries == (EpochStart(3, 0), EpochStart(5, 1))
        assert (log.log_end_offset, log.high_watermark) == (3, 2)
        assert [each.offset for each in records_in(log)] == [0, 1]


def test_a_torn_end_is_fetched_again_without_a_new_epoch(tmp_path: Path) -> None:
    with new_follower(tmp_path) as log:
        pull(log, v2(0), v2(1))
        log.flush()
        path = Path(log.segments[0].log.path)
    path.write_bytes(path.read_bytes()[:-3])
    with reopened(tmp_path, follows=True) as (log_dir, log):
        assert (log.log_end_offset, log.leader_epoch) == (1, 3)
        assert [note for each in log_dir.recoveries for note in each.warnings] == []
        pull(log, v2(1))
        assert times_in(log) == [Truth(0, NOW), Truth(1, NOW)]


def test_a_high_watermark_of_another_topic_of_the_name_does_not_count(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    log = log_dir.create(*PARTITION, TOPIC_ID, TopicConfig(), NOW)
    append(log, NOW, NOW)
    log_dir.checkpoint()
    log_dir.close()
    metadata = tmp_path / "events-3" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg")
    with reopened(tmp_path, follows=True) as (_, log):
        assert (log.log_end_offset, log.high_watermark) == (2, 0)
