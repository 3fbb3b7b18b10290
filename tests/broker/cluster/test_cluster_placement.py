"""Who leads, who is a broker and who coordinates, by the metadata of a cluster."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from horolog.broker.cluster.placement import ClusterPlacement
from horolog.config import Endpoint
from horolog.errors import ErrorCode, RequestRefused
from horolog.metadata import Image
from horolog.metadata.topics import Topic
from horolog.schemas.metadata import (
    BrokerChange,
    BrokerEndpoint,
    PartitionRecord,
    RegisterBroker,
    RemoveTopic,
    TopicRecord,
)
from horolog.storage.names import CONSUMER_OFFSETS
from horolog.wire import REPLICATION, NodeEndpoint

ID, OTHER_ID, OFFSETS_ID = UUID(int=500), UUID(int=501), UUID(int=502)
DIRECTORY, LOST = UUID(int=900), UUID(int=2)
PLAIN, INTERNAL = Endpoint("PLAINTEXT", "", 0), Endpoint("INTERNAL", "", 0)
TOPIC = Topic(name="t", topic_id=ID, partitions=(0, 1, 2))


def registration(node_id: int, *names: str, is_horolog: bool = False) -> RegisterBroker:
    """Broker `node_id` in rack `r` with listeners of these names."""
    endpoints = [BrokerEndpoint(name, f"host{node_id}", 9000 + node_id) for name in names]
    features = ((REPLICATION, 0, 1),) if is_horolog else ()
    return RegisterBroker(
        node_id, False, UUID(int=node_id), 10, endpoints, features, "r", False, False, (DIRECTORY,)
    )


def placed(index: int, replicas: tuple[int, ...], leader: int, **fields: Any) -> PartitionRecord:
    """Partition of `t` in leader epoch 5."""
    record = PartitionRecord(index, ID, replicas, replicas, (), (), leader, 0, 5, 7)
    return record._replace(**fields)


class Cluster:
    """Placement of broker 3 in a cluster of 1 and 2 (Kafka) and 3 (horolog)."""

    def __init__(self) -> None:
        self.image = Image()
        self.served: dict[tuple[str, int], Any] = {}
        partitions: Any = SimpleNamespace(find=lambda *key: self.served.get(key))
        self.placement = ClusterPlacement(3, self, partitions)
        self.apply(
            registration(1, "PLAINTEXT", "INTERNAL"),
            registration(2, "PLAINTEXT"),
            registration(3, "PLAINTEXT", is_horolog=True),
            TopicRecord("t", ID),
            placed(0, (3, 1), 3),
            placed(1, (1, 2, 3), 1),
            placed(2, (2, 9), -1, elr=(2,), last_known_elr=(9,)),
        )

    def apply(self, *records: Any) -> None:
        for record in records:
            self.image.apply(record)

    def serve(
        self,
        index: int,
        *,
        is_following: bool = False,
        epoch: int = 5,
        topic_id: UUID = ID,
        is_replicated: bool = False,
    ) -> Any:
        """Let the log of a partition be here, which leads for no other replica yet."""

        def check_epoch(asked: int) -> None:
            if asked != epoch:
                raise RequestRefused(ErrorCode.fenced_leader_epoch, "of the log")

        log = SimpleNamespace(
            is_following=is_following,
            topic_id=topic_id,
            check_epoch=check_epoch,
        )
        self.served["t", index] = SimpleNamespace(log=log, has_role=not is_replicated)
        return self.served["t", index]

    def refusal(self, index: int, epoch: int = -1, topic: str = "t") -> ErrorCode:
        with pytest.raises(RequestRefused) as refused:
            self.placement.led(topic, index, epoch)
        return refused.value.code


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    return Cluster()


def test_a_partition_is_led_once_image_and_log_say_so(cluster: Cluster) -> None:
    assert cluster.refusal(0) == ErrorCode.not_leader_or_follower, "its log is not open yet"
    cluster.serve(0, is_following=True)
    assert cluster.refusal(0) == ErrorCode.not_leader_or_follower, "its log follows still"
    partition = cluster.serve(0)
    assert cluster.placement.led("t", 0) is partition
    assert cluster.placement.led("t", 0, 5) is partition
    assert cluster.placement.writable(TOPIC, 0) is partition
    assert cluster.refusal(0, 4) == ErrorCode.fenced_leader_epoch
    cluster.apply(placed(0, (3, 1), 1, leader_epoch=6))
    assert cluster.refusal(0) == ErrorCode.not_leader_or_follower, "its log leads still"


def test_a_replicated_log_is_led_once_its_replicas_count(cluster: Cluster) -> None:
    """Else acks=all would wait for none of them while the role is taken."""
    partition = cluster.serve(0, is_replicated=True)
    assert cluster.refusal(0) == ErrorCode.not_leader_or_follower
    partition.has_role = True
    assert cluster.placement.led("t", 0) is partition


def test_a_log_of_an_earlier_topic_of_that_name_is_not_led(cluster: Cluster) -> None:
    cluster.serve(0)
    cluster.apply(RemoveTopic(ID), TopicRecord("t", OTHER_ID))
    cluster.apply(placed(0, (3,), 3, topic_id=OTHER_ID))
    assert cluster.refusal(0) == ErrorCode.not_leader_or_follower
    cluster.serve(0, topic_id=OTHER_ID)
    assert cluster.placement.led("t", 0)


def test_epochs_are_checked_before_who_leads(cluster: Cluster) -> None:
    cluster.serve(1, is_following=True)
    assert cluster.refusal(1) == ErrorCode.not_leader_or_follower
    assert cluster.refusal(1, 5) == ErrorCode.not_leader_or_follower
    assert cluster.refusal(1, 4) == ErrorCode.fenced_leader_epoch
    assert cluster.refusal(1, 6) == ErrorCode.unknown_leader_epoch


def test_what_does_not_exist_is_unknown(cluster: Cluster) -> None:
    assert cluster.refusal(3) == ErrorCode.unknown_topic_or_partition
    assert cluster.refusal(0, topic="u") == ErrorCode.unknown_topic_or_partition


def test_clients_are_sent_to_the_leader_on_the_listener_that_they_use(cluster: Cluster) -> None:
    hint = cluster.placement.leader_hint("t", 1, INTERNAL)
    assert hint is not None
    assert hint.current == (1, 5)
    assert hint.node == NodeEndpoint(1, "host1", 9001, "r")
    assert cluster.placement.leader_hint("t", 0, INTERNAL) is None, "3 has no such listener"
    assert cluster.placement.leader_hint("t", 2, PLAIN) is None
    assert cluster.placement.leader_hint("t", 7, PLAIN) is None
    assert cluster.placement.leader_hint("u", 0, PLAIN) is None


def test_replicas_are_seen_as_by_clients_of_a_listener(cluster: Cluster) -> None:
    look = cluster.placement.partition
    assert look(TOPIC, 1, PLAIN)[:6] == (0, 1, 5, (1, 2, 3), (1, 2, 3), ())
    assert look(TOPIC, 1, INTERNAL).offline == (2, 3), "without that listener"
    of_0 = look(TOPIC, 0, INTERNAL)
    assert (of_0.error, of_0.leader) == (ErrorCode.listener_not_found, -1)
    of_2 = look(TOPIC, 2, PLAIN)
    assert (of_2.error, of_2.leader) == (ErrorCode.leader_not_available, -1)
    assert (of_2.offline, of_2.elr, of_2.last_known_elr) == ((9,), (2,), (9,))
    cluster.apply(BrokerChange(1, 10, 1))
    of_1 = look(TOPIC, 1, PLAIN)
    assert (of_1.error, of_1.leader) == (ErrorCode.leader_not_available, -1), "it is fenced"
    assert of_1.offline == (1,)
    gone = look(Topic(name="u", topic_id=OTHER_ID, partitions=(0,)), 0, PLAIN)
    assert gone.error == ErrorCode.unknown_topic_or_partition


def test_a_replica_in_a_directory_that_its_broker_lost_is_offline(cluster: Cluster) -> None:
    for directory, offline in (
        (DIRECTORY, ()),
        (UUID(int=1), ()),  # not assigned yet
        (LOST, (3,)),
        (UUID(int=901), (3,)),
    ):
        cluster.apply(placed(0, (3, 1), 3, directories=(directory, DIRECTORY)))
        assert cluster.placement.partition(TOPIC, 0, PLAIN).offline == offline


def test_fenced_brokers_are_only_listed_on_request(cluster: Cluster) -> None:
    def ids(listener: Endpoint, *, fenced: bool = False) -> list[int]:
        return [it.node.node_id for it in cluster.placement.brokers(listener, fenced=fenced)]

    assert ids(PLAIN) == [1, 2, 3]
    assert ids(INTERNAL) == [1]
    cluster.apply(BrokerChange(2, 10, 1))
    assert ids(PLAIN) == [1, 3]
    assert ids(PLAIN, fenced=True) == [1, 2, 3]
    assert [it.is_fenced for it in cluster.placement.brokers(PLAIN, fenced=True)] == [0, 1, 0]


def test_changes_go_to_this_broker_while_it_is_alive(cluster: Cluster) -> None:
    assert cluster.placement.controller_id == 3
    cluster.apply(BrokerChange(3, 10, 1))
    assert cluster.placement.controller_id == 1
    cluster.apply(BrokerChange(1, 10, 1), BrokerChange(2, 10, 1))
    assert cluster.placement.controller_id == -1


def test_coordinators_are_brokers_of_kafka_that_lead_the_internal_topic(cluster: Cluster) -> None:
    def refusal() -> str:
        with pytest.raises(RequestRefused) as refused:
            cluster.placement.coordinator(CONSUMER_OFFSETS, "g", PLAIN)
        assert refused.value.code == ErrorCode.coordinator_not_available
        return str(refused.value)

    assert "does not exist" in refusal()
    cluster.apply(TopicRecord(CONSUMER_OFFSETS, OFFSETS_ID))
    cluster.apply(placed(0, (1,), 1, topic_id=OFFSETS_ID))
    node = cluster.placement.coordinator(CONSUMER_OFFSETS, "g", PLAIN)
    assert node == NodeEndpoint(1, "host1", 9001, "r")
    cluster.apply(placed(0, (1,), -1, topic_id=OFFSETS_ID))
    assert "no leader" in refusal()
    cluster.apply(placed(0, (3,), 3, topic_id=OFFSETS_ID))
    assert "a horolog" in refusal()
