"""How much lies between two offsets, and how old it is: every answer against a count of records."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from storelogs import ANY_TIME, NOW, append, new_log, records_in, reopened

from companions import lose_maps
from horolog.config import TopicConfig
from horolog.record import Codec, TimestampType
from horolog.storage import AbortedTxn, Log, Unread


def truth(log: Log, first: int, last: int) -> Unread:
    records = [each for each in records_in(log) if first <= (each.offset or 0) < last]
    times = [each.timestamp for each in records if each.timestamp != -1]
    return Unread(len(records), min(times, default=None))


@pytest.mark.parametrize("seed", range(4))
def test_every_pair_of_offsets_has_the_records_and_the_oldest_time_of_a_scan(
    tmp_path: Path, seed: int
) -> None:
    drawn = random.Random(seed)
    config = TopicConfig(segment_bytes=500_000, **ANY_TIME)
    with new_log(tmp_path, config) as log:
        ends = []
        for _ in range(60):
            times = [
                -1 if drawn.random() < 0.2 else NOW - drawn.randrange(1_000_000)
                for _ in range(drawn.randrange(1, 4))
            ]
            codec = drawn.choice((Codec.NONE, Codec.LZ4, Codec.GZIP))
            size = drawn.choice((20, 5_000, 60_000))
            ends.append(
                1 + append(log, *times, codec=codec, value=drawn.randbytes(size)).last_offset
            )
        end = log.log_end_offset
        assert len(log.segments) > 1
        for first in (0, end, *(drawn.randrange(end) for _ in range(40))):
            last = drawn.choice((end, drawn.choice(ends)))
            expected = truth(log, first, last) if first < last else Unread(0, None)
            assert log.look().unread(first, last) == expected
        log.delete_records(end // 2)
        assert log.look().unread(0, end) == truth(log, end // 2, end)


def test_create_times_count_where_records_are_stamped_with_their_append_time(
    tmp_path: Path,
) -> None:
    stamped = TopicConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    with new_log(tmp_path, stamped) as log:
        append(log, NOW - 5, NOW - 70, NOW - 9)
        assert log.look().unread(0, 3) == Unread(3, NOW - 70)
        assert log.look().unread(2, 3) == Unread(1, NOW - 9)
        append(log, -1)
        assert log.look().unread(3, 4) == Unread(1, None)


def test_a_finished_segment_without_its_map_gets_one_first(tmp_path: Path) -> None:
    config = TopicConfig(segment_bytes=2_000, **ANY_TIME)
    with new_log(tmp_path, config) as log:
        for age in range(100):
            append(log, NOW - age)
    lose_maps(tmp_path)
    with reopened(tmp_path, config) as (_, log):
        assert log.look().unread(3, 90) == Unread(87, NOW - 89)
        assert log.look().unread(90, 100) == Unread(10, NOW - 99)


def test_aborted_transactions_are_looked_through_once_for_all_blocks(tmp_path: Path) -> None:
    """There may be as many of them as blocks."""

    class Counted(list[AbortedTxn]):
        times = 0

        def __iter__(self) -> Iterator[AbortedTxn]:
            self.times += 1
            return super().__iter__()

    with new_log(tmp_path, TopicConfig(segment_bytes=10_000, **ANY_TIME)) as log:
        for age in range(100):
            append(log, NOW - age, value=bytes(900))
        assert len(log.segments) > 3
        aborted = Counted(AbortedTxn(7, at, at, at) for at in range(0, 100, 9))
        assert log.look().unread(0, 100, aborted) == Unread(100, NOW - 99)
        assert aborted.times < len(log.segments)
