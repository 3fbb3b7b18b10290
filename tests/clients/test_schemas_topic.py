"""A registry of schemas on its compacted topic, as Confluent's and Karapace use `_schemas`.

A registry reads the topic from its beginning up to a record that it writes itself, keeps no
offsets, and elects its master by a group of the protocol type "sr".
"""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from patience import PATIENCE_S, eventually
from running_broker import BrokerProcess, a_broker_process

from horolog.client import Client
from horolog.record import iter_headers
from horolog.wire import ApiKey

TOPIC = "_schemas"
Key = dict[str, Any]


class Registry:
    """What is registered, by key; a tombstone removes a key."""

    def __init__(self, address: str) -> None:
        settings = {"bootstrap.servers": address}
        admin = AdminClient(settings)
        if TOPIC not in admin.list_topics(timeout=PATIENCE_S).topics:
            config = {
                "cleanup.policy": "compact",
                "segment.ms": "1",  # each write begins a segment
                "min.cleanable.dirty.ratio": "0.01",
                "delete.retention.ms": "1",
            }
            admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(PATIENCE_S)
        resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
        (described,) = admin.describe_configs([resource]).values()
        assert described.result(PATIENCE_S)["cleanup.policy"].value == "compact"
        self.state: dict[str, Any] = {}
        self._producer = Producer({**settings, "acks": "all", "enable.idempotence": False})
        self._consumer = Consumer(
            {**settings, "group.id": f"schema-registry-{id(self)}", "enable.auto.commit": False}
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self.write({"keytype": "NOOP", "magic": 0}, None)

    def write(self, key: Key, value: Any) -> None:
        """Write a record, and read the topic up to it."""
        offsets: list[int] = []
        self._producer.produce(
            TOPIC,
            None if value is None else json.dumps(value),
            json.dumps(key),
            partition=0,
            on_delivery=lambda error, message: offsets.append(-1 if error else message.offset()),
        )
        assert self._producer.flush(PATIENCE_S) == 0
        assert offsets[0] >= 0
        while True:
            message = self._consumer.poll(PATIENCE_S)
            assert message is not None
            assert message.error() is None, message.error()
            read = json.loads(message.key())
            if read["keytype"] != "NOOP":
                if message.value() is None:
                    self.state.pop(json.dumps(read), None)
                else:
                    self.state[json.dumps(read)] = json.loads(message.value())
            if message.offset() == offsets[0]:
                return

    def close(self) -> None:
        self._consumer.close()


def schema(subject: str, version: int) -> Key:
    return {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}


broker = a_broker_process(log_cleaner_backoff_ms="100")


def records(broker: BrokerProcess) -> int:
    with Client(broker.address) as client:
        fetched = client.fetch(TOPIC, 0, 0).records
    return sum(header.records_count for _, header in iter_headers(fetched))


def test_registry_has_what_was_registered_after_kills_and_compaction(
    broker: BrokerProcess,
) -> None:
    registry = Registry(broker.address)
    for subject in ("a", "b", "c"):
        for version in (1, 2, 3):
            registry.write(schema(subject, version), {"id": version, "deleted": False})
    for level in ("NONE", "FULL", "BACKWARD") * 5:
        key = {"keytype": "CONFIG", "subject": "a", "magic": 0}
        registry.write(key, {"compatibilityLevel": level})
    for version in (1, 2, 3):  # deleted softly, then for good
        registry.write(schema("c", version), {"id": version, "deleted": True})
        registry.write(schema("c", version), None)
    expected = dict(registry.state)
    assert len(expected) == 7
    registry.close()

    broker.kill()
    broker.start_again()
    # Beside them the last segment, and tombstones until a later run of the cleaner.
    assert eventually(lambda: records(broker) <= len(expected) + 5), "it is compacted"
    for _ in range(2):
        again = Registry(broker.address)
        assert again.state == expected
        again.write(schema("d", 1), {"id": 9})
        expected = dict(again.state)
        again.close()
        broker.kill()
        broker.start_again()


def test_registries_elect_a_master_by_a_group_of_their_own_protocol(
    broker: BrokerProcess,
) -> None:
    def join(member_id: str, host: str) -> Any:
        identity = json.dumps({"version": 1, "host": host, "port": 8081}).encode()
        return broker.ask(
            ApiKey.JOIN_GROUP,
            2,
            group_id="schema-registry",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="sr",
            protocols=[{"name": "v0", "metadata": identity}],
        )

    joined = join("", "first")
    assert (joined.error_code, joined.leader) == (0, joined.member_id)
    (member,) = joined.members
    assert json.loads(member.metadata)["host"] == "first"
    named = {"member_id": joined.member_id, "generation_id": joined.generation_id}
    assignment = {"member_id": joined.member_id, "assignment": b"master"}
    synced = broker.ask(
        ApiKey.SYNC_GROUP, 2, group_id="schema-registry", assignments=[assignment], **named
    )
    assert (synced.error_code, synced.assignment) == (0, b"master")
    other = broker.ask(
        ApiKey.JOIN_GROUP,
        2,
        group_id="schema-registry",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )
    assert other.error_code == 23, "a consumer cannot join a group of registries"
