"""Clients of clusters whose brokers are Apache Kafka's and horolog's.

Topics have a replica on each broker, and each broker leads one of three partitions.
"""

import itertools
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest
from cluster_faults import ClusterFaults
from cluster_soak import batches_in
from confluent_kafka import Consumer, TopicPartition
from mixed_cluster import PARTITIONS, QUIET, MixedCluster
from patience import eventually
from raw_connection import RawConnection, lookup_fields
from tools.cluster import running_cluster
from tools.peers.kafka import BEFORE_NEWEST, LAST_WITH_OLD_FORMATS, NEWEST, run_tool

from horolog.client import Client
from horolog.clock import SystemClock
from horolog.errors import ErrorCode
from horolog.record import iter_headers
from horolog.wire import ApiKey

NOW_MS = SystemClock().now_ms()
_numbers = itertools.count()


class Kind(NamedTuple):
    """A cluster to try."""

    brokers: str
    peer: str = NEWEST
    controllers: int = 1
    is_dynamic: bool = False


KINDS = (
    Kind("khh"),
    Kind("khh", BEFORE_NEWEST),
    Kind("khh", LAST_WITH_OLD_FORMATS),
    Kind("kkh", controllers=3, is_dynamic=True),
)


@pytest.fixture(
    scope="module", params=KINDS, ids=lambda kind: f"{kind.brokers}-{kind.peer}-{kind.controllers}"
)
def mixed(request: pytest.FixtureRequest) -> Iterator[MixedCluster]:
    kind: Kind = request.param
    settings = {"group.coordinator.rebalance.protocols": "classic,consumer"}
    with running_cluster(
        kind.brokers,
        kind.controllers,
        peer=kind.peer,
        is_dynamic=kind.is_dynamic,
        of_kafka=settings if kind.peer != LAST_WITH_OLD_FORMATS else {},
    ) as cluster:
        yield MixedCluster(cluster)


def is_newer(mixed: MixedCluster) -> bool:
    """Whether it has KIP-848 groups and KIP-890's second flow of transactions."""
    return mixed.cluster.peer != LAST_WITH_OLD_FORMATS


def test_records_that_all_replicas_have_are_read_from_each_leader(
    mixed: MixedCluster, java_client: Any
) -> None:
    topic = mixed.topic("plain", min_insync_replicas="3")
    values = [f"v{number}" for number in range(300)]
    mixed.write(topic, values)
    for partition in range(PARTITIONS):
        told = java_client.ask(
            mixed.cluster,
            "produce",
            topic=topic,
            partition=partition,
            codec="zstd",
            records=[[NOW_MS, None, f"java-{partition}-{it}"] for it in range(50)],
        )
        assert [it["offset"] for it in told["records"]] == list(range(100, 150))
        read = java_client.ask(mixed.cluster, "consume", topic=topic, partition=partition)[
            "records"
        ]
        assert [it["offset"] for it in read] == list(range(150))
        values += [f"java-{partition}-{it}" for it in range(50)]
    for node in range(len(mixed.cluster.nodes)):
        assert sorted(mixed.read(topic, node)) == sorted(values)


def test_transactions_of_the_first_flow_are_whole_on_all_leaders(mixed: MixedCluster) -> None:
    topic, copied = mixed.topic("first"), mixed.topic("copied")
    producer = mixed.producer(transactional_id=f"first-{next(_numbers)}")
    producer.init_transactions(120)
    committed = []
    for number, ends in enumerate(("commit", "abort", "commit", "abort")):
        producer.begin_transaction()
        values = [f"{ends}-{number}-{it}" for it in range(30)]
        for at, value in enumerate(values):
            producer.produce(topic, value, partition=at % PARTITIONS)
        assert producer.flush(120) == 0
        if ends == "commit":
            producer.commit_transaction(120)
            committed += values
        else:
            producer.abort_transaction(120)
    assert eventually(lambda: len(mixed.read(topic, level="read_committed")) == len(committed))
    assert sorted(mixed.read(topic, level="read_committed")) == sorted(committed)
    assert len(mixed.read(topic)) == 120
    # Read, copied and committed with the offsets of a group, so that each is copied once.
    for count in (len(committed), 0):
        copy(mixed, topic, copied, count)
    assert sorted(mixed.read(copied, level="read_committed")) == sorted(committed)


def copy(mixed: MixedCluster, source: str, target: str, count: int) -> None:
    """Copy the next committed records to another topic, in a transaction with their offsets."""
    producer = mixed.producer(transactional_id=f"copies-{target}")
    producer.init_transactions(120)
    consumer = Consumer(
        {
            "bootstrap.servers": mixed.cluster.bootstrap,
            "group.id": f"copies-{target}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            **QUIET,
        }
    )
    places = [TopicPartition(source, it) for it in range(PARTITIONS)]
    for place in (offsets := consumer.committed(places, 120)):
        place.offset = max(place.offset, 0)
    try:
        consumer.assign(offsets)
        producer.begin_transaction()
        for _ in range(count):
            message = consumer.poll(120)
            assert message is not None
            assert message.error() is None
            producer.produce(target, message.value(), partition=message.partition())
        if count == 0:
            assert consumer.poll(2) is None
        producer.send_offsets_to_transaction(
            consumer.position(places), consumer.consumer_group_metadata(), 120
        )
        producer.commit_transaction(120)
    finally:
        consumer.close()


def test_transactions_of_the_second_flow_are_whole_on_all_leaders(
    mixed: MixedCluster, java_client: Any
) -> None:
    topic = mixed.topic("second")
    ends = ["commit", "abort", "commit"]
    for partition in range(PARTITIONS):
        told = java_client.ask(
            mixed.cluster,
            "transact",
            id=f"java-{partition}",
            topic=topic,
            partition=partition,
            transactions=[
                {"end": end, "records": [[NOW_MS, None, f"{end}-{partition}-{number}-{it}"]
                                         for it in range(5)]}
                for number, end in enumerate(ends)
            ],
        )  # fmt: skip
        assert len(told["records"]) == 15
    committed = [
        f"commit-{partition}-{number}-{it}"
        for partition in range(PARTITIONS)
        for number in (0, 2)
        for it in range(5)
    ]
    assert eventually(lambda: len(mixed.read(topic, level="read_committed")) == len(committed))
    assert sorted(mixed.read(topic, level="read_committed")) == sorted(committed)
    # In the second flow each transaction has an epoch of the producer of its own (KIP-890).
    with closing(Client(mixed.cluster.bootstrap, timeout_ms=60_000)) as client:
        for partition in range(PARTITIONS):
            data = client.fetch(topic, partition, 0).records
            epochs = {
                header.producer_epoch for _, header in iter_headers(data) if not header.is_control
            }
            assert len(epochs) == (len(ends) if is_newer(mixed) else 1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_read_all_partitions_once(mixed: MixedCluster, protocol: str) -> None:
    if protocol == "consumer" and not is_newer(mixed):
        pytest.skip("KIP-848 was not ready in 3.9")
    topic = mixed.topic(protocol)
    values = [f"v{number}" for number in range(90)]
    mixed.write(topic, values)
    settings = {
        "bootstrap.servers": mixed.cluster.nodes[-1].address,
        "group.id": f"group-{topic}",
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **QUIET,
    }
    seen: list[str] = []
    members = [Consumer(settings), Consumer(settings)]
    for member in members:
        member.subscribe([topic])

    def took_some() -> bool:
        for member in members:
            for message in member.consume(10, 0.5):
                assert message.error() is None, message.error()
                seen.append(message.value().decode())
                member.commit(message, asynchronous=False)
        return len(set(seen)) == len(values) and all(it.assignment() for it in members)

    assert eventually(took_some), (len(seen), [it.assignment() for it in members])
    for member in members:
        member.close()
    assert set(seen) == set(values)
    # The next member goes on behind what was committed.
    mixed.write(topic, ["later"] * PARTITIONS)
    seen.clear()
    members[:] = [Consumer(settings)]
    members[0].subscribe([topic])
    assert eventually(lambda: took_some() or len(seen) == PARTITIONS)
    members[0].close()
    assert seen == ["later"] * PARTITIONS


def test_lookups_have_the_same_answers_whoever_leads(mixed: MixedCluster) -> None:
    topic = mixed.topic("lookups", index_interval_bytes="100")
    times = [NOW_MS - 100_000 + 10 * it for it in range(200)]
    times[50], times[120] = times[120] - 3, times[40] - 3  # out of order
    producer = mixed.producer(compression_type="lz4", batch_num_messages=7, linger_ms=20)
    for partition in range(PARTITIONS):
        for number, at in enumerate(times):
            producer.produce(topic, f"v{number}", partition=partition, timestamp=at)
    assert producer.flush(120) == 0
    faults = ClusterFaults(mixed.cluster, [topic], 1)
    ids = [node.node_id for node in mixed.cluster.nodes]
    targets = [-1, -2, -3, 0, *range(times[0] - 5, times[-1] + 20, 5)]
    answers: dict[tuple[int, int], dict[int, Any]] = {}
    for turn in range(len(ids)):
        order = ids[turn:] + ids[:turn]
        for partition in range(PARTITIONS):
            at = partition % len(ids)
            faults.move(topic, partition, order[at:] + order[:at])
        assert eventually(lambda: not faults.lags())
        if turn:
            run_tool(
                "leader-election",
                *("--bootstrap-server", mixed.cluster.bootstrap),
                *("--election-type", "preferred", "--all-topic-partitions"),
                peer=mixed.cluster.peer,
                check=False,  # 3.9's tool fails where a partition needs no election
            )
        assert eventually(lambda order=order: mixed.leaders(topic) == order), mixed.leaders(topic)
        for partition, leader in enumerate(order):
            with RawConnection(mixed.cluster.node(leader).address) as connection:
                found = answers.setdefault((partition, leader), {})
                for target in targets:
                    answer = connection.ask(
                        ApiKey.LIST_OFFSETS,
                        7,
                        replica_id=-1,
                        **lookup_fields(topic, {partition: target}),
                    )
                    (its,) = answer.topics[0].partitions
                    assert its.error_code == 0, (leader, target, its)
                    found[target] = (its.offset, its.timestamp)
    for partition in range(PARTITIONS):
        first, *others = (answers[partition, it] for it in ids)
        assert first[-1][0] == len(times)
        for other in others:
            assert other == first


def test_finalised_features_are_the_same_at_each_broker(mixed: MixedCluster) -> None:
    """`kraft.version` of a dynamic quorum is among them, although no image has it."""

    def finalised(address: str) -> dict[str, int]:
        with RawConnection(address) as connection:
            found = connection.ask(ApiKey.API_VERSIONS, 3).finalized_features
        return {feature.name: feature.max_version_level for feature in found}

    at_each = [finalised(node.address) for node in mixed.cluster.nodes]
    assert all(levels == at_each[0] for levels in at_each)
    assert ("kraft.version" in at_each[0]) is mixed.cluster.is_dynamic


def test_delegation_tokens_are_refused_alike(mixed: MixedCluster) -> None:
    for node in mixed.cluster.nodes:
        with RawConnection(node.address) as connection:
            answer = connection.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, owners=None)
        assert answer.error_code == ErrorCode.delegation_token_request_not_allowed
        assert not answer.tokens


def test_files_are_equal_and_taken_by_kafkas_dump(mixed: MixedCluster) -> None:
    """The last test of a cluster: it stops it."""
    topics = [it for it in mixed.admin.list_topics(timeout=30).topics if not it.startswith("__")]
    mixed.cluster.stop()
    nodes = mixed.cluster.nodes
    for topic in topics:
        for partition in range(PARTITIONS):
            first, *others = (batches_in(it.log_dir / f"{topic}-{partition}") for it in nodes)
            for other in others:
                assert other == first, (topic, partition)
    ours = nodes[-1]
    files = [
        str(path)
        for topic in topics
        for path in sorted((ours.log_dir / f"{topic}-0").iterdir())
        if path.suffix in {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    ]
    said = run_tool(
        "dump", "--deep-iteration", "--files", ",".join(files), peer=mixed.cluster.peer
    ).stdout.decode()
    assert "Found timestamp mismatch" not in said
    assert "Mismatches in" not in said
    assert "isvalid: false" not in said
    assert said.count("Dumping ") == len(files)
