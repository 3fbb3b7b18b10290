"""A shadow of an Apache Kafka leads in its place: stock clients continue where they were."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from following import is_caught_up
from patience import PATIENCE_S, eventually
from raw_connection import RawConnection
from running_broker import MakeBroker, RunningBroker
from tools.peers.kafka import LAST_WITH_OLD_FORMATS, NEWEST, Kafka
from transactional import Producer as FlowProducer

from horolog.client import LATEST, Client, CommittedOffset, ResourceType
from horolog.clock import SystemClock
from horolog.errors import ErrorCode
from horolog.record import AbortedTransactions, iter_headers
from horolog.storage import CONSUMER_OFFSETS, FOLLOWED_OFFSETS, TRANSACTION_STATE
from horolog.wire import FOLLOWING, ApiKey


@pytest.fixture(params=[NEWEST, LAST_WITH_OLD_FORMATS])
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kafka]:
    settings = {"log.retention.ms": "-1", "transaction.max.timeout.ms": "900000"}
    with Kafka(tmp_path / "kafka", peer=request.param, settings=settings) as kafka:
        yield kafka


@pytest.fixture
def client(kafka: Kafka) -> Iterator[Client]:
    with closing(Client(kafka.bootstrap, timeout_ms=int(PATIENCE_S * 1000))) as client:
        yield client


def send(producer: Producer, topic: str, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def read(address: str, group: str, count: int, *, commit: bool = True) -> list[int]:
    """The numbers that a group reads next, of committed transactions only."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    with closing(consumer):
        found = consumer.committed([TopicPartition("t", 0)], PATIENCE_S)
        start = max(found[0].offset, 0)
        consumer.assign([TopicPartition("t", 0, start)])
        numbers: list[int] = []
        while len(numbers) < count:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, numbers
            assert message.error() is None, message.error()
            numbers.append(int(message.value()))
        if commit:
            end = TopicPartition("t", 0, message.offset() + 1)
            consumer.commit(offsets=[end], asynchronous=False)
        return numbers


def offset_of(shadow: RunningBroker, group: str) -> int | None:
    found = shadow.client.offset_fetch(group).get(("t", 0))
    return None if found is None else found.offset


def groups_are_here(shadow: RunningBroker, client: Client) -> bool:
    """Whether all records of the source's groups are here, soon."""
    theirs = client.metadata([CONSUMER_OFFSETS]).topics[CONSUMER_OFFSETS].partitions
    ends = client.list_offsets({(CONSUMER_OFFSETS, index): LATEST for index in theirs})

    def reaches() -> bool:
        for (_, index), end in ends.items():
            here = shadow.broker.partitions.find(FOLLOWED_OFFSETS, index)
            if end is None or here is None or here.log.high_watermark < end.offset:
                return False
        return True

    return eventually(reaches)


def status(shadow: RunningBroker) -> Any:
    return shadow.client.ask(FOLLOWING)


def is_here(shadow: RunningBroker, client: Client, topic: str) -> bool:
    """Whether all that the source has of a partition can be read here, soon."""
    end = client.list_offsets({(topic, 0): LATEST})[topic, 0]
    assert end is not None

    def reaches() -> bool:
        found = shadow.broker.partitions.find(topic, 0)
        return found is not None and found.log.high_watermark >= end.offset

    return eventually(reaches)


def test_clients_of_a_kafka_go_on_with_the_shadow_that_is_promoted(
    kafka: Kafka, client: Client, make_broker: MakeBroker
) -> None:
    client.create_topics({"t": 2}, configs={"retention.ms": "-1", "min.insync.replicas": "1"})
    client.create_topics({"compacted": 1}, configs={"cleanup.policy": "compact"})
    ids = {"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True}
    with_ids = Producer(ids)
    send(with_ids, "t", 100)
    with_ids.produce("compacted", b"v", key=b"k")
    assert with_ids.flush(PATIENCE_S) == 0
    assert not client.offset_fetch("g"), "its coordinator has begun"
    assert read(kafka.bootstrap, "g", 40) == [*range(40)]
    committed = Producer({**ids, "transactional.id": "committed"})
    committed.init_transactions(PATIENCE_S)
    committed.begin_transaction()
    send(committed, "t", 5, 100)
    committed.commit_transaction(PATIENCE_S)
    unended = Producer({**ids, "transactional.id": "unended", "transaction.timeout.ms": 900_000})
    unended.init_transactions(PATIENCE_S)
    unended.begin_transaction()
    send(unended, "t", 3, 1000)

    shadow = make_broker(horolog_follow=kafka.bootstrap, node_id="7")
    assert is_here(shadow, client, "t")
    assert is_here(shadow, client, "compacted")
    theirs = client.metadata(["t"]).topics["t"]
    here = shadow.broker.topics.named("t")
    assert (here.topic_id, here.partitions) == (theirs.topic_id, (0, 1))
    assert here.overrides["retention.ms"] == "-1"
    assert shadow.broker.topics.named("compacted").overrides["cleanup.policy"] == "compact"
    assert eventually(lambda: offset_of(shadow, "g") == 40)
    assert read(shadow.address, "other", 105, commit=False) == [*range(105)]

    # One that has the shadow's address already: it retries until the shadow leads.
    waiting = Producer({"bootstrap.servers": shadow.address, "enable.idempotence": True})
    delivered: list[Any] = []
    waiting.produce("t", b"2000", partition=0, on_delivery=lambda error, _: delivered.append(error))
    flushing = threading.Thread(target=waiting.flush, args=(PATIENCE_S,))
    flushing.start()
    kafka.kill()
    shadow.client.promote(None)
    flushing.join(PATIENCE_S)
    assert delivered == [None]
    assert status(shadow).is_ended

    assert read(shadow.address, "g", 66) == [*range(40, 105), 2000], "the open one is aborted"
    more = Producer({"bootstrap.servers": shadow.address, "enable.idempotence": True})
    send(more, "t", 2, 3000)
    assert read(shadow.address, "g", 2) == [3000, 3001]
    epochs = [header.leader_epoch for header in shadow.headers("t")]
    assert epochs[-1] > epochs[0]
    assert epochs == sorted(epochs)
    shadow.restart(crash=True)
    send(more, "t", 1, 4000)
    assert read(shadow.address, "g", 1) == [4000]


class AtKafka:
    """Requests to a Kafka, whose coordinator may have to be loaded."""

    def __init__(self, kafka: Kafka) -> None:
        self.clock = SystemClock()
        self._kafka = kafka

    def ask(self, key: ApiKey, version: int, /, **fields: Any) -> Any:
        answer: Any = None

        def is_answered() -> bool:
            nonlocal answer
            with RawConnection(self._kafka.bootstrap) as connection:
                answer = connection.ask(key, version, **fields)
            return getattr(answer, "error_code", 0) not in (14, 15, 16)

        assert eventually(is_answered), answer
        return answer


def test_decisions_of_a_kafka_count_at_the_shadow_that_is_promoted(
    kafka: Kafka, client: Client, make_broker: MakeBroker
) -> None:
    client.create_topics({"t": 1}, configs={"retention.ms": "-1"})
    find = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "first"})
    find.init_transactions(PATIENCE_S)  # makes the topic of transactions
    for group in ("g", "h"):  # makes the topic of groups
        client.offset_commit(group, {("t", 0): CommittedOffset(0)})
    shadow = make_broker(horolog_follow=kafka.bootstrap, node_id="7")
    ended: Any = FlowProducer(AtKafka(kafka), "ended", flow=1)
    assert eventually(lambda: ended.commit_offset("h", "t", 3) == 0)
    assert ended.end() == 0
    assert eventually(lambda: offset_of(shadow, "h") == 3)
    producer: Any = FlowProducer(AtKafka(kafka), flow=1)
    assert eventually(lambda: producer.send("t") == 0)
    assert eventually(lambda: producer.commit_offset("g", "t", 1) == 0)
    assert is_here(shadow, client, "t")
    assert groups_are_here(shadow, client)
    assert offset_of(shadow, "g") == 0
    states = client.metadata([TRANSACTION_STATE]).topics[TRANSACTION_STATE].partitions
    assert eventually(lambda: TRANSACTION_STATE in shadow.broker.topics)
    assert len(shadow.broker.topics.named(TRANSACTION_STATE).partitions) == len(states)
    assert is_caught_up(shadow, Peer(client), [(TRANSACTION_STATE, each) for each in states])
    shadow.client.promote(None)
    kafka.kill()
    producer.broker = shadow
    assert producer.send("t") in (ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced)
    assert read_all(shadow.address) == []
    assert (offset_of(shadow, "g"), offset_of(shadow, "h")) == (0, 1), "the log end"
    again = Producer({"bootstrap.servers": shadow.address, "transactional.id": "x"})
    again.init_transactions(PATIENCE_S)
    again.begin_transaction()
    again.produce("t", b"v", partition=0)
    again.commit_transaction(PATIENCE_S)
    assert eventually(lambda: len(read_all(shadow.address)) == 1)


def test_a_java_producer_goes_on_after_its_transaction_was_aborted_by_a_promotion(
    kafka: Kafka, client: Client, make_broker: MakeBroker, java_client: Any
) -> None:
    client.create_topics({"t": 1}, configs={"retention.ms": "-1"})
    fields = {"topic": "t", "id": "x"}
    opened = [{"end": "hold", "records": [[1_700_000_000_000, "k", "1"]]}]
    java_client.ask(At(kafka.bootstrap), "transact", **fields, transactions=opened)
    shadow = make_broker(horolog_follow=kafka.bootstrap, node_id="7")
    assert is_here(shadow, client, "t")
    assert eventually(lambda: TRANSACTION_STATE in shadow.broker.topics)
    states = client.metadata([TRANSACTION_STATE]).topics[TRANSACTION_STATE].partitions
    assert is_caught_up(shadow, Peer(client), [(TRANSACTION_STATE, each) for each in states])
    kafka.kill()
    shadow.client.promote(None)
    log = shadow.log("t")
    assert log.last_stable_offset == log.log_end_offset
    shadow.restart(listeners=f"PLAINTEXT://{kafka.bootstrap}")  # clients find it where Kafka was
    committed = [{"end": "commit", "records": [[1_700_000_000_000, "k", "3"]]}]
    told = java_client.ask(
        At(kafka.bootstrap), "succeed", **fields, late="2", transactions=committed
    )
    assert told["error"] in (ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced), told
    written = [header for header in shadow.headers("t") if not header.is_control]
    assert len(written) == 2, "nothing of the former producer was appended"
    assert read(kafka.bootstrap, "g", 1) == [3]


def test_a_planned_promotion_names_no_transaction_that_is_here_whole(
    kafka: Kafka, client: Client, make_broker: MakeBroker
) -> None:
    """A Kafka takes the time of a completed state before it writes the markers."""
    client.create_topics({"t": 2}, configs={"retention.ms": "-1"})
    shadow = make_broker(horolog_follow=kafka.bootstrap, node_id="7")
    for number in range(10):
        ids = {"bootstrap.servers": kafka.bootstrap, "transactional.id": f"x{number}"}
        producer = Producer(ids)
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("t", b"%d" % number, partition=partition)
        producer.commit_transaction(PATIENCE_S)
    states = client.metadata([TRANSACTION_STATE]).topics[TRANSACTION_STATE].partitions
    every = [("t", 0), ("t", 1), *((TRANSACTION_STATE, each) for each in states)]
    assert eventually(lambda: TRANSACTION_STATE in shadow.broker.topics)
    assert is_caught_up(shadow, Peer(client), every)
    shadow.client.promote(None)
    assert [each.text for each in shadow.client.promoted(["t"]) or () if each.text] == []
    assert len(read_all(shadow.address)) == 10


def test_a_java_standby_that_begins_before_the_promotion_waits_for_it(
    kafka: Kafka, client: Client, make_broker: MakeBroker, java_client: Any
) -> None:
    client.create_topics({"t": 1}, configs={"retention.ms": "-1"})
    shadow = make_broker(horolog_follow=kafka.bootstrap, node_id="7")
    assert eventually(lambda: "t" in shadow.broker.topics)
    asked, plain = threading.Event(), shadow.broker.transactions.initialise

    async def initialise(*given: Any) -> Any:
        asked.set()
        return await plain(*given)

    shadow.broker.transactions.initialise = initialise  # type: ignore[method-assign]
    fields = {"topic": "t", "id": "standby"}
    transactions = [{"end": "commit", "records": [[1_700_000_000_000, "k", "v"]]}]
    with ThreadPoolExecutor(1) as pool:
        at = At(shadow.address)
        standby = pool.submit(java_client.ask, at, "transact", **fields, transactions=transactions)
        assert asked.wait(PATIENCE_S)
        shadow.client.promote(None)
        standby.result(PATIENCE_S)
    assert eventually(lambda: len(read_all(shadow.address)) == 1)


class Peer(NamedTuple):
    client: Client


class At(NamedTuple):
    bootstrap: str


def read_all(address: str) -> list[int]:
    """The offsets that a consumer of committed records is given."""
    with closing(Client(address, timeout_ms=int(PATIENCE_S * 1000))) as client:
        answer = client.fetch("t", 0, 0, max_wait_ms=0, read_committed=True)
        drop, records = AbortedTransactions(answer.aborted).drop, memoryview(answer.records)
        return [
            header.base_offset
            for position, header in iter_headers(records)
            if not drop(header, records[position : position + header.size])
            if not header.is_control
        ]


def test_what_admins_do_at_a_kafka_is_done_here_and_nothing_else(
    kafka: Kafka, client: Client, make_broker: MakeBroker
) -> None:
    client.create_topics({"t": 1}, configs={"retention.ms": "86400000"})
    shadow = make_broker(horolog_follow=kafka.bootstrap, node_id="1")
    assert eventually(lambda: "t" in shadow.broker.topics)
    client.create_partitions({"t": 3})
    assert eventually(lambda: len(shadow.broker.topics.named("t").partitions) == 3)
    client.alter_configs({(ResourceType.TOPIC, "t"): {"segment.ms": "600000"}})
    assert eventually(
        lambda: shadow.broker.topics.named("t").overrides.get("segment.ms") == "600000"
    )
    made = shadow.broker.topics.named("t").topic_id
    client.delete_topics(["t"])
    assert eventually(lambda: "t" not in shadow.broker.topics)
    client.create_topics({"t": 2})
    assert eventually(lambda: "t" in shadow.broker.topics)
    assert shadow.broker.topics.named("t").topic_id not in (made, None)
    admin = AdminClient({"bootstrap.servers": shadow.address})
    for refused in (
        *admin.create_topics([NewTopic("more", 1)]).values(),
        *admin.delete_topics(["t"]).values(),
    ):
        with pytest.raises(Exception, match="POLICY_VIOLATION"):
            refused.result(PATIENCE_S)
    assert status(shadow).cluster_id == shadow.broker.follow_state.source.cluster_id
