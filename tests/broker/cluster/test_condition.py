"""What is wrong with a broker of a cluster, and its numbers."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from metrics_page import scrape
from running_broker import RunningBroker, a_broker

from horolog.broker.cluster.condition import ClusterCondition
from horolog.broker.health import wrong_with
from horolog.broker.scheduling.turns import TimeSlice
from horolog.metadata import Image
from horolog.schemas.metadata import (
    BrokerChange,
    PartitionRecord,
    RegisterBroker,
    TopicRecord,
)
from horolog.wire import REPLICATION, Wrong

ID = UUID(int=500)
HERE, KAFKA, OTHER = 3, 1, 2

broker = a_broker(horolog_metrics_port="0")


@dataclass
class Leaders:
    """Partitions that the broker leads for others."""

    isr_expands: int = 5
    isr_shrinks: int = 6
    failed_isr_updates: int = 7
    led: list[Any] = field(default_factory=list)

    def __iter__(self) -> Any:
        return iter(self.led)


def partition(index: int, *, end: int = 10, min_isr: int = 2, ends: Any = None) -> Any:
    """A partition of `t` that has this log end, and replicas with these ends."""
    replicas = {it: SimpleNamespace(end=known) for it, known in (ends or {}).items()}
    leading = SimpleNamespace(effective_min_isr=min_isr, replicas=replicas)
    log = SimpleNamespace(
        log_end_offset=end, config=SimpleNamespace(horolog_retention_by="create-time")
    )
    return SimpleNamespace(topic="t", index=index, leading=leading, log=log)


class State:
    """A broker of a cluster of brokers 1 (Kafka), 2 and 3 (horolog), which is 3."""

    def __init__(self) -> None:
        self.image = Image()
        self.offset, self.timestamp = 101, 5_000
        self.life: Any = SimpleNamespace(state=3, is_fenced=False, complaint=None)
        self.leaders = Leaders()
        self.served: dict[tuple[str, int], Any] = {}
        self.internal: list[str] = []
        self.why_no_controller: str | None = None
        self.refused: dict[tuple[str, int], str] = {}
        found: Any = SimpleNamespace(find=lambda *key: self.served.get(key))
        self.condition = ClusterCondition(
            HERE,
            self,
            found,
            self.leaders,
            self.life,
            internal=lambda: self.internal,
            why_no_controller=lambda: self.why_no_controller,
            refused=lambda: self.refused,
        )
        for node_id in (KAFKA, OTHER, HERE):
            features: Any = () if node_id == KAFKA else ((REPLICATION, 0, 1),)
            self.image.apply(RegisterBroker(node_id, False, ID, 10, (), features, None, False))
        self.image.apply(TopicRecord("t", ID))

    def place(self, index: int, isr: tuple[int, ...], leader: int = HERE, **more: Any) -> None:
        record = PartitionRecord(index, ID, (3, 2, 1), isr, (), (), leader, 0, 5, 7)
        self.image.apply(record._replace(**more))
        if leader == HERE:
            self.served["t", index] = partition(index)

    def wrong(self) -> list[Wrong]:
        return asyncio.run(self.condition.wrong(TimeSlice(), lambda topic: True))

    def kinds(self) -> dict[str, int | None]:
        return {it.kind: it.value for it in self.wrong()}


@pytest.fixture
def state() -> State:
    return State()


def test_a_whole_cluster_has_no_problem(state: State) -> None:
    state.place(0, (3, 2, 1))
    state.place(1, (3, 2, 1), leader=OTHER)
    assert state.wrong() == []
    found = asyncio.run(state.condition.numbers(TimeSlice()))
    assert (found.assigned, found.led, found.partitions, found.without_leader) == (2, 1, 2, 0)
    assert (found.under_replicated, found.under_min_isr, found.at_min_isr) == (0, 0, 0)
    assert state.condition.brokers == 3


def test_problems_of_partitions_are_counted_by_topic(state: State) -> None:
    state.place(0, (3, 2))
    state.place(1, (3,))
    state.place(2, (2, 1), leader=OTHER)  # its leader says so
    state.place(3, (), leader=-1)
    state.place(4, (), leader=-1, replicas=(1, 2))
    assert state.kinds() == {"under-replicated": 2, "under-min-isr": 1, "without-leader": 1}
    found = asyncio.run(state.condition.numbers(TimeSlice()))
    assert (found.at_min_isr, found.without_leader, found.assigned) == (1, 2, 4)
    assert asyncio.run(state.condition.wrong(TimeSlice(), lambda topic: False)) == []


def test_a_replica_that_is_being_added_is_not_missed_yet(state: State) -> None:
    state.place(0, (3, 2), adding=(1,))
    assert state.wrong() == []


def test_the_only_replica_is_enough(state: State) -> None:
    state.place(0, (3,), replicas=(3,))
    state.served["t", 0].leading = None
    assert state.wrong() == []


def test_a_fenced_broker_and_a_lost_controller_are_said_with_their_reasons(state: State) -> None:
    state.life.is_fenced = True
    assert state.wrong() == [
        Wrong(
            "fenced", "broker 3", None, "this broker leads nothing: the controllers have fenced it"
        )
    ]
    state.life.complaint, state.why_no_controller = "no answer", "127.0.0.1:9 (refused)"
    state.internal = ["__consumer_offsets is missing"]
    assert [(it.kind, it.text) for it in state.wrong()] == [
        ("fenced", "this broker leads nothing: no answer"),
        ("no-controller", "127.0.0.1:9 (refused)"),
        ("internal-topics", "__consumer_offsets is missing"),
    ]


def test_a_partition_that_cannot_take_its_role_is_offline(state: State) -> None:
    state.refused["t", 4] = "the disk refused"
    (wrong,) = state.wrong()
    assert (wrong.kind, wrong.subject) == ("offline", "t-4")
    assert wrong.text == "it cannot lead or follow: the disk refused"


def test_retention_by_append_time_beside_apache_kafka_is_said(state: State) -> None:
    state.place(0, (3, 2, 1))
    state.served["t", 0].log.config.horolog_retention_by = "append-time"
    (wrong,) = state.wrong()
    assert (wrong.kind, wrong.subject) == ("retention-apart", "t")
    assert "brokers 1 of Apache Kafka" in wrong.text
    state.place(0, (3, 2), replicas=(3, 2))
    state.served["t", 0].log.config.horolog_retention_by = "append-time"
    assert state.wrong() == []


def test_the_lag_of_replicas_is_by_what_they_have_fetched(state: State) -> None:
    part = partition(0, end=10, ends={2: 4, 1: -1})
    state.leaders.led.append((part, part.leading))
    assert list(state.condition.lags()) == [("t", 0, 2, 6)]


def test_health_and_metrics_of_a_broker_say_it(state: State, broker: RunningBroker) -> None:
    broker.create_topic("here")
    part = partition(0, end=10, ends={2: 4})
    state.leaders.led.append((part, part.leading))
    state.place(0, (3,))
    state.image.apply(BrokerChange(KAFKA, 10, 1))
    broker.broker.condition = state.condition
    try:
        wrong = broker.run(wrong_with(broker.broker))
        assert [it.kind for it in wrong] == ["under-min-isr", "under-replicated"]
        metrics = scrape(broker)
    finally:
        broker.broker.condition = None
    manager = "kafka_server_replicamanager_"
    for name, value in (
        (f"{manager}underreplicatedpartitions", 1),
        (f"{manager}underminisrpartitioncount", 1),
        (f"{manager}atminisrpartitioncount", 0),
        (f"{manager}isrshrinks_total", 6),
        (f"{manager}isrexpands_total", 5),
        (f"{manager}failedisrupdates_total", 7),
        (f"{manager}leadercount", 1),
        ("kafka_controller_kafkacontroller_activecontrollercount", 0),
        ("kafka_controller_kafkacontroller_offlinepartitionscount", 0),
        ("kafka_brokers", 2),
        ("kafka_server_kafkaserver_brokerstate", 3),
        ("horolog_broker_fenced", 0),
        ("kafka_server_broker_metadata_metrics_last_applied_record_offset", 100),
    ):
        assert metrics.value(name) == value, name
    assert metrics.value("horolog_replica_lag_offsets", topic="t", replica="2") == 6
