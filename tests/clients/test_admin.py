"""Topics and settings through the admin clients."""

import asyncio
from collections.abc import Iterator
from typing import Any

import aiokafka.admin
import confluent_kafka.admin
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from kafka_clients import Confluent, Rejected, Sent, kafka
from patience import PATIENCE_S
from running_broker import RunningBroker

TOPIC = ConfigResource.Type.TOPIC
BROKER = ConfigResource.Type.BROKER


@pytest.fixture
def admin(broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address})


def result(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(10)


def refused(futures: dict[Any, Any]) -> confluent_kafka.KafkaError:
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        result(futures)
    error: confluent_kafka.KafkaError = caught.value.args[0]
    return error


def incremental(kind: Any, name: str, setting: str, value: str | None) -> ConfigResource:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(setting, value, incremental_operation=operation)
    return ConfigResource(kind, name, incremental_configs=[entry])


def test_confluent_makes_grows_and_deletes_topics(
    broker: RunningBroker, admin: AdminClient
) -> None:
    new = NewTopic("t", 2, 1, config={"retention.ms": "12345"})
    assert result(admin.create_topics([new])) is None
    assert "already exists" in refused(admin.create_topics([new])).str()
    assert (
        refused(admin.create_topics([NewTopic("u", 1, 3)])).name() == "INVALID_REPLICATION_FACTOR"
    )
    assert result(admin.create_partitions([NewPartitions("t", 5)])) is None
    assert len(admin.list_topics("t", timeout=PATIENCE_S).topics["t"].partitions) == 5
    assert result(admin.delete_topics(["t"])) is None
    assert "t" not in admin.list_topics(timeout=PATIENCE_S).topics


def test_confluent_changes_settings_that_are_obeyed_at_once(
    broker: RunningBroker, admin: AdminClient
) -> None:
    broker.create_topic("t")
    client, now_ms = Confluent(), broker.clock.now_ms()
    old = [Sent(b"k", b"v", now_ms - 120_000)]
    client.produce(broker.address, "t", old)
    change = incremental(TOPIC, "t", "message.timestamp.before.max.ms", "60000")
    assert result(admin.incremental_alter_configs([change])) is None
    with pytest.raises(Rejected) as rejected:
        client.produce(broker.address, "t", old)
    assert rejected.value.code == 32
    change = incremental(TOPIC, "t", "message.timestamp.before.max.ms", None)
    assert result(admin.incremental_alter_configs([change])) is None
    client.produce(broker.address, "t", old)
    change = incremental(BROKER, "1", "log.message.timestamp.before.max.ms", "60000")
    assert result(admin.incremental_alter_configs([change])) is None
    with pytest.raises(Rejected):
        client.produce(broker.address, "t", old)


def test_confluent_is_reported_what_is_wrong_with_a_setting(
    broker: RunningBroker, admin: AdminClient
) -> None:
    broker.create_topic("t")
    error = refused(
        admin.incremental_alter_configs([incremental(TOPIC, "t", "cleanup.policy", "shrink")])
    )
    assert error.name() == "INVALID_CONFIG"
    assert "shrink" in error.str()


def test_confluent_reads_settings(broker: RunningBroker, admin: AdminClient) -> None:
    broker.create_topic("t", retention_ms="12345")
    found = result(admin.describe_configs([ConfigResource(TOPIC, "t")]))
    assert found["retention.ms"].value == "12345"
    assert found["message.timestamp.type"].value == "CreateTime"
    found = result(admin.describe_configs([ConfigResource(BROKER, "1")]))
    assert found["log.retention.hours"].value == "168"


def test_confluent_describes_cluster_topics_and_groups(
    broker: RunningBroker, admin: AdminClient
) -> None:
    broker.create_topic("t", partitions=2)
    Confluent().produce(broker.address, "t", [Sent(None, b"v")])
    Confluent().consume(broker.address, "t", 1, group="g")
    cluster = admin.describe_cluster(include_authorized_operations=True).result(10)
    assert cluster.cluster_id == broker.broker.cluster_id
    assert cluster.controller.port == broker.port
    topics = admin.describe_topics(confluent_kafka.TopicCollection(["t"]))
    assert len(result(topics).partitions) == 2
    listed = admin.list_consumer_groups().result(10)
    assert {group.group_id: group.state.name for group in listed.valid} == {"g": "EMPTY"}
    described = result(admin.describe_consumer_groups(["g"]))
    assert described.state.name == "EMPTY"
    asked = confluent_kafka.ConsumerGroupTopicPartitions("g")
    offsets = result(admin.list_consumer_group_offsets([asked]))
    assert [(tp.partition, tp.offset) for tp in offsets.topic_partitions] == [(0, 1)]
    deleted = admin.delete_records([confluent_kafka.TopicPartition("t", 0, 1)])
    assert result(deleted).low_watermark == 1
    assert result(admin.delete_consumer_groups(["g"])) is None


@pytest.fixture
def kafka_python(broker: RunningBroker) -> Iterator[Any]:
    client = kafka.KafkaAdminClient(bootstrap_servers=broker.address)
    yield client
    client.close()


def test_kafka_python_administers(broker: RunningBroker, kafka_python: Any) -> None:
    kafka_python.create_topics({"t": {"num_partitions": 2, "configs": {"retention.ms": "5000"}}})
    assert "t" in kafka_python.list_topics()
    kafka_python.create_partitions({"t": 4})
    assert broker.call(lambda: len(broker.broker.topics.named("t").partitions)) == 4
    resource = kafka.admin.ConfigResource("TOPIC", "t", {"segment.ms": "7777"})
    kafka_python.alter_configs([resource])
    assert broker.log("t").config.segment_ms == 7777
    assert broker.log("t").config.retention_ms == 5000
    described = kafka_python.describe_configs([kafka.admin.ConfigResource("TOPIC", "t")])
    assert "7777" in str(described)
    kafka_python.delete_topics(["t"])
    assert "t" not in kafka_python.list_topics()


def test_aiokafka_administers(broker: RunningBroker) -> None:
    async def administer() -> None:
        admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=broker.address)
        await admin.start()
        try:
            new = aiokafka.admin.NewTopic("t", 2, 1, topic_configs={"retention.ms": "5000"})
            created = await admin.create_topics([new])
            assert [error for _, error, *_ in created.topic_errors] == [0]
            assert "t" in await admin.list_topics()
            await admin.create_partitions({"t": aiokafka.admin.NewPartitions(3)})
            resource = aiokafka.admin.config_resource.ConfigResource(
                aiokafka.admin.config_resource.ConfigResourceType.TOPIC, "t"
            )
            described = await admin.describe_configs([resource])
            assert "5000" in str(described[0].resources)
            deleted = await admin.delete_topics(["t"])
            assert [error for _, error in deleted.topic_error_codes] == [0]
        finally:
            await admin.close()

    asyncio.run(asyncio.wait_for(administer(), PATIENCE_S))
    assert not list(broker.call(lambda: list(broker.broker.topics)))
