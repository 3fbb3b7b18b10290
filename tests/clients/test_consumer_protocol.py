"""librdkafka with `group.protocol=consumer`: the broker assigns partitions (KIP-848)."""

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka_clients import CLIENTS, Sent
from patience import PATIENCE_S, eventually
from running_broker import RunningBroker, a_broker

broker = a_broker(
    "t",
    partitions=4,
    now_ms=None,
    group_consumer_min_heartbeat_interval_ms="20",
    group_consumer_heartbeat_interval_ms="100",
    group_consumer_min_session_timeout_ms="500",
    group_consumer_assignment_interval_ms="0",
)


class Member:
    """A consumer of the group g that a test polls."""

    def __init__(self, broker: RunningBroker, *topics: str, **config: Any) -> None:
        self.has: set[tuple[str, int]] = set()
        self.told: list[tuple[str, frozenset[tuple[str, int]]]] = []
        """Calls of its rebalance callbacks."""
        self.read: list[tuple[Any, Any, Any]] = []
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )
        self.consumer.subscribe(
            list(topics), on_assign=self._given, on_revoke=self._revoked, on_lost=self._lost
        )

    def _given(self, _: Any, partitions: list[TopicPartition]) -> None:
        places = frozenset((tp.topic, tp.partition) for tp in partitions)
        if places:
            self.told.append(("given", places))
        self.has |= places

    def _revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        places = frozenset((tp.topic, tp.partition) for tp in partitions)
        self.told.append(("revoked", places))
        self.has -= places

    def _lost(self, _: Any, partitions: list[TopicPartition]) -> None:
        places = frozenset((tp.topic, tp.partition) for tp in partitions)
        self.told.append(("lost", places))
        self.has -= places

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None:
            assert message.error() is None, message.error()
            self.read.append((message.topic(), message.partition(), message.offset()))


def places(count: int, topic: str = "t") -> set[tuple[str, int]]:
    return {(topic, number) for number in range(count)}


def polled(*members: Member, until: Any) -> bool:
    """Poll all until it holds."""

    def holds() -> bool:
        for member in members:
            member.poll()
        return bool(until())

    return eventually(holds)


def share(*members: Member, of: set[tuple[str, int]]) -> None:
    """Poll until all partitions have an owner, and each member some."""

    def is_shared() -> bool:
        owned = [place for member in members for place in member.has]
        return all(member.has for member in members) and sorted(owned) == sorted(of)

    assert polled(*members, until=is_shared), [member.told for member in members]


@pytest.fixture
def member(broker: RunningBroker) -> Iterator[Any]:
    """Makes members, and closes them at the end."""
    made: list[Member] = []

    def make(*topics: str, **config: Any) -> Member:
        made.append(Member(broker, *(topics or ("t",)), **config))
        return made[-1]

    yield make
    for each in made:
        each.consumer.close()


def produce(broker: RunningBroker, count: int, topic: str = "t", partitions: int = 4) -> None:
    for partition in range(partitions):
        records = [Sent(None, b"%d" % number) for number in range(count)]
        CLIENTS[0].produce(broker.address, topic, records, partition=partition)


def committed(broker: RunningBroker) -> dict[int, int]:
    found = broker.client.offset_fetch("g")
    return {place[1]: each.offset for place, each in found.items() if each is not None}


def test_a_member_gives_up_only_what_another_gets(broker: RunningBroker, member: Any) -> None:
    first = member()
    share(first, of=places(4))
    second = member()
    share(first, second, of=places(4))
    assert first.told == [("given", places(4)), ("revoked", second.has)]
    second.consumer.close()
    share(first, of=places(4))
    assert not [what for what, _ in first.told if what == "lost"]


@pytest.mark.slow  # patterns are resolved again ten seconds after they were
def test_members_with_a_pattern_get_topics_that_are_made_later(
    broker: RunningBroker, member: Any
) -> None:
    names, pattern = member("t"), member("^(t|later-.*)")
    share(names, pattern, of=places(4))
    broker.client.create_topics({"later-1": 2})
    share(names, pattern, of=places(4) | places(2, "later-1"))
    assert places(2, "later-1") <= pattern.has
    broker.client.create_partitions({"t": 6})
    share(names, pattern, of=places(6) | places(2, "later-1"))


def test_a_static_member_that_returns_has_its_partitions_and_nobody_notices(
    broker: RunningBroker, member: Any
) -> None:
    first, second = member(group_instance_id="1"), member(group_instance_id="2")
    share(first, second, of=places(4))
    had, told = set(second.has), list(first.told)
    second.consumer.close()
    again = member(group_instance_id="2")
    assert polled(first, again, until=lambda: again.has == had)
    assert first.told == told


def test_offsets_are_committed_by_each_way_and_kept_over_a_restart(
    broker: RunningBroker, member: Any
) -> None:
    produce(broker, 10)
    reader = member()
    assert polled(reader, until=lambda: len(reader.read) == 40)
    reader.consumer.commit(asynchronous=False)
    assert committed(broker) == dict.fromkeys(range(4), 10)
    at = TopicPartition("t", 0, 7, leader_epoch=0, metadata="by epoch")
    reader.consumer.commit(offsets=[at], asynchronous=True)
    assert polled(reader, until=lambda: committed(broker)[0] == 7)
    broker.restart(crash=True)
    reader.consumer.commit(offsets=[TopicPartition("t", 1, 8)], asynchronous=False)
    (found,) = reader.consumer.committed([TopicPartition("t", 0)], PATIENCE_S)
    assert (found.offset, found.metadata, found.leader_epoch) == (7, "by epoch", 0)
    assert committed(broker) == {0: 7, 1: 8, 2: 10, 3: 10}
    assert [what for what, _ in reader.told] == ["given"]


def test_a_member_seeks_and_pauses(broker: RunningBroker, member: Any) -> None:
    produce(broker, 5)
    reader = member()
    assert polled(reader, until=lambda: len(reader.read) == 20)
    reader.consumer.pause([TopicPartition("t", number) for number in (0, 1)])
    reader.consumer.seek(TopicPartition("t", 2, 1))
    produce(broker, 1)
    assert polled(reader, until=lambda: len(reader.read) == 20 + 5 + 1)
    assert {place[1] for place in reader.read[20:]} == {2, 3}
    reader.consumer.resume([TopicPartition("t", number) for number in (0, 1)])
    assert polled(reader, until=lambda: len(reader.read) == 20 + 5 + 1 + 2)


def test_offsets_in_a_transaction_name_the_member(broker: RunningBroker, member: Any) -> None:
    produce(broker, 3)
    reader = member()
    assert polled(reader, until=lambda: len(reader.read) == 12)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.address, "transactional.id": "copy"}
    )
    producer.init_transactions()
    metadata = reader.consumer.consumer_group_metadata()
    for number, end in ((0, producer.commit_transaction), (1, producer.abort_transaction)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition("t", number, 3)], metadata)
        end()
    assert polled(reader, until=lambda: committed(broker) == {0: 3})
    other = member()
    share(reader, other, of=places(4))
    reader.consumer.close()
    share(other, of=places(4))
    producer.begin_transaction()
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        producer.send_offsets_to_transaction([TopicPartition("t", 0, 2)], metadata)
    assert refused.value.args[0].txn_requires_abort()
    producer.abort_transaction()
    assert committed(broker) == {0: 3}


@pytest.mark.slow  # it is missed for a whole session, 45 s
def test_a_member_that_does_not_poll_leaves_and_joins_again(
    broker: RunningBroker, member: Any
) -> None:
    busy, other = member(max_poll_interval_ms=1000), member()
    share(busy, other, of=places(4))
    lost = frozenset(busy.has)
    share(other, of=places(4))
    with pytest.raises(AssertionError, match="_MAX_POLL_EXCEEDED"):
        polled(busy, until=lambda: False)
    share(busy, other, of=places(4))
    assert ("lost", lost) in busy.told


def test_the_admin_knows_groups_of_both_types(broker: RunningBroker, member: Any) -> None:
    reader = member()
    share(reader, of=places(4))
    produce(broker, 1)
    CLIENTS[1].consume(broker.address, "t", 1, group="classic")
    admin = AdminClient({"bootstrap.servers": broker.address})
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(PATIENCE_S)
    assert [group.group_id for group in listed.valid] == ["g"]
    states = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(PATIENCE_S)
    assert [group.group_id for group in states.valid] == ["classic"]
    described = admin.describe_consumer_groups(["g"])["g"].result(PATIENCE_S)
    assert (described.type, described.state) == (
        ConsumerGroupType.CONSUMER,
        ConsumerGroupState.STABLE,
    )
    (found,) = described.members
    assert {(tp.topic, tp.partition) for tp in found.assignment.topic_partitions} == reader.has
    with pytest.raises(confluent_kafka.KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["g"])["g"].result(PATIENCE_S)
    reader.consumer.close()
    admin.delete_consumer_groups(["g"])["g"].result(PATIENCE_S)
    assert broker.client.groups.names() == ["classic"]
