"""Producers by the client ids of their requests."""

import pytest
from overrides import override
from running_broker import NOW_MS, RunningBroker, a_broker
from scripted_broker import ScriptedBroker

from horolog.client import Client
from horolog.jobs.questions.audit import known_clients
from horolog.record import LogRecord, build_batch

broker = a_broker("t", partitions=2)


def produce(
    broker: RunningBroker, client_id: str, producer: int, *, epoch: int = 0, sequence: int = 0
) -> None:
    batch = build_batch(
        [LogRecord(NOW_MS, None, b"v")],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    with Client(broker.address, client_id=client_id) as client:
        client.produce("t", 0, batch)


def test_a_producer_has_the_client_id_of_its_requests(broker: RunningBroker) -> None:
    produce(broker, "billing", 7)
    produce(broker, "billing-2", 9)
    broker.client.produce("t", 0, build_batch([LogRecord(NOW_MS, None, b"v")]))
    assert known_clients(broker.client, [9, 7, 8, -1, 7]) == {7: "billing", 9: "billing-2"}
    assert known_clients(broker.client, []) == {}


@pytest.mark.parametrize("crash", [False, True])
def test_after_a_restart_its_next_batch_names_it_again(broker: RunningBroker, crash: bool) -> None:
    produce(broker, "billing", 7)
    broker.restart(crash=crash)
    assert known_clients(broker.client, [7]) == {}
    produce(broker, "billing", 7, sequence=1)
    assert known_clients(broker.client, [7]) == {7: "billing"}


def test_the_newest_epoch_counts(broker: RunningBroker) -> None:
    for epoch, name in enumerate(("first", "second")):
        produce(broker, name, 7, epoch=epoch)
    assert known_clients(broker.client, [7]) == {7: "second"}


def test_names_of_any_length_come_in_pages(broker: RunningBroker) -> None:
    for producer in range(40):
        produce(broker, f"{producer}" + "\N{GREEK SMALL LETTER ALPHA}" * 1_000, producer)
    found = known_clients(broker.client, range(1_000))
    assert found.keys() == set(range(40))
    assert all(name.startswith(str(producer)) for producer, name in found.items())
    assert {len(name) for name in found.values()} == {249}


def test_the_producers_that_were_heard_first_are_forgotten(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker", MOST_PRODUCERS=2)
    for producer in (5, 6, 7):
        produce(broker, "c", producer)
    assert known_clients(broker.client, [5, 6, 7]).keys() == {6, 7}


def test_apache_kafka_names_none() -> None:
    with ScriptedBroker({}) as kafka, Client(kafka.bootstrap) as client:
        assert known_clients(client, [7]) == {}
