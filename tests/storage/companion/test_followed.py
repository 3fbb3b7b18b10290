"""Append times travel with the batches that a follower fetches, and so do their resets."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from storelogs import ANY_TIME, DAY, NOW, append, new_follower, new_log, pull, reopened

from horolog.config import TopicConfig
from horolog.record import parse_header
from horolog.storage import Log

CONFIG = TopicConfig(segment_bytes=400, retention_ms=-1, **ANY_TIME)
STEPS = st.lists(
    st.tuples(st.sampled_from([0, 1, 5, 40 * DAY, -3, -50 * DAY]), st.booleans()),
    min_size=1,
    max_size=12,
)


def led(path: Path, steps: list[tuple[int, bool]]) -> Log:
    """Records appended while the clock jumps; append times are reset in front of some."""
    now = NOW
    with new_log(path, CONFIG) as log:
        for step, resets in steps:
            now += step
            if resets:
                log.reset_append_time(now)
            append(log, NOW, now=now)
        return log


def fetch(leader: Log, follower: Log, max_bytes: int) -> None:
    """What one fetch gives."""
    offset = follower.log_end_offset
    data = bytes(leader.read(offset, max_bytes, min_one_batch=True).read())
    times = leader.look().append_times_within(offset, len(data), seen=True)
    size = parse_header(data).size  # all are as large
    whole = data[: len(data) // size * size]
    pull(follower, whole, append_times=times, now=NOW - 90 * DAY)


def time_at(log: Log, offset: int) -> int | None:
    (stretch,) = log.append_times(offset, offset + 1, seen=True)
    assert not stretch.is_seen
    return stretch.ms


def goes_back_at(log: Log) -> list[int]:
    """The offsets whose records were appended earlier than those before."""
    stretches = log.append_times(0, log.log_end_offset)
    return [
        after.offset
        for before, after in pairwise(stretches)
        if before.ms is not None and after.ms is not None and after.ms < before.ms
    ]


@given(
    steps=STEPS,
    sizes=st.lists(st.integers(1, 900), min_size=1),
    restart=st.integers(0, 3),
    cuts=st.lists(st.integers(0, 12), max_size=3),
)
def test_a_follower_has_the_append_times_of_its_leader_and_goes_on_no_earlier(
    steps: list[tuple[int, bool]], sizes: list[int], restart: int, cuts: list[int]
) -> None:
    """However the records arrive, and although some are cut off and fetched again."""
    with tempfile.TemporaryDirectory() as path:
        leader = led(Path(path, "leader"), steps)
        end = leader.log_end_offset
        with new_follower(Path(path, "follower"), CONFIG) as follower:
            for number in range(restart):
                if follower.log_end_offset < end:
                    fetch(leader, follower, sizes[number % len(sizes)])
        with reopened(Path(path, "follower"), CONFIG, follows=True) as (_, follower):
            number = 0
            while follower.log_end_offset < end:
                fetch(leader, follower, sizes[number % len(sizes)])
                number += 1
                if follower.log_end_offset == end and cuts:
                    follower.truncate_to(cuts.pop(), NOW)
            assert [time_at(follower, n) for n in range(end)] == [
                time_at(leader, n) for n in range(end)
            ]
            went_back = goes_back_at(leader)
            assert [each.offset for each in follower.floor.resets] == went_back
            assert {each.offset for each in leader.floor.resets} >= set(went_back)
            bases = {segment.base_offset for segment in follower.segments}
            assert bases >= set(went_back), "no segment holds both sides of a reset"
            last = time_at(leader, end - 1)
            assert last is not None
            assert follower.floor.last == last
            follower.lead(7, 0)
            append(follower, NOW, now=NOW - 80 * DAY)
            assert time_at(follower, end) == max(last, NOW - 80 * DAY)
