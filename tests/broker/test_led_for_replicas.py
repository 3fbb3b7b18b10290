"""Lookups, deletions and markers in partitions that have other replicas."""

from typing import Any

import pytest
from batches import batch
from led_partitions import EPOCH, LedPartitions
from parallel_request import ParallelRequest
from patience import eventually
from raw_connection import fetch_fields
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.errors import ErrorCode
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

broker = a_broker("t", partitions=3)

LATEST, EARLIEST, LARGEST, EARLIEST_LOCAL, TIERED = -1, -2, -3, -4, -5
LONG_MS = 60_000


@pytest.fixture
def led(broker: RunningBroker) -> LedPartitions:
    return LedPartitions(broker)


def look(led: LedPartitions, timestamp: int, *, version: int = 9, **more: Any) -> Any:
    replica_id, index, level = (more.pop(name, n) for name, n in ASKED)
    partition = {"partition_index": index, "timestamp": timestamp, "current_leader_epoch": -1}
    (topic,) = led.broker.ask(
        ApiKey.LIST_OFFSETS,
        version,
        replica_id=replica_id,
        isolation_level=level,
        topics=[{"name": "t", "partitions": [{**partition, **more}]}],
    ).topics
    return topic.partitions[0]


ASKED = (("replica_id", -1), ("index", 0), ("isolation_level", 0))


def test_a_replica_is_given_the_log_end_and_a_consumer_the_high_watermark(
    led: LedPartitions,
) -> None:
    led.broker.append("t", batch(NOW_MS, NOW_MS))
    led.reach(2, 2, 3)
    led.broker.append("t", batch(NOW_MS))
    for replica_id in (2, 77, -2):
        found = look(led, LATEST, replica_id=replica_id)
        assert (found.error_code, found.offset, found.leader_epoch) == (0, 3, EPOCH)
        assert look(led, EARLIEST, replica_id=replica_id).offset == 0
    assert look(led, LATEST).offset == 2


def test_a_consumer_waits_between_the_high_watermark_and_the_log_end(led: LedPartitions) -> None:
    """franz-go#885, redpanda#31580: with an error it would ask again and again.

    It is there after an election, for example: the new leader's high watermark is behind.
    """
    led.broker.append("t", batch(NOW_MS, NOW_MS))
    led.reach(2, 2, 3)
    led.broker.append("t", batch(NOW_MS))
    fields = fetch_fields("t", {0: 3}, max_wait_ms=LONG_MS, min_bytes=1)
    with led.broker.connect() as consumer:
        consumer.send(ApiKey.FETCH, 12, **fields)
        led.reach(3, 2, 3)
        led.broker.append("t", batch(NOW_MS))
        led.reach(4, 2, 3)
        (topic,) = consumer.receive()[1].responses
    (found,) = topic.partitions
    assert (found.error_code, found.high_watermark) == (0, 4)
    assert found.records
    assert led.broker.fetch("t", 5).error_code == ErrorCode.offset_out_of_range
    led.lose()
    for offset in (0, 3, 5):
        assert led.broker.fetch("t", offset).error_code == ErrorCode.not_leader_or_follower


def test_a_lookup_ends_at_the_high_watermark(led: LedPartitions) -> None:
    led.broker.append("t", batch(NOW_MS))
    led.reach(1, 2, 3)
    led.broker.append("t", batch(NOW_MS + 10))
    assert look(led, NOW_MS + 5).offset == -1
    assert look(led, LARGEST).timestamp != NOW_MS + 10
    led.reach(2, 2, 3)
    assert look(led, NOW_MS + 5).offset == 1
    assert look(led, LARGEST).timestamp == NOW_MS + 10


@pytest.fixture
def behind(led: LedPartitions) -> LedPartitions:
    """A new leader whose high watermark is before the start of its epoch."""
    led.broker.append("t", batch(NOW_MS))
    led.reach(1, 2, 3)
    led.broker.append("t", batch(NOW_MS + 10))
    led.lose()
    led.win()
    return led


@pytest.mark.parametrize("timestamp", [LATEST, NOW_MS + 5, NOW_MS + 99])
def test_a_new_leader_has_no_latest_offset_until_its_epoch_is_reached(
    behind: LedPartitions, timestamp: int
) -> None:
    assert look(behind, timestamp).error_code == ErrorCode.offset_not_available
    assert look(behind, timestamp, version=4).error_code == ErrorCode.leader_not_available
    assert look(behind, EARLIEST).offset == look(behind, EARLIEST_LOCAL).offset == 0
    assert look(behind, NOW_MS).offset == 0
    assert look(behind, TIERED).error_code == 0
    assert look(behind, LATEST, replica_id=2).offset == 2
    behind.reach(2, 2, 3)
    assert look(behind, timestamp).error_code == 0
    assert look(behind, LATEST).offset == 2


def test_epochs_are_checked_before_the_leader(led: LedPartitions) -> None:
    assert look(led, LATEST, current_leader_epoch=EPOCH - 1).error_code == 74
    assert look(led, LATEST, current_leader_epoch=EPOCH + 1).error_code == 75
    led.lose()
    assert look(led, LATEST).error_code == ErrorCode.not_leader_or_follower
    assert look(led, LATEST, current_leader_epoch=EPOCH + 2).error_code == 75


def end_of_epoch(led: LedPartitions, epoch: int, current: int = -1) -> tuple[int, int, int]:
    partition = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
    (topic,) = led.broker.ask(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        replica_id=2,
        topics=[{"topic": "t", "partitions": [partition]}],
    ).topics
    found = topic.partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


def test_the_leader_alone_knows_where_an_epoch_ends(behind: LedPartitions) -> None:
    assert end_of_epoch(behind, EPOCH) == (0, EPOCH, 2)
    assert end_of_epoch(behind, EPOCH + 2) == (0, EPOCH + 2, 2), "to the log end"
    assert end_of_epoch(behind, EPOCH + 9) == (0, -1, -1)
    assert end_of_epoch(behind, EPOCH, current=EPOCH)[0] == ErrorCode.fenced_leader_epoch
    behind.lose()
    assert end_of_epoch(behind, EPOCH) == (ErrorCode.not_leader_or_follower, -1, -1)


def test_a_consumer_is_told_who_leads(led: LedPartitions) -> None:
    led.lose()
    topic_id = led.topic_id
    for version, named in ((18, True), (16, True), (15, False)):
        fields = fetch_fields(topic_id, {0: 0, 1: 0})
        answer = led.broker.ask(ApiKey.FETCH, version, **fields)
        first, second = answer.responses[0].partitions
        assert (first.error_code, second.error_code) == (6, 0)
        leader = (first.current_leader.leader_id, first.current_leader.leader_epoch)
        assert leader == ((2, EPOCH + 1) if named else (-1, -1))
        nodes = [node.node_id for node in getattr(answer, "node_endpoints", ())]
        assert nodes == ([2] if named else [])


# --- DeleteRecords ----------------------------------------------------------------------


def deletion(offset: int, *indexes: int, timeout_ms: int = LONG_MS) -> dict[str, Any]:
    partitions = [{"partition_index": index, "offset": offset} for index in indexes or (0,)]
    return {"topics": [{"name": "t", "partitions": partitions}], "timeout_ms": timeout_ms}


def outcomes(answer: Any) -> list[tuple[int, int]]:
    (topic,) = answer.topics
    return [(found.error_code, found.low_watermark) for found in topic.partitions]


@pytest.fixture
def filled(led: LedPartitions) -> LedPartitions:
    for index in (0, 1):
        led.broker.append("t", batch(*[NOW_MS] * 4), index)
        led.reach(4, 2, 3, index=index)
    return led


def waits(led: LedPartitions, index: int = 0) -> bool:
    return led.broker.call(lambda: any(led.partition(index).listeners))


@pytest.mark.parametrize("offset", [3, -1])
def test_a_deletion_waits_for_the_log_starts_of_replicas(
    filled: LedPartitions, offset: int
) -> None:
    deleting = ParallelRequest(filled.broker, ApiKey.DELETE_RECORDS, 2, **deletion(offset))
    eventually(lambda: waits(filled))
    start = 4 if offset < 0 else offset
    assert filled.partition().log.log_start_offset == start
    filled.fetch(4, replica=2, start=start)
    assert not deleting.is_answered
    filled.fetch(4, replica=3, start=start - 1)
    assert not deleting.is_answered
    filled.fetch(4, replica=3, start=start)
    assert outcomes(deleting.answer()) == [(0, start)]


def test_a_fenced_replica_holds_no_deletion_up(filled: LedPartitions) -> None:
    deleting = ParallelRequest(filled.broker, ApiKey.DELETE_RECORDS, 2, **deletion(2))
    eventually(lambda: waits(filled))
    filled.fetch(4, replica=2, start=2)
    filled.fence(3)
    assert outcomes(deleting.answer()) == [(0, 2)]


def test_a_deletion_that_times_out_has_the_low_watermark(filled: LedPartitions) -> None:
    filled.fetch(4, replica=2, start=2)
    asked = deletion(2, 0, 1, timeout_ms=50)
    answer = filled.broker.ask(ApiKey.DELETE_RECORDS, 2, **asked)
    assert outcomes(answer) == [(ErrorCode.request_timed_out, 0)] * 2
    asked = deletion(5, timeout_ms=50)
    answer = filled.broker.ask(ApiKey.DELETE_RECORDS, 2, **asked)
    assert outcomes(answer) == [(ErrorCode.offset_out_of_range, -1)]


def test_a_deletion_ends_at_the_high_watermark(filled: LedPartitions) -> None:
    filled.broker.append("t", batch(NOW_MS))
    asked = deletion(5, timeout_ms=50)
    answer = filled.broker.ask(ApiKey.DELETE_RECORDS, 2, **asked)
    assert outcomes(answer) == [(ErrorCode.offset_out_of_range, -1)]


def test_a_deletion_of_a_lost_partition_is_refused(filled: LedPartitions) -> None:
    deleting = ParallelRequest(filled.broker, ApiKey.DELETE_RECORDS, 2, **deletion(2))
    eventually(lambda: waits(filled))
    filled.lose()
    assert outcomes(deleting.answer()) == [(ErrorCode.not_leader_or_follower, -1)]
    answer = filled.broker.ask(ApiKey.DELETE_RECORDS, 2, **deletion(3))
    assert outcomes(answer) == [(ErrorCode.not_leader_or_follower, -1)]


# --- markers ----------------------------------------------------------------------------


def markers(*indexes: int, coordinator_epoch: int = 3, epoch: int = 0) -> dict[str, Any]:
    marker = {
        "producer_id": 7,
        "producer_epoch": epoch,
        "transaction_result": True,
        "topics": [{"name": "t", "partition_indexes": list(indexes)}],
        "coordinator_epoch": coordinator_epoch,
    }
    return {"markers": [marker]}


def marked(answer: Any) -> list[int]:
    (marker,) = answer.markers
    return [found.error_code for topic in marker.topics for found in topic.partitions]


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_is_answered_once_it_is_replicated(led: LedPartitions, version: int) -> None:
    writing = ParallelRequest(led.broker, ApiKey.WRITE_TXN_MARKERS, version, **markers(0, 1))
    for index in (0, 1):
        eventually(lambda index=index: waits(led, index) or index == 1)
    assert [led.partition(index).log.log_end_offset for index in (0, 1)] == [1, 1]
    led.reach(1, 2, 3, index=1)
    led.reach(1, 2)
    assert not writing.is_answered
    led.reach(1, 3)
    assert marked(writing.answer()) == [0, 0]


def test_a_committed_transaction_is_stable_once_its_marker_is_replicated(
    led: LedPartitions,
) -> None:
    records = build_batch(
        [LogRecord(NOW_MS, None, b"x")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    led.broker.run(_append_transactional(led, records))
    led.reach(1, 2, 3)
    log = led.partition().log
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    writing = ParallelRequest(led.broker, ApiKey.WRITE_TXN_MARKERS, 1, **markers(0))
    eventually(lambda: waits(led))
    assert log.last_stable_offset == 0, "another leader may not have the marker"
    led.reach(2, 2, 3)
    assert marked(writing.answer()) == [0]
    assert log.last_stable_offset == 2


async def _append_transactional(led: LedPartitions, records: bytes) -> None:
    partition = led.partition()
    admission = partition.admit(7, is_strict=False)
    appended = partition.writes.append(records, NOW_MS, 9, "me", admission=admission)
    if not isinstance(appended, tuple):
        await appended


def test_markers_are_refused_as_by_kafka(broker: RunningBroker) -> None:
    led = LedPartitions(broker, isr=(1,))

    def write(**more: Any) -> list[int]:
        return marked(broker.ask(ApiKey.WRITE_TXN_MARKERS, 1, **markers(0, **more)))

    led.fence(2)
    led.fence(3)
    assert write() == [0]
    assert write(coordinator_epoch=2) == [ErrorCode.transaction_coordinator_fenced]
    assert write(epoch=5) == [0]
    assert write(epoch=4) == [ErrorCode.invalid_producer_epoch]
    assert marked(broker.ask(ApiKey.WRITE_TXN_MARKERS, 1, **markers(7))) == [3]
    broker.call(lambda: led.partition().leading.on_min_isr(2))  # type: ignore[union-attr]
    assert write(epoch=6) == [ErrorCode.not_enough_replicas]
    led.lose()
    assert write(epoch=6) == [ErrorCode.not_leader_or_follower]


def test_a_marker_of_a_lost_partition_is_written_again_elsewhere(led: LedPartitions) -> None:
    writing = ParallelRequest(led.broker, ApiKey.WRITE_TXN_MARKERS, 1, **markers(0))
    eventually(lambda: waits(led))
    led.lose()
    assert marked(writing.answer()) == [ErrorCode.not_leader_or_follower]
