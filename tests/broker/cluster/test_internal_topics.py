"""Internal topics stay on brokers of Apache Kafka; cordons, fences and complaints meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from horolog.broker.cluster.controllers import ControllersUnavailable
from horolog.broker.cluster.internal_topics import WAIT_MS, InternalTopics, wanted_topics
from horolog.config import BrokerConfig, Settings
from horolog.metadata import Changes, Image
from horolog.schemas import metadata as m
from horolog.schemas.metadata import METADATA_VERSION
from horolog.wire import REPLICATION, ApiKey

NODE, DIRECTORY = 5, UUID(int=900)
STATIC = {
    "process.roles": "broker",
    "node.id": str(NODE),
    "controller.quorum.bootstrap.servers": "one:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "share.coordinator.state.topic.replication.factor": "2",
}


def config(**changed: str) -> BrokerConfig:
    given = {name.replace("_", "."): value for name, value in changed.items()}
    return Settings({**STATIC, **given}).broker_config()


def registered(broker: int, *, is_horolog: bool = False, fenced: bool = False) -> m.RegisterBroker:
    features = (m.Supported(REPLICATION, 0, 1),) if is_horolog else ()
    return m.RegisterBroker(broker, False, UUID(int=broker), 10, (), features, fenced=fenced)


class Cluster:
    """An image, controllers that create or refuse, and the time."""

    def __init__(self, *brokers: m.RegisterBroker, level: int = 30, **changed: str) -> None:
        self.now_ms = 1000
        self.asked: list[Mapping[str, Any]] = []
        self.answers: dict[str, tuple[int, str | None]] = {}
        self.is_lost = False
        self.image = Image()
        self.internal = InternalTopics(
            NODE, DIRECTORY, config(**changed), self._ask, lambda: self.now_ms
        )
        self.apply(m.FeatureLevel(METADATA_VERSION, level), registered(NODE, is_horolog=True))
        self.apply(*brokers)

    def apply(self, *records: m.Record) -> None:
        for record in records:
            self.image.apply(record)
        self.internal.look(self.image)

    async def _ask(self, api_key: ApiKey, fields: Mapping[str, Any], *, timeout_ms: int) -> Any:
        assert (api_key, timeout_ms > 0) == (ApiKey.CREATE_TOPICS, True)
        if self.is_lost:
            raise ControllersUnavailable("no controller answers")
        self.asked.append(fields)
        rows = []
        for number, topic in enumerate(fields["topics"]):
            code, message = self.answers.get(topic["name"], (0, None))
            rows.append(SimpleNamespace(name=topic["name"], error_code=code, error_message=message))
            if code == 0:
                self.make(topic["name"], topic["assignments"], UUID(int=1000 + number))
        return SimpleNamespace(topics=rows)

    def make(self, name: str, assignments: Any, topic_id: UUID) -> None:
        self.apply(m.TopicRecord(name, topic_id))
        for it in assignments:
            replicas = tuple(it["broker_ids"])
            index = it["partition_index"]
            self.apply(
                m.PartitionRecord(index, topic_id, replicas, replicas, (), (), replicas[0], 0, 0, 0)
            )

    async def work(self) -> None:
        """Let the task run until it waits."""
        task = asyncio.create_task(self.internal.run())
        for _ in range(10):
            await asyncio.sleep(0)
        task.cancel()


def on_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test on an event loop."""

    async def run() -> None:
        await test()

    @wraps(test)
    def whole() -> None:
        asyncio.run(run())

    return whole


@on_loop
async def test_missing_topics_are_made_on_brokers_of_kafka_once_enough_are_alive() -> None:
    cluster = Cluster(registered(1))
    internal = cluster.internal
    await cluster.work()
    assert not cluster.asked
    assert internal.cordoned == (DIRECTORY,)
    assert "1 of 2 brokers" in internal.complaints[0]
    assert "INVALID_REPLICA_ASSIGNMENT" in internal.complaints[0], (
        "why a topic is refused meanwhile"
    )
    cluster.apply(registered(2, fenced=True))
    await cluster.work()
    assert not cluster.asked
    cluster.apply(m.UnfenceBroker(2, 10))
    await cluster.work()
    [asked] = cluster.asked
    offsets, transactions = asked["topics"]
    assert (offsets["num_partitions"], offsets["replication_factor"]) == (-1, -1)
    assert [it["broker_ids"] for it in offsets["assignments"]] == [[1, 2], [2, 1], [1, 2], [2, 1]]
    assert {it["name"]: it["value"] for it in transactions["configs"]} == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
    assert (internal.cordoned, internal.complaints) == ((), [])
    await cluster.work()
    assert len(cluster.asked) == 1


@on_loop
async def test_after_a_minute_as_many_brokers_as_are_alive_suffice() -> None:
    cluster = Cluster(registered(1))
    cluster.now_ms += WAIT_MS - 1
    await cluster.work()
    assert not cluster.asked
    cluster.now_ms += 1
    await cluster.work()
    transactions = cluster.asked[0]["topics"][1]
    assert [it["broker_ids"] for it in transactions["assignments"]] == [[1], [1]]
    assert {"name": "min.insync.replicas", "value": "1"} in transactions["configs"]


@on_loop
async def test_where_all_brokers_are_horolog_nothing_is_made_or_cordoned() -> None:
    cluster = Cluster(registered(6, is_horolog=True), registered(7, is_horolog=True), level=21)
    cluster.now_ms += WAIT_MS
    await cluster.work()
    assert not cluster.asked
    internal = cluster.internal
    assert (internal.cordoned, internal.keeps_fenced, internal.complaints) == ((), None, [])


@on_loop
async def test_the_topic_of_share_groups_is_made_where_the_feature_is_on() -> None:
    cluster = Cluster(registered(1), registered(2))
    cluster.apply(m.FeatureLevel("share.version", 1))
    await cluster.work()
    names = [topic["name"] for topic in cluster.asked[0]["topics"]]
    assert names == ["__consumer_offsets", "__transaction_state", "__share_group_state"]


@on_loop
async def test_a_refusal_is_said_and_tried_again() -> None:
    cluster = Cluster(registered(1), registered(2))
    cluster.answers["__consumer_offsets"] = 39, "no"
    cluster.answers["__transaction_state"] = 36, "there is one"
    await cluster.work()
    assert "__consumer_offsets is not created: no" in cluster.internal.complaints
    cluster.answers.clear()
    cluster.is_lost = True
    await cluster.work()
    assert "no controller answers" in cluster.internal.complaints[-1]
    cluster.is_lost = False
    await cluster.work()
    assert cluster.internal.complaints == []


@on_loop
async def test_a_broker_of_kafka_that_starts_is_waited_for_a_minute() -> None:
    cluster = Cluster(registered(1, fenced=True))
    internal = cluster.internal
    assert internal.cordoned == (DIRECTORY,)
    assert "has registered, and is not alive yet" in internal.complaints[0]
    cluster.now_ms += WAIT_MS
    cluster.apply(registered(6, is_horolog=True))
    await cluster.work()
    assert (internal.cordoned, internal.complaints, cluster.asked) == ((), [], [])
    cluster.apply(m.UnfenceBroker(1, 10))
    assert internal.cordoned == (DIRECTORY,)


@on_loop
async def test_a_broker_of_kafka_that_is_down_keeps_nothing_away_until_it_registers_anew() -> None:
    cluster = Cluster(registered(1))
    internal = cluster.internal
    cluster.apply(m.FenceBroker(1, 10))
    assert internal.cordoned == ()
    cluster.apply(registered(1, fenced=True)._replace(broker_epoch=11))
    assert internal.cordoned == (DIRECTORY,)
    await cluster.work()
    assert cluster.asked == [], "fenced brokers are given nothing"


@pytest.mark.parametrize(
    ("asked", "before", "after"),
    [("auto", (DIRECTORY,), ()), ("true", (DIRECTORY,), (DIRECTORY,)), ("false", (), ())],
)
def test_an_operator_decides_about_cordons(asked: str, before: Any, after: Any) -> None:
    async def run() -> None:
        cluster = Cluster(registered(1), registered(2), horolog_cluster_cordoned=asked)
        assert cluster.internal.cordoned == before
        await cluster.work()
        assert cluster.internal.cordoned == after

    asyncio.run(run())


@on_loop
async def test_before_cordons_exist_the_broker_stays_fenced_while_one_is_missing_or_here() -> None:
    cluster = Cluster(registered(1), registered(2), level=29)
    internal = cluster.internal
    assert internal.cordoned == ()
    assert "does not exist yet" in str(internal.keeps_fenced)
    cluster.make("__consumer_offsets", [{"partition_index": 0, "broker_ids": [1, NODE]}], DIRECTORY)
    await cluster.work()
    assert "replicas of internal topics are on this broker" in str(internal.keeps_fenced)
    cluster.apply(m.PartitionChange(0, DIRECTORY, replicas=(1, 2)))
    assert internal.keeps_fenced is None
    allowed = Cluster(registered(1), level=29, horolog_cluster_internal_replicas="true")
    assert allowed.internal.keeps_fenced is None


@on_loop
async def test_a_replica_here_is_named_with_the_reassignment_that_moves_it() -> None:
    cluster = Cluster(registered(1), registered(2))
    rows = [{"partition_index": index, "broker_ids": [NODE, 1]} for index in range(30)]
    cluster.make("__consumer_offsets", rows, UUID(int=77))
    cluster.make("__transaction_state", [{"partition_index": 0, "broker_ids": [1]}], UUID(int=78))
    assert cluster.internal.cordoned == ()
    [said] = cluster.internal.complaints
    assert "kafka-reassign-partitions" in said
    assert '{"topic":"__consumer_offsets","partition":0,"replicas":[1,2]}' in said
    assert said.endswith("and 10 more")


@on_loop
async def test_changes_without_content_are_not_looked_at() -> None:
    cluster = Cluster(registered(1))
    cluster.image.brokers.clear()
    cluster.internal.look(cluster.image, Changes(offset=7))
    assert cluster.internal.cordoned == (DIRECTORY,)
    cluster.internal.look(cluster.image)
    assert cluster.internal.cordoned == ()


def test_topics_are_those_of_apache_kafka() -> None:
    topics = {topic.name: topic for topic in wanted_topics(config(), {"share.version": 2})}
    assert topics["__consumer_offsets"].settings == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    assert topics["__share_group_state"].settings["retention.ms"] == "-1"
    assert [topics[name].partitions for name in sorted(topics)] == [4, 1, 2]
