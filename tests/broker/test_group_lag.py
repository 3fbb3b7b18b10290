"""How far groups are behind, by both clocks, and what retention will take from them."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from interleave import at_each_line
from running_broker import NOW_MS, RunningBroker, a_broker
from storelogs import append, new_log
from transactional import Producer

from horolog.broker import Behind, Key, Paces, TimeSlice, partition_lag
from horolog.client import CommittedOffset, ResourceType
from horolog.clock import ManualClock
from horolog.config import LONG_MAX, TopicConfig
from horolog.record import LogRecord, build_batch
from horolog.wire import GROUP_LAG, AskGroupLag, GroupPartitionLag, LagClock

broker = a_broker("t", of_topics={"segment.bytes": "1500"})

DAY = 86_400_000


def send(broker: RunningBroker, *times: int) -> None:
    broker.append("t", build_batch([LogRecord(each, None, b"v" * 100) for each in times]))


def commit(broker: RunningBroker, offset: int, group: str = "g") -> None:
    broker.client.offset_commit(group, {("t", 0): CommittedOffset(offset)})


def set_retention(broker: RunningBroker, retention_ms: int) -> None:
    change = {"retention.ms": str(retention_ms)}
    broker.client.alter_configs({(ResourceType.TOPIC, "t"): change})


def lag(
    broker: RunningBroker, clock: LagClock = LagClock.APPEND, *, committed: bool = False
) -> GroupPartitionLag:
    lags = broker.broker.group_lags

    def measure() -> GroupPartitionLag:
        (behind,) = lags.behind(["g"], committed=committed)
        return partition_lag(behind, lags.paces(behind), clock, broker.clock.now_ms())

    return broker.call(measure)


def test_a_group_at_the_end_is_behind_by_nothing(broker: RunningBroker) -> None:
    send(broker, NOW_MS - DAY)
    commit(broker, 1)
    assert lag(broker) == GroupPartitionLag(
        "g", "t", 0, 1, 0, 1, 0, 0, 0, 0, LagClock.APPEND, 0, False, 0, None
    )


def test_what_sinks_keep_as_offsets_is_no_lag_and_loses_nothing(broker: RunningBroker) -> None:
    for group in ("horolog/batch/q", "horolog/task/0/q", "g"):
        commit(broker, 0, group)
    for _ in range(30):
        send(broker, NOW_MS - DAY)
    lags = broker.broker.group_lags
    assert broker.call(lambda: [each.key.group for each in lags.behind()]) == ["g"]
    partition = broker.broker.led("t", 0)

    async def groups() -> list[str]:
        return [each.key.group async for each in lags.behind_in(partition, TimeSlice())]

    assert broker.run(groups()) == ["g"]


def test_the_lag_by_append_time_is_the_age_of_the_first_unread_record(
    broker: RunningBroker, clock: ManualClock
) -> None:
    commit(broker, 1)
    for _ in range(3):
        send(broker, NOW_MS - DAY)
        clock.advance("1m")
    found = lag(broker)
    assert (found.offsets_behind, found.records_behind) == (2, 2)
    assert found.lag_ms == 120_000
    clock.step("-1h")
    assert lag(broker).lag_ms == 0


def test_the_lag_by_create_time_is_the_age_of_the_oldest_unread_record_not_of_the_first(
    broker: RunningBroker,
) -> None:
    send(broker, NOW_MS - 5_000_000, NOW_MS - 10, NOW_MS - 20, NOW_MS - 4_000, NOW_MS - 30)
    commit(broker, 1)
    found = lag(broker, LagClock.CREATE)
    assert (found.lag_ms, found.records_behind) == (4_000, 4)
    commit(broker, 4)
    assert lag(broker, LagClock.CREATE).lag_ms == 30
    send(broker, NOW_MS + 5_000)
    commit(broker, 5)
    assert lag(broker, LagClock.CREATE).lag_ms == 0
    send(broker, -1)
    commit(broker, 6)
    assert lag(broker, LagClock.CREATE).lag_ms is None
    assert lag(broker, LagClock.APPEND).lag_ms == 0


def test_records_deleted_before_they_were_read_are_lost_and_counted_apart(
    broker: RunningBroker,
) -> None:
    for _ in range(10):
        send(broker, NOW_MS)
    commit(broker, 2)
    broker.delete_records("t", 7)
    found = lag(broker)
    assert (found.committed, found.start, found.end) == (2, 7, 10)
    assert (found.offsets_behind, found.records_behind, found.lost_records) == (8, 3, 5)


def test_retention_deletes_what_a_group_that_stands_still_has_not_read(
    broker: RunningBroker, clock: ManualClock
) -> None:
    for day in range(4):
        for _ in range(10):
            send(broker, *[NOW_MS + day * DAY] * 10)  # a segment has one batch
        clock.advance("1d")
    commit(broker, 130)
    set_retention(broker, 5 * DAY)
    found = lag(broker)
    # The segments of the second day go first: five days after their records, and a millisecond.
    assert found.first_deleted_ms == NOW_MS + DAY + 5 * DAY + 1
    assert found.unread_deleted == found.records_behind == 270
    set_retention(broker, -1)
    assert (lag(broker).unread_deleted, lag(broker).first_deleted_ms) == (0, None)


def test_a_group_that_reads_fast_enough_loses_nothing_and_a_slow_one_its_rest(
    broker: RunningBroker, clock: ManualClock
) -> None:
    set_retention(broker, DAY)
    for _ in range(10):
        send(broker, *[NOW_MS] * 10)
    commit(broker, 0)
    broker.run(broker.broker.group_lags.sample())
    assert lag(broker).catch_up_ms is None  # not known yet
    assert lag(broker).unread_deleted == 100
    clock.advance("1h")
    commit(broker, 10)
    found = lag(broker)
    assert found.catch_up_ms == 9 * 3_600_000
    assert (found.unread_deleted, found.first_deleted_ms) == (0, None)
    clock.advance("9h")  # one record an hour from here on: 14 hours are left for 90
    found = lag(broker)
    assert found.catch_up_ms == 90 * 3_600_000
    assert found.unread_deleted == 90 - 14
    assert found.first_deleted_ms == NOW_MS + DAY + 1


def test_a_group_slower_than_its_producers_never_catches_up(broker: RunningBroker) -> None:
    send(broker, NOW_MS)
    commit(broker, 0)
    broker.run(broker.broker.group_lags.sample())
    broker.clock.advance("1m")
    send(broker, NOW_MS, NOW_MS)
    commit(broker, 1)
    assert lag(broker).catch_up_ms is None


def end(producer: Producer, *, commit: bool = True) -> None:
    """End a transaction, and wait for its marker."""
    broker = producer.broker
    assert isinstance(broker, RunningBroker)
    assert producer.end(commit=commit) == 0
    broker.run(broker.broker.transactions.settle())


def test_a_group_that_has_read_all_records_is_not_behind_by_a_marker(
    broker: RunningBroker, clock: ManualClock
) -> None:
    producer = Producer(broker)
    assert producer.send("t") == 0
    end(producer)
    commit(broker, 1)
    set_retention(broker, DAY)
    clock.advance("20h")
    for of, committed in product(LagClock, (False, True)):
        found = lag(broker, of, committed=committed)
        assert (found.offsets_behind, found.records_behind) == (1, 0), "as Kafka's tools count"
        assert (found.lag_ms, found.catch_up_ms) == (0, 0)
        assert (found.unread_deleted, found.first_deleted_ms) == (0, None)
    send(broker, clock.now_ms() - 5)
    clock.advance("1m")
    assert [lag(broker, each).lag_ms for each in LagClock] == [60_000, 60_005]
    assert lag(broker).records_behind == 1


@pytest.mark.parametrize("rolls", [False, True])
def test_aborted_records_are_unread_only_to_groups_that_read_all(
    broker: RunningBroker, clock: ManualClock, rolls: bool
) -> None:
    commit(broker, 0)
    for number in range(4):
        producer = Producer(broker, "x")
        assert [producer.send("t"), producer.send("t")] == [0, 0]
        end(producer, commit=False)
        if rolls:
            broker.roll("t")
        clock.advance("1m")
        assert lag(broker, committed=True).records_behind == 0
        assert lag(broker).records_behind == 2 * (number + 1)
    found = lag(broker, committed=True)
    assert (found.offsets_behind, found.lag_ms) == (12, 0)
    assert lag(broker).lag_ms == 240_000
    committed = Producer(broker, "y")
    assert committed.send("t") == 0
    end(committed)
    clock.advance("1s")
    found = lag(broker, committed=True)
    assert (found.records_behind, found.lag_ms) == (1, 1_000)


def test_a_record_of_the_earliest_time_has_a_lag_that_a_number_holds(
    broker: RunningBroker, clock: ManualClock
) -> None:
    send(broker, NOW_MS - LONG_MAX)
    commit(broker, 0)
    clock.advance("1s")
    found = broker.client.ask(GROUP_LAG, "g", AskGroupLag(LagClock.CREATE)).lags
    assert [each.lag_ms for each in found or ()] == [LONG_MAX]


def test_a_deleted_topic_and_a_group_without_offsets_are_left_out(broker: RunningBroker) -> None:
    commit(broker, 0)
    lags = broker.broker.group_lags
    assert broker.call(lambda: list(lags.behind(["nobody"]))) == []
    broker.client.delete_topics(["t"])
    assert broker.call(lambda: list(lags.behind())) == []


def test_a_lag_is_of_one_moment_beside_deletions(tmp_path: Path) -> None:
    with new_log(tmp_path, TopicConfig(segment_bytes=500)) as log:
        for _ in range(400):
            append(log, NOW_MS)

        def measure() -> Any:
            key, start, end = Key("g", "events", 3), log.log_start_offset, log.high_watermark
            behind = Behind(key, 0, start, end, log, is_committed=False)
            return partition_lag(behind, Paces(None, None), LagClock.APPEND, NOW_MS)

        def delete() -> None:
            log.delete_records(log.log_start_offset + 1)

        deletions = 0
        for found in at_each_line(measure, delete, "horolog/", every=7):
            deletions += 1
            assert found.records_behind is not None
            assert found.lost_records + found.records_behind == found.offsets_behind == 400
        assert deletions > 20
