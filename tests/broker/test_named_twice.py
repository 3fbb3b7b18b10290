"""What a request names twice: answered as by Apache Kafka, and nothing of it is done."""

from __future__ import annotations

from typing import Any

import pytest
from running_broker import RunningBroker, a_broker

from horolog.client import ResourceType
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

broker = a_broker("a", "b", "c")
TOPIC, BROKER, LOGGER = 2, 4, 8


def names(broker: RunningBroker) -> set[str]:
    return set(broker.client.metadata().topics)


def test_a_topic_named_twice_is_not_deleted_and_others_are(broker: RunningBroker) -> None:
    found = broker.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["a", "a", "b", "none", "none"])
    codes = {each.name: each.error_code for each in found.responses}
    assert codes == {"a": 42, "b": 0, "none": 42}
    assert len(found.responses) == 3
    assert names(broker) == {"a", "c"}


def test_a_topic_named_by_its_id_too_is_not_deleted(broker: RunningBroker) -> None:
    topic_id = broker.broker.topics.named("a").topic_id
    by_name, by_id = {"name": "a", "topic_id": None}, {"name": None, "topic_id": topic_id}
    for asked in ([by_name, by_id], [by_id, by_name], [by_id, by_id], [by_name, by_id, by_id]):
        other = {"name": "none", "topic_id": None}
        found = broker.ask(ApiKey.DELETE_TOPICS, 6, topics=[*asked, other]).responses
        assert sorted(each.error_code for each in found) == [3, 42], asked
    neither = {"name": None, "topic_id": None}
    both = {"name": "a", "topic_id": topic_id}
    found = broker.ask(ApiKey.DELETE_TOPICS, 6, topics=[neither, both]).responses
    assert [each.error_code for each in found] == [42, 42]
    assert names(broker) == {"a", "b", "c"}
    assert broker.ask(ApiKey.DELETE_TOPICS, 6, topics=[by_id]).responses[0].error_code == 0


def altered(broker: RunningBroker, api: ApiKey, *resources: tuple[int, str, str]) -> list[int]:
    value = {"config_operation": 0} if api is ApiKey.INCREMENTAL_ALTER_CONFIGS else {}
    asked = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [{"name": setting, "value": "1234567", **value}],
        }
        for kind, name, setting in resources
    ]
    found = broker.ask(api, 1, resources=asked).responses
    return [each.error_code for each in found]


@pytest.mark.parametrize("api", [ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS])
def test_a_resource_named_twice_is_not_altered_and_others_are(
    broker: RunningBroker, api: ApiKey
) -> None:
    twice = ((TOPIC, "a", "retention.ms"), (TOPIC, "a", "segment.ms"))
    assert altered(broker, api, *twice, (TOPIC, "b", "retention.ms")) == [42, 42, 0]
    assert broker.broker.topics.named("a").overrides == {}
    assert broker.broker.topics.named("b").overrides == {"retention.ms": "1234567"}
    node = str(broker.broker.config.node_id)
    assert altered(broker, api, *[(BROKER, node, "log.retention.ms")] * 2) == [42, 42]
    assert altered(broker, api, *[(LOGGER, node, "horolog")] * 2) == [42, 42]
    assert altered(broker, api, (BROKER, node, "log.retention.ms")) == [0]


def test_a_setting_named_twice_is_not_altered_by_the_older_call_either(
    broker: RunningBroker,
) -> None:
    configs = [{"name": "retention.ms", "value": value} for value in ("1", "2")]
    asked = [{"resource_type": TOPIC, "resource_name": "a", "configs": configs}]
    assert broker.ask(ApiKey.ALTER_CONFIGS, 1, resources=asked).responses[0].error_code == 42
    assert broker.broker.topics.named("a").overrides == {}


def test_each_place_of_a_request_to_describe_has_its_answer(broker: RunningBroker) -> None:
    """KafkaJS reads the answers by position."""
    asked = [("a", ["segment.ms", "retention.ms"]), ("b", ["retention.ms"]), ("a", ["segment.ms"])]
    resources = [
        {"resource_type": TOPIC, "resource_name": name, "configuration_keys": keys}
        for name, keys in asked
    ]
    found = broker.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=resources).results
    shown = [(each.resource_name, [config.name for config in each.configs]) for each in found]
    assert shown == asked
    many = broker.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=resources[:1] * 1_000).results
    assert [each.error_code for each in many[:101]] == [0] * 101
    assert {(each.error_code, len(each.configs)) for each in many[101:]} == {(42, 0)}


def test_a_partition_asked_for_twice_has_no_offset(broker: RunningBroker) -> None:
    def asked(*times: int) -> dict[str, Any]:
        return {"name": "a", "partitions": [{"partition_index": 0, "timestamp": t} for t in times]}

    for topics in ([asked(-1, -2)], [asked(-1), asked(-2)]):
        found = broker.ask(ApiKey.LIST_OFFSETS, 7, topics=topics).topics
        assert {part.error_code for topic in found for part in topic.partitions} == {42}


def test_of_two_offsets_to_delete_up_to_the_last_one_counts(broker: RunningBroker) -> None:
    broker.append("a", build_batch([LogRecord(0, None, b"v")] * 5))
    parts = [{"partition_index": 0, "offset": offset} for offset in (3, 1)]
    topics = [{"name": "a", "partitions": parts[:1]}, {"name": "a", "partitions": parts[1:]}]
    (found,) = broker.ask(ApiKey.DELETE_RECORDS, 2, topics=topics).topics
    assert [(each.error_code, each.low_watermark) for each in found.partitions] == [(0, 1)]
    assert broker.log("a").log_start_offset == 1
    described = broker.client.describe_configs([(ResourceType.TOPIC, "a")])
    assert described
