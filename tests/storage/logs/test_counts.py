"""What a log counts of its appends, since it was opened: by blocks, exact at any moment."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from examples import stride
from plain_kernels import without_numba
from storelogs import ANY_TIME, NOW, append, new_log, reopened

from horolog.config import TopicConfig
from horolog.record import BLOCK_KERNELS, LATENCY_BOUNDS
from horolog.record.scan import load_kernels
from horolog.storage import NONE, BlockTotals, Log

SMALL = TopicConfig(segment_bytes=2_000, **ANY_TIME)


@pytest.fixture(params=["plain", "compiled"])
def _kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "compiled":
        load_kernels()
    else:
        without_numba(BLOCK_KERNELS, monkeypatch)


def latency_class(create_ms: int, append_ms: int) -> int:
    return sum(append_ms - create_ms >= bound for bound in LATENCY_BOUNDS)


class Expected:
    """The same numbers, counted record by record."""

    def __init__(self) -> None:
        self.size = self.records = self.untimed = 0
        self.latencies = [0] * (len(LATENCY_BOUNDS) + 1)

    def append(self, log: Log, *times: int, now: int, value: bytes = b"v" * 20) -> None:
        self.size += append(log, *times, now=now, value=value).size
        self.records += len(times)
        self.untimed += times.count(-1)
        for each in times:
            if each != -1:
                self.latencies[latency_class(each, now)] += 1

    def assert_is(self, counts: BlockTotals) -> None:
        assert (counts.size, counts.records, counts.untimed) == (
            self.size,
            self.records,
            self.untimed,
        )
        assert list(counts.latencies) == self.latencies


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("seed", range(3))
def test_counts_are_exact_after_each_append_over_rolls_and_finished_blocks(
    tmp_path: Path, seed: int
) -> None:
    drawn = random.Random(seed)
    expected, now = Expected(), NOW
    with new_log(tmp_path, TopicConfig(segment_bytes=600_000, **ANY_TIME)) as log:
        assert log.active.counts == NONE
        for _ in range(150):
            ages = drawn.choices((-1, 0, 9, 10, 999, 1_000, 86_400_000, -70_000), k=3)
            times = [-1 if drawn.random() < 0.1 else now - age for age in ages]
            size = drawn.choice((20, 3_000, 150_000 if drawn.random() < 0.1 else 20))
            expected.append(log, *times, now=now, value=bytes(size))
            expected.assert_is(log.active.counts)
            now += drawn.randrange(1_000)
        assert len(log.segments) > 1


def test_counts_begin_anew_where_a_log_is_opened_and_leave_out_what_it_held(
    tmp_path: Path,
) -> None:
    with new_log(tmp_path, SMALL) as log:
        for _ in range(50):
            append(log, NOW, NOW)
    with reopened(tmp_path, SMALL) as (_, log):
        assert log.active.counts == NONE
        expected = Expected()
        expected.append(log, NOW - 50, now=NOW)
        expected.assert_is(log.active.counts)
        for _ in range(50):
            expected.append(log, NOW, now=NOW)
        expected.assert_is(log.active.counts)


def test_what_is_truncated_or_deleted_stays_counted(tmp_path: Path) -> None:
    expected = Expected()
    with new_log(tmp_path, SMALL) as log:
        for at in range(40):
            expected.append(log, NOW, NOW, now=NOW)
            if at in (10, 25):
                log.truncate_to(log.log_end_offset - 5, NOW)
            if at == 30:
                log.delete_records(-1)
                assert log.apply_retention(NOW, 0)
            expected.assert_is(log.active.counts)
        log.truncate_to(0, NOW)
        expected.append(log, NOW, now=NOW)
        expected.assert_is(log.active.counts)


def test_counts_never_shrink_for_a_reader_while_another_thread_appends(tmp_path: Path) -> None:
    config = TopicConfig(segment_bytes=40_000, **ANY_TIME)
    appends = 400 // stride(4)
    with new_log(tmp_path, config) as log:
        is_over = threading.Event()

        def write() -> None:
            for _ in range(appends):
                append(log, NOW, NOW, value=bytes(500))
            is_over.set()

        writer = threading.Thread(target=write)
        writer.start()
        records = size = 0
        while not is_over.is_set():
            counts = log.active.counts
            assert counts.records >= records
            assert counts.size >= size
            records, size = counts.records, counts.size
        writer.join()
        assert log.active.counts.records == 2 * appends
