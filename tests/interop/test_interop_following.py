"""A broker of ours that follows an Apache Kafka: the same offsets, leader epochs and bytes."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from following import batches_of, status_of
from patience import PATIENCE_S, eventually
from running_broker import MakeBroker, RunningBroker
from tools.peers.kafka import LAST_OF_2, LAST_WITH_OLD_FORMATS, NEWEST, Kafka, zookeeper

from horolog.client import LATEST, Client
from horolog.clock import SystemClock
from horolog.errors import HorologError
from horolog.record import Codec, LogRecord, build_batch


class Source(NamedTuple):
    """An Apache Kafka and a client of it."""

    kafka: Kafka
    client: Client


@pytest.fixture(params=[NEWEST, LAST_WITH_OLD_FORMATS, LAST_OF_2])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Source]:
    with ExitStack() as stack:
        more: dict[str, Any] = {}
        if request.param == LAST_OF_2:
            more["zookeeper"] = stack.enter_context(zookeeper(tmp_path / "zookeeper"))
        settings = {"log.retention.ms": "-1", "log.cleaner.backoff.ms": "200"}
        kafka = Kafka(tmp_path / "kafka", peer=request.param, settings=settings, **more)
        stack.enter_context(kafka)
        client = stack.enter_context(client_of(kafka.bootstrap))
        yield Source(kafka, client)


def client_of(address: str) -> Client:
    return Client(address, timeout_ms=int(PATIENCE_S * 1000))


def batch(number: int, size: int = 100, count: int = 5) -> bytes:
    now_ms = SystemClock().now_ms()
    records = [
        LogRecord(now_ms + each, b"%d" % (each % 3), os.urandom(size)) for each in range(count)
    ]
    return build_batch(records, codec=tuple(Codec)[number % 5])


def fill(client: Client, topic: str, count: int, partition: int = 0, *, size: int = 100) -> None:
    for number in range(count):
        client.produce(topic, partition, batch(number, size))


def is_led(client: Client, topic: str) -> bool:
    """Whether a broker that was started leads again: under ZooKeeper it is told of that later."""
    try:
        client.list_offsets({(topic, 0): LATEST})
    except HorologError:
        return False
    return True


def is_followed(
    shadow: RunningBroker, client: Client, topic: str, partitions: int = 1, start: int = 0
) -> bool:
    """Whether all that the source has is here, byte by byte."""
    for partition in range(partitions):

        def are_equal(partition: int = partition) -> bool:
            if shadow.broker.partitions.find(topic, partition) is None:
                return False
            theirs = batches_of(client, topic, partition, start)
            return batches_of(shadow.client, topic, partition, start) == theirs

        assert eventually(are_equal), status_of(shadow, topic, partition)
    return True


def test_a_kafka_is_followed_byte_by_byte(source: Source, make_broker: MakeBroker) -> None:
    kafka, client = source
    client.create_topics({"t": 3, "stamped": 1}, configs={"segment.bytes": str(1 << 20)})
    fill(client, "t", 60, size=20_000)
    fill(client, "t", 5, 2)
    shadow = make_broker(horolog_follow=kafka.bootstrap, log_retention_ms="-1")
    assert eventually(lambda: shadow.broker.partitions.find("t", 2) is not None)
    assert is_followed(shadow, client, "t", 3)
    files = {path.name: path.read_bytes() for path in sorted((kafka.log_dir / "t-0").glob("*.log"))}
    assert len(files) > 1
    ours = {path.name: path.read_bytes() for path in (shadow.log_dir / "t-0").glob("*.log")}
    assert ours == files, "segments begin alike"

    produce_in_transactions(kafka.bootstrap, "t")
    assert is_followed(shadow, client, "t", 3)
    assert_same_transactions(client, shadow.client)

    if kafka.peer == LAST_OF_2:
        kafka.stop()  # ZooKeeper would take it for alive for a while
    else:
        kafka.kill()
    kafka.start()
    assert eventually(lambda: is_led(client, "t"))
    fill(client, "t", 10)
    assert is_followed(shadow, client, "t", 3)
    before = shadow.log("t").epochs.entries
    shadow.restart(crash=True)
    fill(client, "t", 10)
    assert is_followed(shadow, client, "t", 3)
    assert shadow.log("t").epochs.entries[: len(before)] == before

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    (done,) = admin.delete_records([TopicPartition("t", 0, 120)]).values()
    done.result(PATIENCE_S)
    fill(client, "t", 1)
    assert is_followed(shadow, client, "t", start=120)
    assert shadow.log("t").log_start_offset == 0, "what the source deletes stays"
    client.delete_topics(["stamped"])
    assert eventually(lambda: shadow.broker.partitions.find("stamped", 0) is None)


def produce_in_transactions(address: str, topic: str) -> None:
    """One that is committed and one that is aborted, by librdkafka."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": "of-following"})
    producer.init_transactions(PATIENCE_S)
    for ends in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(20):
            producer.produce(topic, b"v%d" % number, partition=1)
        producer.flush(PATIENCE_S)
        ends(PATIENCE_S)


def assert_same_transactions(theirs: Client, ours: Client) -> None:
    committed = {"read_committed": True, "max_wait_ms": 0, "max_bytes": 64 << 20}
    end = ours.list_offsets({("t", 1): LATEST}, read_committed=True)["t", 1]
    assert end == theirs.list_offsets({("t", 1): LATEST}, read_committed=True)["t", 1]
    aborted = [each.fetch("t", 1, 0, **committed).aborted for each in (theirs, ours)]
    assert sorted(aborted[0]) == sorted(aborted[1])
    assert aborted[0]


def _size_of(log_dir: Path) -> int:
    """Of the segments of a log, in bytes; of a log that changes meanwhile, asked again."""
    while True:
        try:
            return sum(path.stat().st_size for path in log_dir.glob("*.log"))
        except FileNotFoundError:
            continue


def test_a_topic_that_kafka_compacts_is_followed(source: Source, make_broker: MakeBroker) -> None:
    kafka, client = source
    client.create_topics(
        {"compacted": 1},
        configs={
            "cleanup.policy": "compact",
            "segment.ms": "1",
            "min.cleanable.dirty.ratio": "0.01",
        },
    )
    fill(client, "compacted", 40)
    log_dir = kafka.log_dir / "compacted-0"
    size = _size_of(log_dir)
    assert eventually(lambda: _size_of(log_dir) < size / 2)
    shadow = make_broker(horolog_follow=kafka.bootstrap)
    fill(client, "compacted", 1)
    end = client.list_offsets({("compacted", 0): LATEST})["compacted", 0]
    assert end is not None

    def reaches() -> bool:
        found = shadow.broker.partitions.find("compacted", 0)
        return found is not None and found.log.high_watermark == end.offset

    assert eventually(reaches), status_of(shadow, "compacted")
    shadow.run(shadow.service.background_tasks.run_retention())
    assert batches_of(shadow.client, "compacted")[-1] == batches_of(client, "compacted")[-1]


# --- leaders that move and die ------------------------------------------------------------

SESSIONS = {"broker.session.timeout.ms": "9000", "log.retention.ms": "-1"}


class Cluster(NamedTuple):
    """Three brokers of which the first is the controller and leads nothing here."""

    kafkas: dict[int, Kafka]
    client: Client

    @property
    def address(self) -> str:
        return ",".join(kafka.bootstrap for kafka in self.kafkas.values())

    def create(self, topic: str, *replicas: int, **settings: str) -> None:
        """A topic of one partition with replicas where they are asked for."""
        assert eventually(lambda: len(self.client.metadata().brokers) == 3)
        new = NewTopic(topic, 1, replica_assignment=[[*replicas]], config=settings)
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([new])[topic].result(PATIENCE_S)

    def leader(self, topic: str) -> int | None:
        try:
            found = self.client.metadata([topic]).topics[topic].partitions
        except HorologError:
            return None
        return found[0].leader if found else None

    def isr(self, topic: str) -> set[int]:
        return set(self.client.metadata([topic]).topics[topic].partitions[0].isr)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        first = stack.enter_context(Kafka(tmp_path / "one", settings=SESSIONS))
        kafkas = {1: first}
        for number in (2, 3):
            kafkas[number] = first.another(tmp_path / str(number), number)
            kafkas[number].start()
            stack.callback(kafkas[number].kill)
        yield Cluster(kafkas, stack.enter_context(client_of(first.bootstrap)))


def until(happens: Callable[[], bool], cluster: Cluster) -> None:
    assert eventually(happens), [kafka.tail() for kafka in cluster.kafkas.values()]


def test_leaders_that_are_killed_and_started_again_are_followed(
    cluster: Cluster, make_broker: MakeBroker
) -> None:
    cluster.create("t", 2, 3)
    shadow = make_broker(horolog_follow=cluster.address, log_retention_ms="-1")
    for victim in (2, 3, 2):
        until(lambda: cluster.isr("t") == {2, 3}, cluster)
        fill(cluster.client, "t", 20)
        cluster.kafkas[victim].kill()
        until(lambda victim=victim: cluster.leader("t") == 5 - victim, cluster)  # type: ignore[misc]
        fill(cluster.client, "t", 20)
        cluster.kafkas[victim].start()
        fill(cluster.client, "t", 20)
    assert is_followed(shadow, cluster.client, "t")
    assert len(shadow.log("t").epochs.entries) > 1


def test_an_unclean_election_cuts_off_what_the_new_leader_never_had(
    cluster: Cluster, make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create("t", 2, 3, **{"unclean.leader.election.enable": "true"})
    shadow = make_broker(horolog_follow=cluster.address, log_retention_ms="-1")
    until(lambda: cluster.isr("t") == {2, 3}, cluster)
    fill(cluster.client, "t", 10)
    cluster.kafkas[3].kill()
    until(lambda: cluster.isr("t") == {2}, cluster)
    fill(cluster.client, "t", 10)
    assert is_followed(shadow, cluster.client, "t")
    assert shadow.log("t").log_end_offset == 100
    cluster.kafkas[2].kill()
    until(lambda: cluster.leader("t") is None, cluster)
    cluster.kafkas[3].start()
    until(lambda: cluster.leader("t") == 3, cluster)
    fill(cluster.client, "t", 3)
    assert is_followed(shadow, cluster.client, "t")
    assert shadow.log("t").log_end_offset < 100
    assert "parts from the one here" in caplog.text
    cluster.kafkas[2].start()
    until(lambda: cluster.isr("t") == {2, 3}, cluster)
    fill(cluster.client, "t", 3)
    assert is_followed(shadow, cluster.client, "t")
