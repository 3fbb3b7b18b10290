"""Warnings about appends: their times, and what the disk or a policy refuses."""

import logging
import shutil

import pytest
from batches import batch
from faulty_calls import full_disk
from patience import eventually
from running_broker import NOW_MS, RunningBroker, a_broker
from stepped_loop import SteppedLoop
from transactional import init, write

from horolog.clock import ManualClock
from horolog.errors import ErrorCode

broker = a_broker(new_loop=SteppedLoop)


def produce(broker: RunningBroker, topic: str, partitions: int = 1) -> None:
    for partition in range(partitions):
        broker.produce(topic, batch(5), partition)


def minute(broker: RunningBroker, seconds: float = 61) -> None:
    assert isinstance(broker.loop, SteppedLoop)
    broker.loop.advance(seconds)


def test_each_minute_a_warning_names_the_command_until_append_times_are_reset(
    broker: RunningBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("few", message_timestamp_type="LogAppendTime")
    broker.create_topic("many", 5, message_timestamp_type="LogAppendTime")
    broker.create_topic("create-time", 5)
    produce(broker, "create-time", 5)
    clock.step("100d")
    produce(broker, "few")
    produce(broker, "many", 5)
    clock.step("-100d")

    def warnings() -> list[str]:
        return [m for m in caplog.messages if m.startswith("append times are ahead of the clock")]

    with caplog.at_level(logging.WARNING, "horolog.broker"):
        for count in (1, 2, 3):  # by itself, without appends
            minute(broker)
            assert eventually(lambda count=count: len(warnings()) == count)
        for _ in range(3):
            produce(broker, "few")
        assert len(warnings()) == 3, "no more than one a minute"
        assert (
            "few-0 100 days, many-0 100 days, many-1 100 days and 3 more partitions"
            in (warnings()[-1])
        )
        assert "`horolog topics reset-append-time few`" in warnings()[-1]
        broker.client.topics.reset_append_times("few")
        broker.client.topics.reset_append_times("many")
        minute(broker)
        produce(broker, "few")
        produce(broker, "many", 5)
        minute(broker)
        produce(broker, "few")
        assert len(warnings()) == 3


def test_records_refused_because_append_times_are_ahead_name_the_way_out_once_a_minute(
    broker: RunningBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("t", message_timestamp_before_max_ms="60000")
    clock.step("10m")
    assert broker.produce("t", batch(clock.now_ms())).error_code == 0
    clock.step("-10m")
    with caplog.at_level(logging.WARNING, "horolog.broker"):
        for minutes in (1, 1, 2):
            if minutes > 1:
                minute(broker)
            refused = broker.produce("t", batch(clock.now_ms()))
            assert refused.error_code == ErrorCode.invalid_timestamp
            said = [line for line in caplog.messages if "error 32" in line]
            assert len(said) == minutes
            assert "t-0: " in said[0]
            assert "10 minutes ahead" in said[0]
            assert "`horolog topics reset-append-time --all`" in said[0]


def test_the_first_record_that_is_stamped_ahead_is_warned_of_at_once(
    broker: RunningBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("t", message_timestamp_type="LogAppendTime")
    produce(broker, "t")
    clock.step("-2h")
    with caplog.at_level(logging.WARNING, "horolog.broker"):
        produce(broker, "t")
    (warning,) = caplog.messages
    assert "t-0 2 hours" in warning


def test_create_time_topics_are_warned_of_as_their_append_times_are_kept_too(
    broker: RunningBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("t")
    produce(broker, "t")
    clock.step("-2h")
    with caplog.at_level(logging.WARNING, "horolog.broker"):
        produce(broker, "t")
    assert any("ahead of the clock, which has gone back: t-0 2 hours" in m for m in caplog.messages)


@pytest.mark.parametrize(
    ("retention_by", "said"), [("create-time", 1), ("append-time", 0), ("later", 0)]
)
def test_records_that_retention_would_delete_at_once_are_warned_of_once_a_minute(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture, retention_by: str, said: int
) -> None:
    broker.create_topic("t", retention_ms="3600000", horolog_retention_by=retention_by)
    with caplog.at_level(logging.WARNING, "horolog.broker"):
        broker.produce("t", batch(NOW_MS - 3_600_000))
        assert caplog.messages == [], "a moment is left"
        for _ in range(3):
            broker.produce("t", batch(NOW_MS - 3 * 3_600_000))
        assert len(caplog.messages) == said
        minute(broker)
        broker.produce("t", batch(NOW_MS - 3 * 3_600_000))
    assert len(caplog.messages) == 2 * said
    for message in caplog.messages[:1]:
        assert "t-0: records have been older than retention.ms for 2 hours" in message
        assert "(offsets 1 to 1, from client 'test' at 127.0.0.1)" in message


@pytest.mark.parametrize("retention_by", ["create-time", "append-time"])
def test_a_record_ahead_of_the_clock_is_warned_of_with_its_client(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture, retention_by: str
) -> None:
    broker.create_topic(
        "t", message_timestamp_after_max_ms=str(1 << 60), horolog_retention_by=retention_by
    )
    with caplog.at_level(logging.WARNING, "horolog.broker"):
        broker.produce("t", batch(NOW_MS + 48 * 3_600_000))
    (message,) = caplog.messages
    assert "(offsets 0 to 0, from client 'test' at 127.0.0.1)" in message
    assert ("keeps its segment" in message) == (retention_by == "create-time")


def test_partitions_that_a_full_disk_refuses_are_named_once_until_it_takes_records_again(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t", 5)
    broker.create_topic("u")
    produce(broker, "t", 5)
    produce(broker, "u")

    def refuse(topic: str, partition: int = 0) -> None:
        answer = broker.produce(topic, batch(5), partition)
        assert answer.error_code == ErrorCode.kafka_storage_error

    def warnings() -> list[str]:
        return [m for m in caplog.messages if m.startswith("appends are refused")]

    with caplog.at_level(logging.INFO, "horolog.broker"), monkeypatch.context() as patched:
        full_disk(patched)
        for _ in range(3):
            refuse("u")
        assert "appends are refused by u-0: Cannot write" in warnings()[0]
        assert "No space left on device; free some space" in warnings()[0]
        for partition in range(5):
            refuse("t", partition)
        assert len(warnings()) == 1, "no more than one a minute"
        for _ in range(3):
            minute(broker)
            assert eventually(lambda: len(warnings()) == 2)
            refuse("t")
        assert "refused by t-0, t-1, t-2 and 2 more partitions: " in warnings()[1]
        patched.undo()
        produce(broker, "t", 5)
        produce(broker, "u")
        minute(broker)
        again = "the disk refuses no append any more"
        assert eventually(lambda: caplog.messages.count(again) == 1)
        full_disk(patched)
        minute(broker)
        refuse("u")
        assert len(warnings()) == 3, "it is said anew"


def test_appends_of_coordinators_that_a_full_disk_refuses_are_named(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert init(broker).error_code == 0
    with caplog.at_level(logging.WARNING, "horolog.broker"), monkeypatch.context() as patched:
        full_disk(patched)
        assert init(broker).error_code == ErrorCode.coordinator_not_available
        minute(broker)
        assert eventually(
            lambda: any(m.startswith("appends are refused by __trans") for m in caplog.messages)
        )


def test_a_change_of_the_metadata_that_a_full_disk_refuses_is_warned_of_once_a_minute(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t")
    with caplog.at_level(logging.WARNING, "horolog.broker"), monkeypatch.context() as patched:
        full_disk(patched)
        for seconds, count in (0, 1), (0, 1), (61, 2):
            minute(broker, seconds)
            refused = broker.alter("t", retention_ms="5").error_code
            assert refused == ErrorCode.kafka_storage_error
            said = [m for m in caplog.messages if m.startswith("a change of the metadata is ref")]
            assert len(said) == count
            assert "No space left on device" in said[0]


def test_a_transaction_that_an_adopted_topic_refuses_is_warned_of_once_a_minute(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("t", 2)
    broker.stop()
    shutil.rmtree(broker.log_dir / "__cluster_metadata-0")
    broker.restart()
    assert broker.broker.topics.find("t").adopted
    producer = init(broker)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "horolog.broker"):
        for partition in 0, 1, 0:
            code = write(broker, producer, partition=partition, version=12)
            assert code == ErrorCode.policy_violation
        (message,) = caplog.messages
        assert "t-0: a batch was refused: t was adopted" in message
        assert "(from client 'test' at 127.0.0.1)" in message
        minute(broker)
        write(broker, producer, version=12)
    assert len([m for m in caplog.messages if "a batch was refused" in m]) == 2
