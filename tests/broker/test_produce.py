"""Produce, as the protocol has it: codes, texts, stamps, and what must not reach the log."""

import logging
import threading
from itertools import count
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from batches import batch
from made_again import make_again_meanwhile
from overrides import override
from raw_connection import produce_fields
from running_broker import BROKER, NOW_MS, MakeBroker, RunningBroker, a_broker

from horolog.clock import HOUR_MS
from horolog.errors import ErrorCode
from horolog.record import Codec, LogRecord, build_batch
from horolog.storage import Prepared, prepare
from horolog.wire import ApiKey

broker = a_broker("t")


def test_offsets_are_given_in_order(broker: RunningBroker) -> None:
    assert broker.produce("t", batch(NOW_MS, NOW_MS)).base_offset == 0
    answer = broker.produce("t", batch(NOW_MS))
    assert (answer.error_code, answer.base_offset) == (0, 2)
    assert answer.log_append_time_ms == -1
    assert answer.log_start_offset == 0


def test_only_batches_after_the_first_are_checked_in_threads_because_time_has_passed(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("two", partitions=2)
    seconds = SimpleNamespace(monotonic=count().__next__)  # as where the process is paused
    override(monkeypatch, "horolog.broker.handlers.produce", time=seconds)
    in_threads: list[str] = []  # those that check; where turns are slow, others pack the answers

    def watched(*given: Any, **named: Any) -> Prepared:
        thread = threading.current_thread().name
        if thread.startswith("horolog-check"):
            in_threads.append(thread)
        return prepare(*given, **named)

    override(monkeypatch, "horolog.broker.scheduling", prepare=watched)
    assert broker.produce("t", batch(NOW_MS)).base_offset == 0
    assert not in_threads
    fields = produce_fields("two", {0: batch(NOW_MS), 1: batch(NOW_MS)})
    broker.ask(ApiKey.PRODUCE, 9, **fields)
    assert len(in_threads) == 1


def test_a_damaged_log_is_a_storage_error_of_its_partition_alone(broker: RunningBroker) -> None:
    broker.create_topic("two", partitions=2)
    for index in (0, 1):
        broker.append("two", batch(NOW_MS), index)
        broker.append("two", batch(NOW_MS), index)
    broker.stop()
    with (broker.log_dir / "two-0" / f"{0:020}.log").open("r+b") as file:
        file.write((1 << 40).to_bytes(8, "big"))
    broker.restart()
    sent = produce_fields("two", {0: batch(NOW_MS), 1: batch(NOW_MS)}, acks=-1)
    for offset in (2, 3):
        (topic,) = broker.ask(ApiKey.PRODUCE, 9, **sent).responses
        damaged, whole = sorted(topic.partition_responses, key=lambda answer: answer.index)
        assert (damaged.error_code, whole.error_code) == (ErrorCode.kafka_storage_error, 0)
        assert whole.base_offset == offset


def test_append_time_is_the_clocks_and_never_goes_back(broker: RunningBroker) -> None:
    broker.create_topic("lat", message_timestamp_type="LogAppendTime")
    assert broker.produce("lat", batch(5, 6)).log_append_time_ms == NOW_MS
    broker.clock.advance(-HOUR_MS)
    assert broker.produce("lat", batch(5, 6)).log_append_time_ms == NOW_MS
    broker.clock.advance(HOUR_MS + 7)
    assert broker.produce("lat", batch(5, 6)).log_append_time_ms == NOW_MS + 7
    assert [header.max_timestamp for header in broker.headers("lat")] == [
        NOW_MS,
        NOW_MS,
        NOW_MS + 7,
    ]


def test_the_floor_of_append_times_outlives_a_restart(broker: RunningBroker) -> None:
    broker.create_topic("lat", message_timestamp_type="LogAppendTime")
    broker.produce("lat", batch(5))
    broker.clock.advance(-HOUR_MS)
    broker.restart()
    assert broker.produce("lat", batch(5)).log_append_time_ms == NOW_MS


def test_a_batch_with_times_out_of_bounds_is_refused_with_every_record_at_fault(
    broker: RunningBroker,
) -> None:
    broker.create_topic("strict", message_timestamp_before_max_ms="1000")
    times = (NOW_MS - 1000, NOW_MS - 1001, NOW_MS, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1)
    answer = broker.produce("strict", batch(*times))
    assert answer.error_code == 32
    assert answer.error_message == "One or more records have been rejected due to invalid timestamp"
    assert [error.batch_index for error in answer.record_errors] == [1, 4]
    assert answer.record_errors[0].batch_index_error_message == (
        f"Timestamp {NOW_MS - 1001} of message with offset 1 is out of range. The timestamp "
        f"should be within [{NOW_MS - 1000}, {NOW_MS + HOUR_MS}]"
    )
    assert (answer.base_offset, answer.log_append_time_ms, answer.log_start_offset) == (-1, -1, 0)
    assert broker.log("strict").log_end_offset == 0
    # Old versions have the code alone.
    assert broker.produce("strict", batch(*times), version=7).error_code == 32


@pytest.mark.parametrize(
    ("time", "unit"),
    [(NOW_MS * 1_000_000, "nanoseconds"), (NOW_MS * 1000, "microseconds")],
)
def test_a_time_in_another_unit_is_named(broker: RunningBroker, time: int, unit: str) -> None:
    answer = broker.produce("t", batch(time))
    assert unit in answer.record_errors[0].batch_index_error_message


def test_bounds_may_change_while_the_broker_runs(broker: RunningBroker) -> None:
    old = batch(NOW_MS - 5000)
    assert broker.produce("t", old).error_code == 0
    broker.alter("t", message_timestamp_before_max_ms="4999")
    assert broker.produce("t", old).error_code == 32
    broker.alter("t", message_timestamp_before_max_ms="5000")
    assert broker.produce("t", old).error_code == 0
    broker.alter("", log_message_timestamp_after_max_ms="10", kind=BROKER)
    assert broker.produce("t", batch(NOW_MS + 11)).error_code == 32
    assert broker.produce("t", batch(NOW_MS + 10)).error_code == 0


def test_no_timestamp_is_always_within_bounds(broker: RunningBroker) -> None:
    broker.create_topic("strict", message_timestamp_before_max_ms="0")
    assert broker.produce("strict", batch(-1)).error_code == 0


def test_a_record_far_ahead_is_remarked_on_once_a_minute(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("loose", message_timestamp_after_max_ms=str(2**63 - 1))
    with caplog.at_level(logging.WARNING, "horolog.broker"):
        broker.produce("loose", batch(NOW_MS + HOUR_MS))
        assert not caplog.records
        for _ in range(3):
            broker.produce("loose", batch(NOW_MS + 50 * HOUR_MS))
    (remark,) = caplog.records
    assert "loose-0: a record is 2 days ahead of the clock" in remark.message


def test_no_warning_for_create_times_that_append_times_replace(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("lat", message_timestamp_type="LogAppendTime")
    with caplog.at_level(logging.WARNING, "horolog.broker"):
        broker.produce("lat", batch(NOW_MS + 75 * HOUR_MS))
    assert not caplog.records


def test_a_wrong_max_timestamp_in_the_header_is_put_right(broker: RunningBroker) -> None:
    assert broker.produce("t", batch(NOW_MS, NOW_MS - 5, max_timestamp=NOW_MS + 99)).error_code == 0
    assert broker.headers("t")[0].max_timestamp == NOW_MS


def test_damage_is_refused_and_never_reaches_the_log(broker: RunningBroker) -> None:
    good = batch(NOW_MS)
    flipped = good[:-1] + bytes([good[-1] ^ 1])
    assert broker.produce("t", flipped).error_code == 2
    assert broker.produce("t", good + good).error_code == 87
    assert broker.produce("t", b"").error_code == 87
    assert broker.produce("t", good[:30]).error_code == 87
    assert broker.log("t").log_end_offset == 0
    assert broker.log("t").size == 0


def test_what_is_small_as_sent_and_large_inside_is_still_right(broker: RunningBroker) -> None:
    bomb = build_batch([LogRecord(NOW_MS, None, bytes(900_000))], codec=Codec.ZSTD)
    assert len(bomb) < 1000
    assert broker.produce("t", bomb).base_offset == 0
    assert broker.produce("t", batch(NOW_MS)).base_offset == 1


def test_what_decompresses_beyond_the_limit_is_refused(make_broker: MakeBroker) -> None:
    broker = make_broker(horolog_max_batch_uncompressed_bytes="100000")
    broker.create_topic("t")
    bomb = build_batch([LogRecord(-1, None, bytes(900_000))], codec=Codec.ZSTD)
    assert broker.produce("t", bomb).error_code == 10
    assert broker.log("t").log_end_offset == 0


@pytest.mark.parametrize(
    ("topic", "index", "acks", "code"),
    [("none", 0, 1, 3), ("t", 7, 1, 3), ("t", 0, 2, 21)],
)
def test_refusals_of_a_partition(
    broker: RunningBroker, topic: str, index: int, acks: int, code: int
) -> None:
    fields = produce_fields(topic, {index: batch(NOW_MS)}, acks=acks)
    answer = broker.ask(ApiKey.PRODUCE, 9, **fields).responses[0].partition_responses[0]
    assert answer.error_code == code
    assert (answer.base_offset, answer.log_start_offset) == (-1, -1)


def test_all_replicas_are_one_whatever_min_insync_replicas_says(broker: RunningBroker) -> None:
    """Kafka 4.3 wants at most as many as a partition has."""
    broker.create_topic("many", min_insync_replicas="2")
    fields = produce_fields("many", {0: batch(NOW_MS)}, acks=-1)
    answer = broker.ask(ApiKey.PRODUCE, 9, **fields).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (0, 0)


@pytest.mark.parametrize(
    ("data", "code", "log_start_offset"),
    [
        pytest.param(batch(NOW_MS, base_offset=5), 87, 2, id="found by the log"),
        pytest.param(batch(NOW_MS, is_control=True), 87, 2, id="a control batch"),
        pytest.param(batch(NOW_MS) * 2, 87, -1, id="found by the request's handler"),
        pytest.param(batch(NOW_MS)[:-1], 87, -1, id="no whole batch"),
        pytest.param(b"\0" * 100, 87, -1, id="no batch at all"),
    ],
)
def test_the_log_start_is_reported_where_the_log_refuses_as_kafka_does(
    broker: RunningBroker, data: bytes, code: int, log_start_offset: int
) -> None:
    broker.create_topic("begun")
    for _ in range(3):
        broker.produce("begun", batch(NOW_MS))
    asked = {"name": "begun", "partitions": [{"partition_index": 0, "offset": 2}]}
    broker.ask(ApiKey.DELETE_RECORDS, 1, topics=[asked])
    answer = broker.produce("begun", data)
    assert (answer.error_code, answer.log_start_offset) == (code, log_start_offset)


def test_one_partitions_refusal_is_not_its_neighbours(broker: RunningBroker) -> None:
    broker.create_topic("two", partitions=2)
    fields = produce_fields("two", {0: b"nonsense", 1: batch(NOW_MS)})
    first, second = broker.ask(ApiKey.PRODUCE, 9, **fields).responses[0].partition_responses
    assert (first.index, first.error_code) == (0, 87)
    assert (second.index, second.error_code, second.base_offset) == (1, 0, 0)


def test_topics_by_id(broker: RunningBroker) -> None:
    topic_id = broker.broker.topics.named("t").topic_id
    with broker.connect() as connection:
        answer = connection.ask(
            ApiKey.PRODUCE, 13, **produce_fields(topic_id, {0: batch(NOW_MS)})
        ).responses[0]
        assert answer.topic_id == topic_id
        assert answer.partition_responses[0].error_code == 0
        answer = connection.ask(
            ApiKey.PRODUCE, 13, **produce_fields(UUID(int=99), {0: batch(NOW_MS)})
        ).responses[0]
        assert answer.partition_responses[0].error_code == 100


def test_a_topic_that_is_made_again_while_partitions_are_looked_up_is_another_one(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of very many partitions gives way to others between its partitions."""
    topic = make_again_meanwhile(broker, monkeypatch, "t", 1)
    fields = produce_fields(topic.topic_id, {0: batch(NOW_MS)}, acks=1)
    fields["topic_data"][0]["partition_data"] *= 501
    answer = broker.ask(ApiKey.PRODUCE, 13, **fields).responses[0]
    codes = {it.error_code for it in answer.partition_responses}
    assert codes == {ErrorCode.unknown_topic_id}
    assert broker.produce("t", batch(NOW_MS)).base_offset == 0


def test_without_acks_there_is_no_answer(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        connection.send(ApiKey.PRODUCE, 9, **produce_fields("t", {0: batch(NOW_MS)}, acks=0))
        later = connection.send(ApiKey.API_VERSIONS, 0)
        assert connection.receive()[0] == later
    assert broker.log("t").log_end_offset == 1


def test_without_acks_an_error_closes_the_connection(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with broker.connect() as connection:
        connection.send(ApiKey.PRODUCE, 9, **produce_fields("none", {0: batch(NOW_MS)}, acks=0))
        assert connection.is_closed()
    assert "acks=0" in caplog.text


def test_records_of_a_transaction_are_refused_without_its_id(broker: RunningBroker) -> None:
    records = batch(NOW_MS, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    answer = broker.produce("t", records)
    assert answer.error_code == 53
    assert "transactional.id" in answer.error_message


def test_a_retry_of_an_idempotent_producer_is_answered_with_the_first_offset(
    broker: RunningBroker,
) -> None:
    sent = [
        batch(NOW_MS, NOW_MS, producer_id=5, producer_epoch=0, base_sequence=2 * n)
        for n in range(3)
    ]
    assert [broker.produce("t", one).base_offset for one in sent] == [0, 2, 4]
    assert broker.produce("t", sent[1]).base_offset == 2
    broker.restart()
    assert broker.produce("t", sent[0]).base_offset == 0
    gap = batch(NOW_MS, producer_id=5, producer_epoch=0, base_sequence=9)
    assert broker.produce("t", gap).error_code == 45
    assert broker.log("t").log_end_offset == 6


@pytest.mark.parametrize("topic", ["t\n2030-01-01 ERROR horolog: forged", "\x1b[2J", "x" * 30_000])
def test_what_a_client_names_cannot_forge_lines_of_the_log(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    with broker.connect() as connection, caplog.at_level(logging.WARNING):
        connection.send(ApiKey.PRODUCE, 9, **produce_fields(topic, {7: batch(NOW_MS)}, acks=0))
        assert connection.is_closed()
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.isprintable()
    assert len(message) < 3000
    assert "method" not in message


def test_an_error_message_is_as_long_as_an_answer_can_carry(broker: RunningBroker) -> None:
    answer = broker.produce("x" * 32_767, batch(NOW_MS))
    assert answer.error_code == 3
    (deleted,) = broker.ask(
        ApiKey.DELETE_TOPICS, 6, topics=[{"name": "\n" * 32_767, "topic_id": None}]
    ).responses
    assert deleted.error_message.isprintable()
