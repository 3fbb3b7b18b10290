"""An Apache Kafka is killed between the markers of a transaction, and its shadows are promoted.

Producers of both flows of KIP-890 write transactions over partitions of two brokers. The broker
that is not their coordinator stops where it is, until the shadows have a transaction's marker in
some partitions and not in others; then both are killed.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from patience import PATIENCE_S, eventually
from raw_connection import RawConnection, produce_fields
from running_broker import BrokerProcess
from tools.peers.kafka import NEWEST, Kafka
from transaction_soak import Named, batches

from horolog.client import Client
from horolog.clock import SystemClock
from horolog.record import LogRecord, build_batch, read_marker, read_records
from horolog.storage import TRANSACTION_STATE
from horolog.wire import ApiKey

COUNT = 12
PARTITIONS = frozenset(range(COUNT))
FLOWS = {"first-0": 1, "first-1": 1, "second-0": 2, "second-1": 2}
"""Transactional ids, each with the flow of its producer."""

_AGAIN = frozenset({3, 14, 15, 16, 51})  # as long as Kafka does not know, loads, or completes


class Cluster(NamedTuple):
    """Two brokers."""

    coordinator: Kafka
    """Of all transactions."""
    other: Kafka
    leaders: dict[str, list[int]]
    """By address, the partitions that a broker leads."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Kafka(tmp_path / "1", peer=NEWEST, settings={"log.retention.ms": "-1"}) as first:
        second = first.another(tmp_path / "2")
        try:
            second.start()
            yield cluster_of(first, second)
        finally:
            second.kill()
            first.kill()


def cluster_of(first: Kafka, second: Kafka) -> Cluster:
    """Once there is a topic on both of them, and a coordinator."""
    with closing(Client(first.bootstrap, timeout_ms=int(PATIENCE_S * 1000))) as client:
        assert eventually(lambda: len(client.metadata().brokers) == 2)
        client.create_topics({"t": COUNT})
        leads: dict[str, list[int]] = {}
        for each in client.metadata(["t"]).topics["t"].partitions.values():
            of_broker = first if each.leader == 1 else second
            leads.setdefault(of_broker.bootstrap, []).append(each.partition_index)
    assert len(leads) == 2, leads
    made = confluent_kafka.Producer(
        {"bootstrap.servers": first.bootstrap, "transactional.id": "made"}
    )
    made.init_transactions(PATIENCE_S)
    with RawConnection(first.bootstrap) as connection:
        found = connection.ask(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["x"])
    is_first = found.coordinators[0].node_id == 1
    return Cluster(*((first, second) if is_first else (second, first)), leads)


@pytest.fixture
def shadows(cluster: Cluster, tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    started: list[BrokerProcess] = []
    try:
        for number in range(2):
            follows = {
                "horolog.follow": ",".join(cluster.leaders),
                "node.id": str(7 + number),
            }
            started.append(BrokerProcess(tmp_path / f"shadow-{number}", follows))
        for each in started:
            assert eventually(partial(has_all, each))
        yield started
    finally:
        for each in started:
            each.kill()


def has_all(shadow: BrokerProcess) -> bool:
    topics = shadow.client.metadata().topics
    return TRANSACTION_STATE in topics and "t" in topics and len(topics["t"].partitions) == COUNT


class Writer(threading.Thread):
    """Transactions of one id, until a broker is gone; each fourth one is aborted."""

    def __init__(self, cluster: Cluster, name: str, flow: int) -> None:
        super().__init__(daemon=True)
        self.name, self.flow, self.count = name, flow, 0
        self.failure: BaseException | None = None
        self._cluster = cluster

    def run(self) -> None:
        try:
            with suppress(OSError), ExitStack() as stack:
                self._links = {
                    address: stack.enter_context(RawConnection(address))
                    for address in self._cluster.leaders
                }
                self._begin()
        except BaseException as error:  # noqa: BLE001 - raised in the test
            self.failure = error

    def _begin(self) -> None:
        found = self._ask(
            ApiKey.INIT_PRODUCER_ID, 4, transactional_id=self.name, transaction_timeout_ms=60_000
        )
        self._producer, sequence = (found.producer_id, found.producer_epoch), 0
        while True:
            if self.flow == 1:
                self._add_partitions()
            self._write(sequence)
            sequence += 1
            end = self._ask(
                ApiKey.END_TXN,
                5 if self.flow == 2 else 3,
                transactional_id=self.name,
                **self._fields(),
                committed=is_committed(self._transaction),
            )
            if self.flow == 2:
                self._producer, sequence = (end.producer_id, end.producer_epoch), 0
            self.count += 1

    @property
    def _transaction(self) -> str:
        return f"{self.name}.{self.count}"

    def _fields(self, prefix: str = "") -> dict[str, Any]:
        id_, epoch = self._producer
        return {f"{prefix}producer_id": id_, f"{prefix}producer_epoch": epoch}

    def _add_partitions(self) -> None:
        self._ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            lambda answer: (
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
            v3_and_below_transactional_id=self.name,
            **self._fields("v3_and_below_"),
            v3_and_below_topics=[{"name": "t", "partitions": [*PARTITIONS]}],
        )

    def _write(self, sequence: int) -> None:
        id_, epoch = self._producer
        batch = build_batch(
            [LogRecord(SystemClock().now_ms(), None, self._transaction.encode())],
            producer_id=id_,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        for address, its in self._cluster.leaders.items():
            fields = produce_fields("t", dict.fromkeys(its, batch), acks=-1)
            self._ask(
                ApiKey.PRODUCE,
                12 if self.flow == 2 else 11,
                lambda answer: max(
                    each.error_code for each in answer.responses[0].partition_responses
                ),
                at=address,
                **fields,
                transactional_id=self.name,
            )

    def _ask(
        self,
        key: ApiKey,
        version: int,
        code: Callable[[Any], int] = lambda answer: int(answer.error_code),
        at: str | None = None,
        **fields: Any,
    ) -> Any:
        answer: Any = None
        link = self._links[at or self._cluster.coordinator.bootstrap]

        def is_taken() -> bool:
            nonlocal answer
            answer = link.ask(key, version, **fields)
            return code(answer) not in _AGAIN

        assert eventually(is_taken), answer
        assert code(answer) == 0, answer
        return answer


def is_committed(name: str) -> bool:
    return int(name.partition(".")[2]) % 4 != 3


class Seen(NamedTuple):
    """In which partitions a transaction is, by its name."""

    written: dict[str, set[int]]
    ended: dict[str, set[int]]
    """Where its marker is."""

    @property
    def cut(self) -> list[str]:
        """Committed transactions with a marker in some partitions, and not in all."""
        return [n for n, its in self.ended.items() if its != PARTITIONS and is_committed(n)]


def seen(broker: BrokerProcess) -> Seen:
    found = Seen({}, {})
    with RawConnection(broker.address) as connection:
        for partition in PARTITIONS:
            opened: dict[int, str] = {}
            for header, batch in batches(connection, ("t", partition)):
                if header.is_control:
                    name = opened.pop(header.producer_id)
                    marker = read_marker(batch)
                    assert marker is not None
                    assert marker.is_abort is not is_committed(name), name
                    found.ended.setdefault(name, set()).add(partition)
                else:
                    name = bytes(next(read_records(batch)).value or b"").decode()
                    opened[header.producer_id] = name
                    found.written.setdefault(name, set()).add(partition)
    return found


def stop_between_markers(cluster: Cluster, shadows: list[BrokerProcess]) -> None:
    """Stop a broker where all shadows have some of a transaction's markers, and get no others."""

    def is_between() -> bool:
        os.kill(cluster.other.pid, signal.SIGSTOP)
        if eventually(lambda: all(seen(each).cut for each in shadows), 5):
            return True
        os.kill(cluster.other.pid, signal.SIGCONT)  # no producer was ending its transaction
        return False

    assert eventually(is_between)


def given(broker: BrokerProcess) -> dict[str, set[int]]:
    """In which partitions consumers of committed records are given a transaction, by its name."""
    settings = {
        "bootstrap.servers": broker.address,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    found: dict[str, set[int]] = {}
    consumer = confluent_kafka.Consumer(settings)
    try:
        start = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition("t", each, start) for each in PARTITIONS])
        left = set(PARTITIONS)
        while left:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, left
            if message.error() is not None:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                left.discard(message.partition())
                continue
            its = found.setdefault(message.value().decode(), set())
            assert message.partition() not in its, f"{message.value()} is given twice"
            its.add(message.partition())
    finally:
        consumer.close()
    return found


def check(shadow: BrokerProcess, before: Seen) -> None:
    """Whether each transaction is given whole or not at all, and none is turned."""
    entries = shadow.client.promoted(["t"]) or []
    named, after = Named.of(entries), given(shadow)
    assert all(is_committed(name) for name in after)
    for name in filter(is_committed, before.written):
        its, id_ = after.pop(name, set()), name.partition(".")[0]
        ended = before.ended.get(name, set())
        assert ended <= its, f"{name} was committed in {ended}, and is given in {its}"
        for partition in PARTITIONS - its if its else ():
            where = "t", partition
            assert partition not in before.written[name], f"{name} is not in {partition}"
            assert named.may_lack(id_, where), f"{name} is not in {partition}: {entries}"
    assert not after


def test_transactions_of_a_kafka_killed_between_markers_are_whole(
    cluster: Cluster, shadows: list[BrokerProcess]
) -> None:
    writers = [Writer(cluster, name, flow) for name, flow in FLOWS.items()]
    for each in writers:
        each.start()
    assert eventually(lambda: all(each.count > 4 or each.failure for each in writers))
    stop_between_markers(cluster, shadows)
    cluster.coordinator.kill()
    cluster.other.kill()
    for each in writers:
        each.join(PATIENCE_S)
        assert each.failure is None, each.failure
    before = [seen(each) for each in shadows]
    assert all(each.cut for each in before)
    for shadow, its in zip(shadows, before, strict=True):
        shadow.client.promote(None)
        check(shadow, its)
