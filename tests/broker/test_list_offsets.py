"""ListOffsets: exact to the record, with the special targets, against a brute-force model."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from compacting import COMPACT, clean, put
from interleave import at_each_line
from raw_connection import produce_fields
from running_broker import EVER, NOW_MS, BrokerProcess, RunningBroker, a_broker
from storelogs import new_log

from horolog.broker import Asked, find
from horolog.record import Codec, LogRecord, build_batch
from horolog.storage import ReadableLog, TimestampOffset
from horolog.wire import BY_CREATE_TIME, ApiKey

broker = a_broker(on_disk=True, log_message_timestamp_after_max_ms=EVER)


def write(broker: RunningBroker, topic: str, batches: list[list[int]], rng: random.Random) -> None:
    with broker.connect() as connection:
        for times in batches:
            records = build_batch(
                [LogRecord(time, None, b"v") for time in times], codec=rng.choice(list(Codec))
            )
            answer = connection.ask(ApiKey.PRODUCE, 9, **produce_fields(topic, {0: records}))
            assert answer.responses[0].partition_responses[0].error_code == 0


def ask(
    broker: RunningBroker | BrokerProcess, topic: str, *targets: int, version: int = 11
) -> list[Any]:
    with broker.connect() as connection:
        answers = []
        for target in targets:
            topics = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": target}]}]
            answer = connection.ask(ApiKey.LIST_OFFSETS, version, topics=topics)
            answers.append(answer.topics[0].partitions[0])
    return answers


def test_every_lookup_equals_a_scan_of_what_was_written(broker: RunningBroker) -> None:
    rng = random.Random(7)
    broker.create_topic("t", segment_bytes="1048576", index_interval_bytes="64")
    times = [NOW_MS + rng.randrange(-300, 300) for _ in range(400)]
    batches = []
    at = 0
    while at < len(times):
        size = rng.randrange(1, 9)
        batches.append(times[at : at + size])
        at += size
    write(broker, "t", batches, rng)
    for restarted in (False, True):
        if restarted:
            broker.restart()
        targets = [*range(NOW_MS - 302, NOW_MS + 303, 3), 0]
        for target, found in zip(targets, ask(broker, "t", *targets), strict=True):
            expected = next(((t, n) for n, t in enumerate(times) if t >= target), (-1, -1))
            assert (found.timestamp, found.offset) == expected, target
        (largest,) = ask(broker, "t", -3)
        assert (largest.timestamp, largest.offset) == (max(times), times.index(max(times)))


def test_the_largest_timestamp_is_found_while_records_are_appended(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t")
    write(broker, "t", [[NOW_MS]], random.Random(1))
    find = ReadableLog.find_max_timestamp

    def find_in_what_has_grown(log: ReadableLog, *, committed: bool) -> TimestampOffset | None:
        write(broker, "t", [[NOW_MS + 1]], random.Random(1))
        return find(log, committed=committed)

    monkeypatch.setattr(ReadableLog, "find_max_timestamp", find_in_what_has_grown)
    (largest,) = ask(broker, "t", -3)
    assert (largest.timestamp, largest.offset) == (NOW_MS + 1, 1)


def test_the_special_targets(broker: RunningBroker) -> None:
    broker.create_topic("t")
    write(broker, "t", [[NOW_MS, NOW_MS + 9], [NOW_MS + 9, NOW_MS + 5]], random.Random(1))
    latest, earliest, largest, local, tiered, pending = ask(broker, "t", -1, -2, -3, -4, -5, -6)
    assert (latest.timestamp, latest.offset, latest.leader_epoch) == (-1, 4, 0)
    assert (earliest.timestamp, earliest.offset, earliest.leader_epoch) == (-1, 0, 0)
    assert (largest.timestamp, largest.offset) == (NOW_MS + 9, 1)
    assert (local.timestamp, local.offset) == (-1, 0)
    for nothing in (tiered, pending):
        assert (nothing.error_code, nothing.timestamp, nothing.offset) == (0, -1, -1)


@pytest.mark.parametrize(
    ("target", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11), (-(2**63), 11)]
)
def test_a_target_without_meaning_in_a_version_is_refused(
    broker: RunningBroker, target: int, version: int
) -> None:
    broker.create_topic("t")
    (found,) = ask(broker, "t", target, version=version)
    assert (found.error_code, found.timestamp, found.offset) == (35, -1, -1)


def test_an_empty_log_has_no_moment_and_no_error(broker: RunningBroker) -> None:
    broker.create_topic("t")
    for found in ask(broker, "t", 0, NOW_MS, -3):
        assert (found.error_code, found.timestamp, found.offset) == (0, -1, -1)
    latest, earliest = ask(broker, "t", -1, -2)
    assert (latest.offset, earliest.offset) == (0, 0)


@pytest.mark.parametrize("is_emptied", [True, False])
def test_the_earliest_offset_of_an_empty_log_has_an_epoch_after_kills(
    broker_process: BrokerProcess, is_emptied: bool
) -> None:
    """Kafka's leader has it from its election on."""
    with broker_process.connect() as connection:
        connection.ask(ApiKey.METADATA, 9, topics=[{"name": "t"}])
        if is_emptied:
            batch = build_batch([LogRecord(NOW_MS, None, b"v")])
            connection.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {0: batch}))
            topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": -1}]}]
            connection.ask(ApiKey.DELETE_RECORDS, 2, topics=topics)
    epochs = []
    for _ in range(3):
        latest, earliest = ask(broker_process, "t", -1, -2)
        assert earliest.offset == latest.offset == is_emptied
        assert earliest.leader_epoch == latest.leader_epoch
        epochs.append(latest.leader_epoch)
        broker_process.kill()
        broker_process.start_again()
    assert epochs == sorted(epochs)
    assert epochs[0] >= 0


def test_deleted_records_are_never_found(broker: RunningBroker) -> None:
    broker.create_topic("t")
    write(broker, "t", [[NOW_MS + 5, NOW_MS + 5, NOW_MS + 1]], random.Random(1))
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 2}]}]
    answer = broker.ask(ApiKey.DELETE_RECORDS, 2, topics=topics)
    assert answer.topics[0].partitions[0].low_watermark == 2
    found, beyond, earliest = ask(broker, "t", NOW_MS, NOW_MS + 5, -2)
    assert (found.timestamp, found.offset) == (NOW_MS + 1, 2)
    assert beyond.offset == -1
    assert earliest.offset == 2


@pytest.mark.parametrize(("topic", "index", "code"), [("none", 0, 3), ("t", 5, 3)])
def test_what_is_not_there_is_refused(
    broker: RunningBroker, topic: str, index: int, code: int
) -> None:
    broker.create_topic("t")
    topics = [{"name": topic, "partitions": [{"partition_index": index, "timestamp": 5}]}]
    answer = broker.ask(ApiKey.LIST_OFFSETS, 5, topics=topics)
    assert answer.topics[0].partitions[0].error_code == code


def test_a_partition_asked_for_twice_is_refused(broker: RunningBroker) -> None:
    broker.create_topic("t")
    twice = [{"partition_index": 0, "timestamp": 5}, {"partition_index": 0, "timestamp": 6}]
    answer = broker.ask(ApiKey.LIST_OFFSETS, 5, topics=[{"name": "t", "partitions": twice}])
    assert [found.error_code for found in answer.topics[0].partitions] == [42, 42]


def test_where_an_epoch_ended(broker: RunningBroker) -> None:
    broker.create_topic("t")
    write(broker, "t", [[NOW_MS] * 3], random.Random(1))
    broker.restart()  # the epoch stays
    write(broker, "t", [[NOW_MS]], random.Random(1))
    broker.stop()
    (broker.log_dir / ".kafka_cleanshutdown").unlink()
    broker.restart()
    write(broker, "t", [[NOW_MS] * 2], random.Random(1))
    with broker.connect() as connection:
        ends = []
        for epoch in (0, 1, 5):
            partition = {"partition": 0, "leader_epoch": epoch}
            answer = connection.ask(
                ApiKey.OFFSET_FOR_LEADER_EPOCH,
                4,
                topics=[{"topic": "t", "partitions": [partition]}],
            )
            end = answer.topics[0].partitions[0]
            ends.append((end.leader_epoch, end.end_offset))
    assert ends == [(0, 4), (1, 6), (-1, -1)]


def test_a_time_is_found_beside_compaction_that_removes_the_record_for_a_later_one(
    tmp_path: Path,
) -> None:
    with new_log(tmp_path, COMPACT) as log:
        put(log, b"wanted", at=NOW_MS + 1_000_000)
        served: Any = SimpleNamespace(led=lambda *_: SimpleNamespace(log=log, leading=None))

        def replace_it() -> None:
            put(log, b"wanted", at=NOW_MS + 1_000_000)
            log.roll(NOW_MS)
            put(log, b"other")
            clean(log)

        for flags in (0, BY_CREATE_TIME):
            looked_up = Asked(7, flags, "events")
            for found in at_each_line(
                lambda: find(served, looked_up, 3, -1, NOW_MS + 1_000_000),  # noqa: B023 - at once
                replace_it,
                "horolog/broker/",
            ):
                assert (found.error_code, found.timestamp) == (0, NOW_MS + 1_000_000)
