"""Changes of a cluster while one of its brokers is down, and on all brokers at once.

Node 1 is Apache Kafka's broker, 2 and 3 are horolog's.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from cluster_faults import ClusterFaults
from cluster_soak import batches_in
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from mixed_cluster import MixedCluster
from patience import eventually
from raw_connection import RawConnection, produce_fields
from tools.cluster import ServerProcess, running_cluster
from tools.peers.kafka import run_tool

from horolog.clock import SystemClock
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

NOW_MS = SystemClock().now_ms()
BUFFER = bytes(3000)
TOO_LARGE, NOT_ENOUGH_REPLICAS = 10, 19
UNKNOWN_TOPIC = 3


@pytest.fixture(scope="module")
def mixed() -> Iterator[MixedCluster]:
    with running_cluster(
        "khh",
        settings={"auto.create.topics.enable": "false"},  # clients ask for what is deleted
        of_controllers={"broker.session.timeout.ms": "6000"},
    ) as cluster:
        yield MixedCluster(cluster)


@pytest.fixture(autouse=True)
def all_run(mixed: MixedCluster) -> Iterator[None]:
    """Let the next test find all brokers alive."""
    yield
    for node in mixed.cluster.nodes:
        if not node.is_running:
            node.kill()
            node.start()
    mixed.cluster.wait_until_ready()


def values_of(name: str, count: int) -> list[str]:
    return [f"{name}-{it}" for it in range(count)]


def await_fenced(mixed: MixedCluster, node: ServerProcess) -> None:
    """Wait until the controllers know that a broker is gone."""
    assert eventually(lambda: node.node_id not in mixed.admin.list_topics(timeout=60).brokers)


def await_alive(mixed: MixedCluster) -> None:
    mixed.cluster.wait_for_brokers({it.node_id for it in mixed.cluster.nodes if it.is_running})


def await_equal_files(mixed: MixedCluster, topic: str, partitions: int, ids: Sequence[int]) -> None:
    """Wait until the logs of some brokers are equal, byte for byte."""

    def are_equal() -> bool:
        for partition in range(partitions):
            first, *others = (
                batches_in(mixed.cluster.node(it).log_dir / f"{topic}-{partition}") for it in ids
            )
            if not first or any(other != first for other in others):
                return False
        return True

    assert eventually(are_equal, 60), (topic, ids)


def read_from(mixed: MixedCluster, topic: str, node_id: int, partitions: int = 3) -> list[str]:
    """All values, while that broker leads all partitions; it has to be a replica in sync."""
    faults = ClusterFaults(mixed.cluster, [topic], 1)
    others = {it for isr in mixed.isrs(topic) for it in isr} - {node_id}
    for partition in range(partitions):
        faults.move(topic, partition, [node_id, *sorted(others)])
    mixed.await_whole(topic)
    faults.elect_preferred()
    assert eventually(lambda: mixed.leaders(topic) == [node_id] * partitions)
    return sorted(mixed.read(topic))


def directories_of(node: ServerProcess, topic: str) -> list[str]:
    return sorted(it.name for it in node.log_dir.iterdir() if it.name.startswith(f"{topic}-"))


def produce_errors(mixed: MixedCluster, topic: str, record: LogRecord) -> list[int]:
    """What each leader says to a record that all replicas are to have."""
    errors = []
    for partition, leader in enumerate(mixed.leaders(topic)):
        with RawConnection(mixed.cluster.node(leader).address) as connection:
            answer = connection.ask(
                ApiKey.PRODUCE,
                9,
                **produce_fields(
                    topic, {partition: build_batch([record])}, acks=-1, timeout_ms=20_000
                ),
            )
            errors.append(answer.responses[0].partition_responses[0].error_code)
    return errors


@pytest.mark.parametrize("node_id", [2, 1])
def test_a_wiped_directory_comes_back_as_an_empty_replica(
    mixed: MixedCluster, node_id: int
) -> None:
    topic = mixed.topic("wiped")
    values = values_of("before", 300)
    mixed.write(topic, values)
    node = mixed.cluster.node(node_id)
    node.stop()
    shutil.rmtree(node.log_dir)
    mixed.cluster.write_meta(node, is_new=True)
    mixed.write(topic, more := values_of("meanwhile", 30))
    node.start()
    await_alive(mixed)
    mixed.await_whole(topic)
    mixed.write(topic, last := values_of("after", 30))
    assert read_from(mixed, topic, node_id) == sorted(values + more + last)
    await_equal_files(mixed, topic, 3, (1, 2, 3))


def test_a_topic_that_was_made_again_meanwhile_has_the_new_records_alone(
    mixed: MixedCluster,
) -> None:
    topic = mixed.topic("again")
    mixed.write(topic, values_of("old", 90))
    node = mixed.cluster.node(2)
    node.kill()
    await_fenced(mixed, node)
    mixed.admin.delete_topics([topic])[topic].result(60)
    again = NewTopic(topic, 3, replica_assignment=[[1, 2, 3], [3, 1, 2], [2, 3, 1]])

    def is_made() -> bool:
        with suppress(KafkaException):
            mixed.admin.create_topics([again])[topic].result(60)
            return True
        return False

    assert eventually(is_made)
    assert eventually(lambda: -1 not in mixed.leaders(topic))
    mixed.write(topic, values := values_of("new", 9))
    node.start()
    await_alive(mixed)
    mixed.await_whole(topic)
    assert read_from(mixed, topic, 2) == sorted(values)
    await_equal_files(mixed, topic, 3, (1, 2, 3))
    strays = [it for it in directories_of(node, topic) if it.endswith("-stray")]
    assert len(strays) == 3


def test_a_replica_that_was_moved_away_meanwhile_is_set_aside(mixed: MixedCluster) -> None:
    topic = mixed.topic("away", [[1, 2]] * 3)
    mixed.write(topic, values := values_of("v", 90))
    node = mixed.cluster.node(2)
    node.kill()
    await_fenced(mixed, node)
    faults = ClusterFaults(mixed.cluster, [topic], 1)
    for partition in range(3):
        faults.move(topic, partition, [1, 3])
    assert eventually(lambda: mixed.isrs(topic) == [{1, 3}] * 3)
    node.start()
    await_alive(mixed)
    found = directories_of(node, topic)
    assert len(found) == 3
    assert all(it.endswith("-stray") for it in found)
    mixed.write(topic, more := values_of("more", 9))
    for partition in range(3):
        faults.move(topic, partition, [1, 2])
    assert eventually(lambda: mixed.isrs(topic) == [{1, 2}] * 3)
    assert read_from(mixed, topic, 2) == sorted(values + more)
    await_equal_files(mixed, topic, 3, (1, 2))
    assert eventually(lambda: not [it for it in directories_of(mixed.cluster.node(3), topic)
                                   if not it.endswith("-delete")])  # fmt: skip


@pytest.mark.parametrize("node_id", [3, 1])
def test_a_topic_that_was_deleted_meanwhile_is_not_served(
    mixed: MixedCluster, node_id: int
) -> None:
    topic = mixed.topic("deleted")
    mixed.write(topic, values_of("v", 30))
    node = mixed.cluster.node(node_id)
    node.kill()
    await_fenced(mixed, node)
    mixed.admin.delete_topics([topic])[topic].result(60)
    node.start()
    await_alive(mixed)
    left = [f"{topic}-{it}" for it in range(3)]
    for its in mixed.cluster.nodes:
        assert eventually(lambda its=its: not set(left) & set(directories_of(its, topic)))
        with RawConnection(its.address) as connection:
            (told,) = connection.ask(ApiKey.METADATA, 12, topics=[{"name": topic}]).topics
            assert told.error_code == UNKNOWN_TOPIC


@pytest.mark.parametrize("pair", [(2, 3), (1, 2), (2, 1)], ids=["h-to-h", "k-to-h", "h-to-k"])
def test_an_unclean_leader_decides_what_is_there(
    mixed: MixedCluster, pair: tuple[int, int]
) -> None:
    former, later = (mixed.cluster.node(it) for it in pair)
    topic = mixed.topic("unclean", [list(pair)])
    mixed.write(topic, values := values_of("both", 60), 1)
    later.kill()
    assert eventually(lambda: mixed.isrs(topic) == [{former.node_id}])
    mixed.write(topic, values_of("lost", 20), 1)
    former.kill()
    await_fenced(mixed, former)
    later.start()
    await_alive(mixed)
    assert mixed.leaders(topic) == [-1]
    run_tool(
        "leader-election",
        *("--bootstrap-server", later.address),
        *("--election-type", "unclean", "--topic", topic, "--partition", "0"),
    )
    assert eventually(lambda: mixed.leaders(topic) == [later.node_id])
    mixed.write(topic, other := values_of("other", 5), 1)
    former.start()
    await_alive(mixed)
    mixed.await_whole(topic)
    mixed.write(topic, last := values_of("last", 5), 1)
    assert sorted(mixed.read(topic)) == sorted(values + other + last)
    assert read_from(mixed, topic, former.node_id, 1) == sorted(values + other + last)
    await_equal_files(mixed, topic, 1, pair)


@pytest.mark.parametrize("replicas", [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
def test_records_are_deleted_while_a_follower_is_down(
    mixed: MixedCluster, replicas: tuple[int, int, int]
) -> None:
    topic = mixed.topic("shortened", [list(replicas)])
    mixed.write(topic, values := values_of("v", 100), 1)
    down = mixed.cluster.node(replicas[1])
    down.kill()
    await_fenced(mixed, down)
    place = TopicPartition(topic, 0, 50)
    told = mixed.admin.delete_records([place], request_timeout=60)[place].result(60)
    assert told.low_watermark == 50
    down.start()
    await_alive(mixed)
    mixed.await_whole(topic)
    assert read_from_start(mixed, topic) == values[50:]
    for node_id in replicas[1:]:
        faults = ClusterFaults(mixed.cluster, [topic], 1)
        faults.move(topic, 0, [node_id, *(it for it in replicas if it != node_id)])
        mixed.await_whole(topic)
        faults.elect_preferred()
        assert eventually(lambda node_id=node_id: mixed.leaders(topic) == [node_id])
        # Followers learn of it by their next fetch.
        assert eventually(lambda: start_of(mixed, topic) == 50), (node_id, start_of(mixed, topic))
        assert read_from_start(mixed, topic) == values[50:]


def start_of(mixed: MixedCluster, topic: str) -> int:
    place = TopicPartition(topic, 0)
    found: list[int] = []

    def is_told() -> bool:
        with suppress(KafkaException):  # it may ask who led before
            (told,) = mixed.admin.list_offsets({place: OffsetSpec.earliest()}).values()
            found.append(int(told.result(60).offset))
        return bool(found)

    assert eventually(is_told)
    return found[0]


def read_from_start(mixed: MixedCluster, topic: str) -> list[str]:
    return mixed.read(topic, start=start_of(mixed, topic))


def test_partitions_that_are_added_are_led_and_replicated(mixed: MixedCluster) -> None:
    topic = mixed.topic("grown")
    mixed.write(topic, values := values_of("v", 30))
    added = NewPartitions(topic, 6, replica_assignment=[[2, 1, 3], [3, 2, 1], [1, 3, 2]])
    mixed.admin.create_partitions([added])[topic].result(60)
    assert eventually(lambda: mixed.leaders(topic) == [1, 2, 3, 2, 3, 1])
    mixed.write(topic, more := values_of("more", 60), 6)
    mixed.await_whole(topic)
    for node in range(3):
        assert sorted(mixed.read(topic, node)) == sorted(values + more)


def test_settings_of_a_topic_count_on_each_leader(mixed: MixedCluster) -> None:
    topic = mixed.topic("altered")
    small, large = LogRecord(NOW_MS - 9000, None, b"v"), LogRecord(NOW_MS, None, BUFFER)
    assert produce_errors(mixed, topic, large) == [0, 0, 0]
    set_of(mixed, topic, **{"max.message.bytes": "1000", "message.timestamp.type": "LogAppendTime"})
    assert eventually(lambda: produce_errors(mixed, topic, large) == [TOO_LARGE] * 3)
    assert produce_errors(mixed, topic, small) == [0, 0, 0]
    for partition in range(3):
        place = TopicPartition(topic, partition)
        (found,) = mixed.admin.list_offsets({place: OffsetSpec.max_timestamp()}).values()
        assert found.result(60).timestamp > NOW_MS
    mixed.await_whole(topic)
    await_equal_files(mixed, topic, 3, (1, 2, 3))
    set_of(mixed, topic, **{"max.message.bytes": None, "min.insync.replicas": "3"})
    assert eventually(lambda: produce_errors(mixed, topic, large) == [0, 0, 0])
    node = mixed.cluster.node(3)
    node.stop()
    assert eventually(lambda: 3 not in mixed.leaders(topic))
    assert eventually(lambda: mixed.isrs(topic) == [{1, 2}] * 3)
    assert produce_errors(mixed, topic, small) == [NOT_ENOUGH_REPLICAS] * 3
    set_of(mixed, topic, **{"min.insync.replicas": "2"})
    assert eventually(lambda: produce_errors(mixed, topic, small) == [0, 0, 0])


def set_of(mixed: MixedCluster, topic: str, **values: Any) -> None:
    """Set settings of a topic, or remove those that are None."""
    entries = [
        ConfigEntry(
            name,
            value,
            incremental_operation=AlterConfigOpType.DELETE
            if value is None
            else AlterConfigOpType.SET,
        )
        for name, value in values.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    mixed.admin.incremental_alter_configs([resource])[resource].result(60)
