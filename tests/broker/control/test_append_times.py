"""Append times that a clock far ahead has left behind, reset over the wire."""

import json

import pytest
from faulty_calls import failing
from running_broker import NOW_MS, TOPIC, RunningBroker, a_broker

from horolog.client import Client, ResourceType
from horolog.clock import DAY_MS, ManualClock
from horolog.errors import ErrorCode, RequestRefused, StorageFailed
from horolog.record import LogRecord, build_batch
from horolog.storage import Log
from horolog.testing import Broker
from horolog.wire import APPEND_TIMES_AHEAD, ApiKey

RESET, AHEAD = "horolog.append.time.reset", "horolog.append.time.ahead"


broker = a_broker("t", partitions=3, of_topics={"message_timestamp_type": "LogAppendTime"})


def produce(broker: RunningBroker, *partitions: int, topic: str = "t") -> list[int]:
    """The append time of one record in each partition."""
    batch = build_batch([LogRecord(5, None, b"v")])
    appended = [broker.produce(topic, batch, partition) for partition in partitions]
    assert [each.error_code for each in appended] == [0] * len(partitions)
    return [each.log_append_time_ms for each in appended]


def jump(broker: RunningBroker, clock: ManualClock, days: int, *partitions: int) -> None:
    """The clock is far ahead for one record."""
    clock.step(f"{days}d")
    produce(broker, *partitions)
    clock.step(f"-{days}d")


def ahead(broker: RunningBroker) -> dict[str, int]:
    found = broker.client.ask.needed(APPEND_TIMES_AHEAD, "t")
    return found._asdict()


@pytest.mark.parametrize("days", [100, 300 * 365])
def test_a_reset_lets_append_times_follow_the_clock_again(broker: RunningBroker, days: int) -> None:
    jump(broker, broker.clock, days, 0, 1, 2)
    assert produce(broker, 0, 1, 2) == [NOW_MS + days * DAY_MS] * 3
    of_all = {"partitions": 3, "most_ahead_ms": days * DAY_MS, "resets": 0}
    assert ahead(broker) == {**of_all, "ahead": 3, "clock_ahead_ms": days * DAY_MS}
    assert broker.alter("t", (RESET, 0, "0, 2,2")).error_code == 0
    assert ahead(broker)["ahead"] == 1
    broker.clock.advance(7)
    assert produce(broker, 0, 1, 2) == [NOW_MS + 7, NOW_MS + days * DAY_MS, NOW_MS + 7]
    assert broker.alter("t", (RESET, 0, "all")).error_code == 0
    assert produce(broker, 0, 1, 2) == [NOW_MS + 7] * 3
    none_ahead = {"ahead": 0, "most_ahead_ms": 0, "clock_ahead_ms": 0}
    assert ahead(broker) == {"partitions": 3, "resets": 3, **none_ahead}
    resets = [broker.log("t", index).floor.resets for index in range(3)]
    assert [len(each) for each in resets] == [1, 1, 1]
    late = NOW_MS + 7
    found = broker.client.list_offsets({("t", 0): late + 1})["t", 0]
    assert found is not None
    assert found.offset == 0, "the earliest at or after it lies before the reset"


def test_the_older_request_resets_too_and_replaces_no_settings(broker: RunningBroker) -> None:
    jump(broker, broker.clock, 100, 0)
    for configs, code in (
        ([(RESET, "all"), ("retention.ms", "5")], ErrorCode.invalid_config),
        ([(AHEAD, "0")], ErrorCode.invalid_config),
        ([(RESET, "7")], ErrorCode.unknown_topic_or_partition),
        ([(RESET, "all")], ErrorCode.none),
    ):
        assert ahead(broker)["ahead"] == 1
        resource = {
            "resource_type": TOPIC,
            "resource_name": "t",
            "configs": [{"name": name, "value": value} for name, value in configs],
        }
        (answer,) = broker.ask(
            ApiKey.ALTER_CONFIGS, 2, resources=[resource], validate_only=False
        ).responses
        assert answer.error_code == code
    assert ahead(broker)["ahead"] == 0
    overrides = broker.broker.topics.named("t").overrides
    assert overrides == {"message.timestamp.type": "LogAppendTime"}


def test_no_append_time_is_lowered_by_validation_alone(broker: RunningBroker) -> None:
    jump(broker, broker.clock, 100, 0)
    assert broker.alter("t", (RESET, 0, "all"), validate_only=True).error_code == 0
    assert ahead(broker)["ahead"] == 1
    refused = broker.alter("t", (RESET, 0, "nonsense"), validate_only=True)
    assert refused.error_code == ErrorCode.invalid_config


@pytest.mark.parametrize(
    ("configs", "code", "says"),
    [
        ([(RESET, 0, "")], ErrorCode.invalid_config, "all, or partitions as in 0,3"),
        ([(RESET, 0, None)], ErrorCode.invalid_config, "can be set, once"),
        ([(RESET, 1, None)], ErrorCode.invalid_config, "can be set, once"),
        ([(RESET, 0, "-1")], ErrorCode.invalid_config, "all, or partitions as in 0,3"),
        ([(RESET, 0, "0,")], ErrorCode.invalid_config, "all, or partitions as in 0,3"),
        ([(RESET, 0, "9" * 5000)], ErrorCode.invalid_config, "all, or partitions as in 0,3"),
        ([(RESET, 0, "0,3")], ErrorCode.unknown_topic_or_partition, "t has no partition 3"),
        (
            [(RESET, 0, "all"), ("retention.ms", 0, "5")],
            ErrorCode.invalid_config,
            "with nothing else",
        ),
        ([(RESET, 0, "0"), (RESET, 0, "1")], ErrorCode.invalid_config, "with nothing else"),
        ([(AHEAD, 0, "0")], ErrorCode.invalid_config, "can be described, not set"),
    ],
)
def test_what_is_no_reset_is_refused_and_changes_nothing(
    broker: RunningBroker,
    clock: ManualClock,
    configs: list[tuple[str, int, str | None]],
    code: ErrorCode,
    says: str,
) -> None:
    jump(broker, clock, 100, 0, 1, 2)
    answer = broker.alter("t", *configs)
    assert answer.error_code == code
    assert says in answer.error_message
    assert ahead(broker)["ahead"] == 3
    assert "retention.ms" not in broker.broker.topics.named("t").overrides


def test_partitions_that_the_disk_refuses_are_counted_and_the_others_reset(
    broker: RunningBroker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jump(broker, clock, 100, 0, 1, 2)
    full = StorageFailed("the disk is full")
    failing(monkeypatch, Log, "reset_append_time", full, when=lambda log, _: log.partition == 1)
    answer = broker.alter("t", (RESET, 0, "all"))
    assert answer.error_code == ErrorCode.kafka_storage_error
    assert answer.error_message == "1 of 3 partitions were not reset: the disk is full"
    assert ahead(broker)["ahead"] == 1


def test_stock_clients_are_reported_of_it_nowhere_but_as_a_feature(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        described = connection.ask(
            ApiKey.DESCRIBE_CONFIGS,
            4,
            resources=[{"resource_type": TOPIC, "resource_name": "t", "configuration_keys": None}],
            include_synonyms=True,
            include_documentation=True,
        ).results[0]
        assert not [each.name for each in described.configs if each.name in (AHEAD, RESET)]
        for version in (3, 4):
            answer = connection.ask(ApiKey.API_VERSIONS, version)
            features = {each.name: each for each in answer.supported_features}
            assert (features[RESET].min_version, features[RESET].max_version) == (1, 1)
        assert not hasattr(connection.ask(ApiKey.API_VERSIONS, 2), "supported_features")
    resource = (ResourceType.TOPIC, "t")
    (entry,) = broker.client.describe_configs([resource], names=[AHEAD])[resource].values()
    assert (entry.is_read_only, entry.is_default) == (True, True)
    assert json.loads(entry.value or "")["ahead"] == 0


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("days", [100, 300 * 365])
def test_the_floor_and_its_reset_survive_a_restart(end: str, days: int) -> None:
    clock = ManualClock(NOW_MS)
    batch = build_batch([LogRecord(5, None, b"v")])
    with Broker(clock=clock) as broker:
        broker.create_topic("t", settings={"message.timestamp.type": "LogAppendTime"})

        def append_time() -> int:
            with Client(broker.bootstrap_servers) as client:
                return client.produce("t", 0, batch).log_append_time_ms or 0

        def restart() -> None:
            broker.stop() if end == "stop" else broker.kill()
            broker.start()

        clock.step(f"{days}d")
        append_time()
        clock.step(f"-{days}d")
        restart()
        assert append_time() == NOW_MS + days * DAY_MS
        with Client(broker.bootstrap_servers) as client:
            client.topics.reset_append_times("t")
        restart()
        clock.advance(3)
        assert append_time() == NOW_MS + 3
        clock.step("-1h")
        restart()
        assert append_time() == NOW_MS + 3


def test_an_unknown_topic_is_refused(broker: RunningBroker) -> None:
    with (
        Client(broker.address, timeout_ms=1000) as client,
        pytest.raises(RequestRefused, match="nowhere"),
    ):
        client.topics.reset_append_times("nowhere")
