"""A log of a replicated partition: roles that controllers give, and its own high watermark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from storelogs import (
    NOW,
    TOPIC_ID,
    append,
    new_log,
    open_dir,
    partition_dir,
    placed,
    pull,
    times_in,
)

from horolog.config import TopicConfig
from horolog.errors import ErrorCode, RequestRefused
from horolog.record import LogRecord, TransactionEnd, build_batch
from horolog.storage import (
    MOST_ENDED,
    EpochStart,
    Log,
    Origin,
    SourceBatches,
    TopicPartition,
    prepare,
)

PARTITION = TopicPartition("events", 3)
EPOCHS = "leader-epoch-checkpoint"


@contextmanager
def leader(path: Path, epoch: int = 5, config: TopicConfig | None = None) -> Iterator[Log]:
    """A log that leads and has other replicas."""
    with new_log(path, config) as log:
        log.become_leader(epoch, is_replicated=True)
        yield log


def append_in_transaction(log: Log, producer_id: int, sequence: int = 0) -> int:
    sent = build_batch(
        [LogRecord(NOW, b"k", b"v")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )
    admission = log.producers.admit(producer_id, is_strict=False)
    prepared = prepare(sent, log.config, NOW, partition=str(log), admission=admission)
    return log.append(prepared, NOW).base_offset


def end(log: Log, producer_id: int, *, is_commit: bool = True) -> int:
    return log.append(
        TransactionEnd(producer_id, 0, 0, is_commit), NOW, Origin.COORDINATOR
    ).base_offset


# Roles.


def test_a_role_in_a_cluster_waits_for_no_disk(tmp_path: Path) -> None:
    """A broker may be told to lead a thousand logs at once."""
    with leader(tmp_path) as log:
        synced: list[int] = []
        log.files.os_fsync = synced.append
        log.become_leader(6, is_replicated=True)
        assert len(synced) == 1
        log.is_of_cluster = True
        log.become_leader(7, is_replicated=True)
        assert len(synced) == 1
        assert log.epochs.entries == (EpochStart(7, 0),)
        assert (partition_dir(tmp_path) / EPOCHS).read_text().split()[-2:] == ["7", "0"]
        log.is_of_cluster = False


def test_a_leader_appends_behind_its_high_watermark(tmp_path: Path) -> None:
    with leader(tmp_path) as log:
        append(log, NOW)
        append(log, NOW)
        assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (2, 0, 0)
        assert log.move_high_watermark(1)
        assert (log.high_watermark, len(times_in(log))) == (1, 1)
        assert not log.move_high_watermark(1)
        assert not log.move_high_watermark(0)
        assert log.high_watermark == 1, "it never falls"
        assert log.move_high_watermark(99)
        assert log.high_watermark == 2, "it is at most the log end"
        assert not log.move_high_watermark(99)


def test_a_log_without_other_replicas_is_readable_to_its_end(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        append(log, NOW)
        log.become_leader(5, is_replicated=False)
        append(log, NOW)
        assert (log.high_watermark, log.known_high_watermark) == (2, None)
        assert not log.move_high_watermark(2)


def test_a_leader_begins_its_epoch_at_the_log_end_and_on_the_disk(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        append(log, NOW)
        log.become_follower(4)
        log.become_leader(5, is_replicated=True)
        assert (log.leader_epoch, log.epoch_start_offset) == (5, 1)
        assert log.epochs.entries[-1] == EpochStart(5, 1)
        assert (partition_dir(tmp_path) / EPOCHS).read_text().endswith("5 1\n")
        append(log, NOW)
        log.become_leader(5, is_replicated=True)
        assert log.epoch_start_offset == 1, "the same epoch goes on"
        log.become_leader(7, is_replicated=True)
        assert (log.leader_epoch, log.epoch_start_offset) == (7, 2)


def test_elections_without_a_record_leave_the_last_epoch_alone(tmp_path: Path) -> None:
    """KAFKA-10706: epochs that begin at one offset."""
    with leader(tmp_path, 3) as log:
        append(log, NOW)
        log.become_leader(4, is_replicated=True)
        log.become_leader(6, is_replicated=True)
        assert log.epochs.entries == (EpochStart(3, 0), EpochStart(6, 1))
        log.become_follower(7)
        assert log.epochs.entries == (EpochStart(3, 0),), "nobody else has heard of the last one"


def test_a_leader_keeps_the_high_watermark_that_it_had_as_a_follower(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        log.become_follower(4)
        log.append(SourceBatches(placed(0) + placed(1) + placed(2)), NOW, Origin.FOLLOWER)
        log.move_high_watermark(1)
        log.become_leader(5, is_replicated=True)
        assert (log.high_watermark, log.log_end_offset) == (1, 3)
        assert len(times_in(log)) == 1


def test_a_follower_keeps_the_high_watermark_that_it_had_as_a_leader(tmp_path: Path) -> None:
    """KAFKA-14704's class: the tail of a former leader is shown to nobody."""
    with leader(tmp_path) as log:
        append(log, NOW)
        append(log, NOW)
        log.move_high_watermark(1)
        log.become_follower(6)
        assert (log.high_watermark, log.leader_epoch) == (1, 6)
        with pytest.raises(RequestRefused) as caught:
            append(log, NOW)
        assert caught.value.code == ErrorCode.not_leader_or_follower
        log.become_follower(7)
        assert (log.high_watermark, log.leader_epoch) == (1, 7)


def test_a_log_that_has_later_epochs_does_not_lead(tmp_path: Path) -> None:
    with leader(tmp_path, 5) as log:
        append(log, NOW)
        with pytest.raises(RequestRefused) as caught:
            log.become_leader(4, is_replicated=True)
        assert caught.value.code == ErrorCode.fenced_leader_epoch
        assert (log.leader_epoch, log.epochs.latest) == (5, 5)


def test_no_marker_is_written_by_a_change_of_the_role(tmp_path: Path) -> None:
    with leader(tmp_path) as log:
        append_in_transaction(log, 9)
        log.move_high_watermark(1)
        log.become_follower(6)
        log.become_leader(7, is_replicated=True)
        assert (log.log_end_offset, log.last_stable_offset) == (1, 0)
        assert log.producers.unended() == ((9, 0),)
        end(log, 9)
        log.move_high_watermark(2)
        assert log.last_stable_offset == 2


def test_a_log_that_gets_replicas_shows_no_more_than_before(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        log.become_leader(5, is_replicated=False)
        append(log, NOW)
        log.set_replicated(True)
        append(log, NOW)
        assert (log.high_watermark, log.log_end_offset) == (1, 2)
        log.set_replicated(True)
        assert log.high_watermark == 1
        log.set_replicated(False)
        assert log.high_watermark == 2
        assert log.epochs.entries == (EpochStart(5, 0),)


# The last stable offset.


def test_a_transaction_is_unstable_until_its_marker_is_below_the_high_watermark(
    tmp_path: Path,
) -> None:
    with leader(tmp_path) as log:
        append(log, NOW)
        append_in_transaction(log, 9)
        end(log, 9, is_commit=False)
        append(log, NOW)
        log.move_high_watermark(2)
        assert log.last_stable_offset == 1
        log.move_high_watermark(3)
        assert log.last_stable_offset == 3
        log.move_high_watermark(4)
        assert log.last_stable_offset == 4


def test_transactions_that_end_unread_in_any_number_are_stable_in_the_end(tmp_path: Path) -> None:
    with leader(tmp_path) as log:
        count = MOST_ENDED + 50
        for number in range(count):
            append_in_transaction(log, 9, number)
            end(log, 9)
        assert len(log.ended) == MOST_ENDED
        log.move_high_watermark(2)
        assert log.last_stable_offset == 2
        log.move_high_watermark(2 * MOST_ENDED + 10)
        assert log.last_stable_offset <= log.high_watermark
        assert not log.last_stable_offset % 2, "where a transaction begins"
        log.move_high_watermark(2 * count)
        assert log.last_stable_offset == 2 * count
        append_in_transaction(log, 9, count)
        end(log, 9)
        assert len(log.ended) == 1, "what can be read is forgotten"


def test_the_high_watermark_moves_beside_a_write(tmp_path: Path) -> None:
    with leader(tmp_path) as log:
        append(log, NOW)
        with log.exclusively():
            assert log.move_high_watermark(1)
        assert log.last_stable_offset == 1


def test_the_last_stable_offset_passes_no_transaction_that_may_be_undone(tmp_path: Path) -> None:
    with leader(tmp_path) as log:
        ended: list[tuple[int, int]] = []

        def write() -> None:
            opened: dict[int, int] = {}
            for number in range(400):
                producer_id = number * 7 % 5
                if producer_id in opened:
                    ended.append((opened.pop(producer_id), end(log, producer_id)))
                else:
                    opened[producer_id] = append_in_transaction(log, producer_id, number // 10)
            for producer_id, first in opened.items():
                ended.append((first, end(log, producer_id)))

        writer = threading.Thread(target=write)
        writer.start()
        seen = []
        while writer.is_alive() or log.high_watermark < log.log_end_offset:
            log.move_high_watermark(min(log.high_watermark + 3, log.log_end_offset))
            seen.append((log.high_watermark, log.last_stable_offset))
        writer.join()
        assert seen[-1] == (log.log_end_offset, log.log_end_offset)
        for high_watermark, stable in seen:
            assert stable <= high_watermark
            unread = [first for first, last in ended if first < high_watermark <= last]
            assert stable <= min(unread, default=high_watermark)


# Views.


def test_a_replica_reads_to_the_log_end(tmp_path: Path) -> None:
    with leader(tmp_path) as log:
        append(log, NOW)
        append(log, NOW)
        log.move_high_watermark(1)
        view = log.look(to_end=True)
        assert (view.end_offset, view.high_watermark, view.last_stable_offset) == (2, 1, 1)
        assert view.read(0, 1000).size == sum(segment.size for segment in log.segments)
        assert view.read(1, 1000).size
        assert not view.read(2, 1000).size
        assert not log.look().read(1, 1000).size


def test_a_replica_is_given_no_batch_that_is_not_in_the_log(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        log.become_follower(4)
        pull(log, placed(0))
        log.roll(NOW)
        with log.exclusively():
            log.roll_at(9, NOW)
        log.move_high_watermark(9)
        assert log.high_watermark == 9
        assert log.look().read(1, 1000).size, "consumers are told of the gap"
        assert not log.look(to_end=True).read(1, 1000).size


# Lookups.


TIMES = st.lists(st.lists(st.sampled_from([-1, *range(NOW, NOW + 9)]), min_size=1, max_size=3))


@examples(3)
@given(TIMES, st.integers(0, 60), st.integers(0, 60), st.sampled_from([0, 200, 4096]))
def test_lookups_by_time_end_at_the_high_watermark(
    batches: list[list[int]], read: int, start: int, interval: int
) -> None:
    config = TopicConfig(segment_bytes=700, index_interval_bytes=interval)
    with TemporaryDirectory() as directory, leader(Path(directory), config=config) as log:
        times: list[int] = []
        ends = [0]
        for batch in batches:
            append(log, *batch)
            times += batch
            ends.append(len(times))
        end = max(offset for offset in ends if offset <= read)
        log.move_high_watermark(end)
        log.delete_records(min(start, end))
        readable = range(log.log_start_offset, end)
        found = log.find_max_timestamp()
        if not readable:
            assert found is None
        else:
            top = max(times[offset] for offset in readable)
            first = next(offset for offset in readable if times[offset] == top)
            assert found is not None
            assert (found.timestamp, found.offset) == (top, first)
        for target in range(NOW, NOW + 9):
            first_at = next((offset for offset in readable if times[offset] >= target), None)
            answer = log.find_by_timestamp(target)
            assert (None if answer is None else answer.offset) == first_at
        view = log.look()
        assert view.time_stats()[0].records <= end
        by_append = log.find_by_append_time(NOW)
        assert (by_append is None) == (not readable)
        assert all(offset <= end for offset in log.offsets_before(1 << 62, 99, NOW))


def test_committed_readers_find_the_largest_time_that_is_stable(tmp_path: Path) -> None:
    with leader(tmp_path) as log:
        append(log, NOW)
        append_in_transaction(log, 9)
        append(log, NOW + 5)
        log.move_high_watermark(3)
        found = log.find_max_timestamp(committed=True)
        assert found is not None
        assert found.offset == 0
        found = log.find_max_timestamp()
        assert found is not None
        assert found.offset == 2


# Retention and deletion.


def test_nothing_behind_the_high_watermark_is_deleted(tmp_path: Path) -> None:
    config = TopicConfig(segment_bytes=300, retention_ms=1000, index_interval_bytes=0)
    with leader(tmp_path, config=config) as log:
        for _ in range(30):
            append(log, NOW)
        log.move_high_watermark(11)
        log.apply_retention(NOW + 10_000, 0)
        assert 0 < log.log_start_offset <= 11
        with pytest.raises(RequestRefused) as caught:
            log.delete_records(12)
        assert caught.value.code == ErrorCode.offset_out_of_range
        assert log.delete_records(-1) == 11
        log.move_high_watermark(30)
        log.apply_retention(NOW + 10_000, 0)
        assert (log.log_start_offset, log.log_end_offset) == (30, 30)


def test_nothing_behind_the_high_watermark_is_cleaned(tmp_path: Path) -> None:
    config = TopicConfig(
        segment_bytes=300,
        index_interval_bytes=0,
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=0,
    )
    with leader(tmp_path, config=config) as log:
        for _ in range(30):
            append(log, NOW, key=b"k")
        log.move_high_watermark(11)
        chosen = log.cleanable(NOW + 10_000)
        assert chosen is not None
        assert chosen.end <= 11


# Restarts.


def test_a_replica_that_led_is_opened_as_a_follower_with_its_high_watermark(
    tmp_path: Path,
) -> None:
    log_dir = open_dir(tmp_path)
    log = log_dir.create(*PARTITION, TOPIC_ID, TopicConfig(), NOW)
    log.become_leader(5, is_replicated=True)
    append(log, NOW)
    append_in_transaction(log, 9)
    end(log, 9)
    log.move_high_watermark(2)
    log_dir.close()
    log_dir = open_dir(tmp_path, follows=True)
    try:
        log = log_dir.logs[PARTITION]
        assert (log.is_following, log.high_watermark, log.last_stable_offset) == (True, 2, 1)
        log.become_leader(6, is_replicated=True)
        assert (log.high_watermark, log.last_stable_offset, log.epoch_start_offset) == (2, 1, 3)
        log.move_high_watermark(3)
        assert log.last_stable_offset == 3
    finally:
        log_dir.close(clean=False)


def test_start_and_high_watermark_of_a_look_are_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA-7104: an answer with a start behind its high watermark stops a replica."""
    with leader(tmp_path) as log:
        append(log, *[NOW] * 10)
        log.move_high_watermark(4)
        stable = type(log).last_stable_offset

        def and_then(self: Log) -> int:
            offset = int(stable.fget(self))  # type: ignore[attr-defined]
            monkeypatch.undo()
            log.move_high_watermark(8)
            log.delete_records(8)
            return offset

        monkeypatch.setattr(type(log), "last_stable_offset", property(and_then))
        view = log.look(to_end=True)
        assert view.log_start_offset <= view.high_watermark
        assert log.look(to_end=True).log_start_offset == 8
