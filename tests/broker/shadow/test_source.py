"""What a source is asked, and what of its answers is believed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest
from running_broker import RunningBroker, a_broker
from scripted_broker import ScriptedBroker

from horolog.broker import (
    CONFIRMATIONS,
    LEAST_SETTINGS,
    LOOKS_FOR_SETTINGS,
    Source,
    SourcePartition,
)
from horolog.client import ClientConfig
from horolog.errors import ErrorCode, RequestRefused
from horolog.storage import CONSUMER_OFFSETS, FOLLOWED_OFFSETS
from horolog.wire import ApiKey

ONE, OTHER = UUID(int=1), UUID(int=2)

broker = a_broker("t", partitions=2)


@pytest.fixture
def source(broker: RunningBroker) -> Iterator[Source]:
    source = Source(ClientConfig(bootstrap_servers=broker.address), lambda name: name != "other")
    yield source
    source.close()


def test_a_look_gives_brokers_topics_epochs_and_settings(
    broker: RunningBroker, source: Source
) -> None:
    broker.create_topic("other")
    broker.create_topic("u", retention_ms="1234", message_timestamp_type="LogAppendTime")
    found = source.look({})
    assert found.cluster_id == broker.broker.cluster_id
    assert [str(address) for address in found.brokers.values()] == [broker.address]
    assert set(found.topics) == {"t", "u"}
    topic = found.topics["t"]
    assert topic.topic_id == broker.broker.topics.named("t").topic_id
    assert topic.partitions == (SourcePartition(0, 1, 0), SourcePartition(1, 1, 0))
    assert topic.settings == {}
    assert found.topics["u"].settings == {
        "retention.ms": "1234",
        "message.timestamp.type": "LogAppendTime",
    }


def test_settings_that_are_altered_are_seen_within_some_looks(
    broker: RunningBroker, source: Source
) -> None:
    names = [f"t{number}" for number in range(2 * LEAST_SETTINGS)]
    for name in names:
        broker.create_topic(name)
    assert source.look({}).topics[names[-1]].settings == {}
    broker.alter(names[-1], retention_ms="77")
    for _ in range(LOOKS_FOR_SETTINGS):
        settings = source.look({}).topics[names[-1]].settings
    assert settings == {"retention.ms": "77"}


def test_a_topic_is_deleted_once_that_was_seen_several_times(
    broker: RunningBroker, source: Source
) -> None:
    followed = {"t": broker.broker.topics.named("t").topic_id}
    assert not source.look(followed).deleted
    broker.client.delete_topics(["t"])
    looks = [source.look(followed) for _ in range(CONFIRMATIONS)]
    assert [look.deleted for look in looks] == [frozenset()] * 2 + [{"t"}]
    assert all("t" not in look.topics for look in looks)


def test_a_topic_that_is_made_again_comes_once_that_was_seen_several_times(
    broker: RunningBroker, source: Source
) -> None:
    followed = {"t": broker.broker.topics.named("t").topic_id}
    assert source.look(followed).topics["t"].topic_id == followed["t"]
    broker.client.delete_topics(["t"])
    broker.create_topic("t")
    looks = [source.look(followed) for _ in range(CONFIRMATIONS)]
    assert ["t" in look.topics for look in looks] == [False, False, True]
    assert "another id" in looks[0].unreadable["t"]
    assert looks[-1].topics["t"].topic_id == broker.broker.topics.named("t").topic_id
    assert not any(look.deleted for look in looks)


# --- a source that says anything ----------------------------------------------------------

Metadata = Callable[[Sequence[str] | None], Sequence[Mapping[str, Any]]]


def partition(index: int, leader: int = 1, epoch: int = 3) -> dict[str, Any]:
    return {
        "partition_index": index,
        "leader_id": leader,
        "leader_epoch": epoch,
        "replica_nodes": [1],
        "isr_nodes": [1],
    }


class Scripted:
    """A source of one or more brokers whose topics and cluster id a test sets."""

    def __init__(self) -> None:
        self.cluster_id: str | None = "one"
        self.topics: list[dict[str, Any]] = []
        self.by_name: dict[str, ErrorCode] = {}
        self.brokers = [
            ScriptedBroker(
                {ApiKey.METADATA: self.metadata, ApiKey.DESCRIBE_CONFIGS: {"results": ()}},
                node_id=node_id,
            )
            for node_id in (1, 2)
        ]

    def metadata(self, request: Any) -> dict[str, Any]:
        topics = self.topics
        if request.topics:
            topics = [
                {"name": each.name, "error_code": self.by_name.get(each.name, 3), "partitions": ()}
                for each in request.topics
            ]
        return {
            "brokers": [
                {
                    "node_id": each.node_id,
                    "host": each.host,
                    "port": each.advertised_port or each.port,
                }
                for each in self.brokers
            ],
            "cluster_id": self.cluster_id,
            "controller_id": 1,
            "topics": topics,
        }

    def set(self, name: str, *partitions: Mapping[str, Any], **fields: Any) -> None:
        self.topics = [each for each in self.topics if each["name"] != name]
        topic = {"name": name, "topic_id": ONE, "partitions": partitions}
        self.topics.append(topic | fields)


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    scripted = Scripted()
    scripted.set("t", partition(0))
    with scripted.brokers[0], scripted.brokers[1]:
        yield scripted


@pytest.fixture
def looked(scripted: Scripted) -> Iterator[Source]:
    address = f"127.0.0.1:{scripted.brokers[0].port}"
    config = ClientConfig(bootstrap_servers=address, timeout_ms=60_000)
    source = Source(config, lambda name: True, "one")
    yield source
    source.close()


def test_each_look_asks_another_broker(scripted: Scripted, looked: Source) -> None:
    for _ in range(6):
        looked.look({})
    asked = [len(each.asked(ApiKey.METADATA)) for each in scripted.brokers]
    assert min(asked) >= 2


def test_a_broker_that_does_not_answer_is_left_out(scripted: Scripted, looked: Source) -> None:
    looked.look({})
    scripted.brokers[1].advertised_port = 1
    for _ in range(4):
        assert "t" in looked.look({}).topics


@pytest.mark.parametrize("cluster_id", ["two", None])
def test_another_cluster_is_refused(
    scripted: Scripted, looked: Source, cluster_id: str | None
) -> None:
    scripted.cluster_id = cluster_id
    with pytest.raises(RequestRefused, match="cluster"):
        looked.look({})
    scripted.cluster_id = "one"
    assert "t" in looked.look({}).topics


def test_the_first_cluster_that_is_seen_is_the_one_that_is_followed(scripted: Scripted) -> None:
    address = f"127.0.0.1:{scripted.brokers[0].port}"
    source = Source(ClientConfig(bootstrap_servers=address), lambda name: True)
    assert source.look({}).cluster_id == source.cluster_id == "one"
    scripted.cluster_id = "two"
    with pytest.raises(RequestRefused, match="not one, which was followed"):
        source.look({})
    source.close()


def test_a_topic_that_may_not_be_described_any_more_is_not_deleted(
    scripted: Scripted, looked: Source
) -> None:
    scripted.topics = []
    scripted.by_name["t"] = ErrorCode.topic_authorization_failed
    for _ in range(2 * CONFIRMATIONS):
        found = looked.look({"t": ONE})
        assert not found.deleted
        assert "TOPIC_AUTHORIZATION_FAILED" in found.unreadable["t"]


def test_a_topic_that_one_broker_does_not_know_is_not_deleted(
    scripted: Scripted, looked: Source
) -> None:
    for _ in range(2 * CONFIRMATIONS):
        scripted.topics = []
        assert not looked.look({"t": ONE}).deleted
        scripted.set("t", partition(0))
        assert "t" in looked.look({"t": ONE}).topics


def test_a_broker_that_is_behind_does_not_bring_an_old_topic_back(
    scripted: Scripted, looked: Source
) -> None:
    for _ in range(2 * CONFIRMATIONS):
        scripted.set("t", partition(0), topic_id=OTHER)
        assert "t" not in looked.look({"t": ONE}).topics
        scripted.set("t", partition(0), topic_id=ONE)
        assert looked.look({"t": ONE}).topics["t"].topic_id == ONE


@pytest.mark.parametrize(
    ("name", "partitions"),
    [
        ("../t", [partition(0)]),
        ("t u", [partition(0)]),
        ("gap", [partition(0), partition(2)]),
        ("late", [partition(1)]),
        ("below", [partition(-1), partition(0)]),
        ("none", []),
    ],
)
def test_topics_that_cannot_be_are_named_and_leave_the_others(
    scripted: Scripted, looked: Source, name: str, partitions: list[dict[str, Any]]
) -> None:
    scripted.set(name, *partitions)
    found = looked.look({})
    assert set(found.topics) == {"t"}
    assert set(found.unreadable) == {name}


def test_a_topic_without_leader_is_there(scripted: Scripted, looked: Source) -> None:
    scripted.set("t", partition(0, leader=-1, epoch=-1), error_code=ErrorCode.leader_not_available)
    assert looked.look({}).topics["t"].partitions == (SourcePartition(0, None, None),)


def test_internal_topics_are_not_followed(scripted: Scripted, looked: Source) -> None:
    scripted.set("__share_group_state", partition(0))
    scripted.set(FOLLOWED_OFFSETS, partition(0))
    scripted.set("marked", partition(0), is_internal=True)
    assert set(looked.look({}).topics) == {"t"}


def test_the_groups_of_the_source_are_followed_under_another_name(
    scripted: Scripted, looked: Source
) -> None:
    scripted.set(CONSUMER_OFFSETS, partition(0), is_internal=True)
    found = looked.look({}).topics[FOLLOWED_OFFSETS]
    assert (found.name, len(found.partitions)) == (FOLLOWED_OFFSETS, 1)
    scripted.set("t", partition(0))
    scripted.topics = [each for each in scripted.topics if each["name"] == "t"]
    looks = [looked.look({FOLLOWED_OFFSETS: None}).deleted for _ in range(CONFIRMATIONS)]
    assert looks[-1] == {FOLLOWED_OFFSETS}
    assert not any(looks[:-1])


def test_settings_that_may_not_be_read_are_unknown(scripted: Scripted, looked: Source) -> None:
    assert looked.look({}).topics["t"].settings is None
